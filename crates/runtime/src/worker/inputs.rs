//! Accepts inputs: checks them, resolves their agents, stores their attachments, and appends them to their sessions.
use super::Runtime;
use crate::agents::agent_registry::InputLayers;
use crate::delivery::events::SessionEventStream;
use crate::delivery::live::LiveListener;
use crate::limits::budget_meter::BudgetMeter;
use crate::turn::output_schema::check_schema;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, SessionTarget};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{Message, Part, PluginName, json_size};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::record::{InputDelivery, Seq, TurnAccepted};
use outlast_vocab::tool::ClientTool;
use outlast_vocab::trace::TraceParent;
use outlast_vocab::{Error, Hash, Kind, Limits, SessionId, TurnId, limits};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A request without an idempotency key that can be recognised when it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatableRequest {
    /// The id of its turn. Its input is accepted once under it.
    pub turn: TurnId,
    /// The fingerprint that the request and its repeats share.
    pub fingerprint: Hash,
}

/// An input for a session.
#[derive(Clone, Debug)]
pub struct Input {
    /// The session.
    pub target: SessionTarget,
    /// The content.
    pub parts: Vec<Part>,
    /// The caller's idempotency key.
    pub key: Option<String>,
    /// The hash of the request. If it is set, reusing the key with another request is an error.
    pub request: Option<Hash>,
    /// The request that brought the input, if a repeat of it can join the turn. Not for inputs with a key.
    pub repeatable: Option<RepeatableRequest>,
    /// The index that its turn must have in the session, from 0. If another input came first, this one is rejected with
    /// `session.moved`. `None` accepts any index.
    pub index: Option<u32>,
    /// How it is delivered if another turn is running.
    pub delivery: InputDelivery,
    /// The head of the session.
    pub head: String,
    /// A JSON Schema that the answer must match.
    pub output: Option<Value>,
    /// Values for plug-ins.
    pub plugins: BTreeMap<PluginName, Value>,
    /// The trace span that caused it. It does not affect the turn: a repeated idempotency key matches whatever the span
    /// is.
    pub traceparent: Option<TraceParent>,
    /// Messages from outside this session that the model is shown before the input.
    pub before: Vec<Message>,
    /// A note of the sender, returned with the input. It does not affect the turn.
    pub note: Option<Value>,
    /// Tools that the sender runs. The turn parks at a call of one until it is resolved.
    pub client_tools: Vec<ClientTool>,
    /// The agent that answers. `None` means the default agent.
    pub agent: Option<String>,
    /// The overlays of the session and of the turn, in this order.
    pub overlays: Vec<Overlay>,
    /// Seconds that its turn waits for a provider that is down. Applies only if neither the agent nor an overlay sets
    /// it.
    pub provider_wait_s: Option<u32>,
    /// The attachments. They are appended to the input, unless a part of it or of the earlier messages refers to them.
    /// The bytes are stored separately, and the message only refers to them. Store a stream first, with
    /// [`Runtime::attachments`].
    pub files: Vec<AttachmentUpload>,
}

impl Input {
    /// Creates an input with a text, on the main head of a session.
    pub fn text(target: SessionTarget, text: impl Into<String>) -> Self {
        let parts = vec![Part::text(text)];
        Self {
            target,
            parts,
            key: None,
            request: None,
            repeatable: None,
            index: None,
            delivery: InputDelivery::Next,
            head: MAIN_HEAD.to_owned(),
            output: None,
            plugins: BTreeMap::new(),
            traceparent: None,
            before: Vec::new(),
            note: None,
            client_tools: Vec::new(),
            agent: None,
            overlays: Vec::new(),
            provider_wait_s: None,
            files: Vec::new(),
        }
    }
}

impl Runtime {
    /// Accepts an input. When this returns, the input is durable, and this worker or the one that holds the session
    /// will drive its turn.
    pub async fn submit(&self, input: Input) -> Result<AcceptReceipt, Error> {
        self.accept_input(input, |_| ()).await.map(|(accepted, ())| accepted)
    }

    /// Accepts an input and follows its session. Subscribes before the turn can start, so no live event is missed.
    pub async fn submit_watched(&self, input: Input) -> Result<(AcceptReceipt, SessionEventStream), Error> {
        let listen = |session| LiveListener::new(&self.state.journal.hub, session);
        let live = listen(self.session_of(&input.target).await?);
        self.accept_input(input, |accepted| {
            // This is the session that was looked up, unless another caller has just opened it under the same key.
            let live = if live.session() == accepted.session { live } else { listen(accepted.session) };
            self.event_stream(live, Seq(0)).starting_at(accepted)
        })
        .await
    }

    /// Returns the id of the target session, which may not exist yet.
    async fn session_of(&self, target: &SessionTarget) -> Result<SessionId, Error> {
        match target {
            SessionTarget::New(id) | SessionTarget::Id(id) => Ok(*id),
            SessionTarget::Key { key, fresh } => match self.store.session_by_key(key.clone()).await {
                Ok(found) => Ok(found.id),
                Err(error) if error.kind() == Kind::SessionNotFound => Ok(*fresh),
                Err(error) => Err(error),
            },
        }
    }

    /// Accepts an input. Calls `meanwhile` after the input is durable and before its turn starts.
    async fn accept_input<T>(
        &self,
        input: Input,
        meanwhile: impl FnOnce(&AcceptReceipt) -> T,
    ) -> Result<(AcceptReceipt, T), Error> {
        let state = &self.state;
        let owner = Some(self.access.visibility.home());
        let (file_limit, file_bytes_max) = self.attachments().most();
        check_input(&input, &state.journal.limits, file_limit, file_bytes_max)?;
        if let Some(schema) = &input.output {
            check_schema(schema, &state.journal.limits, owner).await?;
        }
        state.plugins.check(&input.plugins)?;
        let Input { target, parts, key, request, index, delivery, head, output, .. } = input;
        let Input { plugins, traceparent, before, note, client_tools, agent, overlays, files, .. } = input;
        let (provider_wait_s, repeatable) = (input.provider_wait_s, input.repeatable);
        let layers = InputLayers { overlays: &overlays, client_tools: &client_tools, provider_wait_s };
        let resolved_agent =
            state.agents.registry.chosen(agent.as_deref(), layers, self.access.visibility)?;
        resolved_agent.catalogue.compile(&client_tools, owner).await?;
        let parts = with_attachments(parts, &before, &files);
        let now = self.now();
        let _claim = state.drives.claim();
        let is_metered = !resolved_agent.budgets.is_empty() || state.operator_budgets.are_set();
        let file_bytes = files.iter().map(AttachmentUpload::bytes).sum();
        let first = is_metered
            .then(|| {
                BudgetMeter::first(
                    &resolved_agent,
                    &state.models,
                    &state.journal.limits,
                    &parts,
                    file_bytes,
                    now,
                )
            })
            .flatten();
        let package = Some(resolved_agent.fingerprint);
        let accept = AcceptRequest {
            target,
            turn: repeatable.map_or_else(|| self.fresh_turn(), |request| request.turn),
            head,
            accepted: TurnAccepted {
                parts,
                key,
                delivery,
                package,
                output,
                plugins,
                traceparent,
                before,
                note,
                request: repeatable.map(|request| request.fingerprint),
                worker: repeatable.map(|_| state.drives.worker()),
                ..TurnAccepted::text("")
            },
            request,
            index,
            blobs: resolved_agent.to_store(),
            files: Vec::new(),
            now,
            lease_request: state.drives.lease_request(now),
            first,
            queued_most: state.journal.limits.queued_inputs,
        };
        let accepted = state.journal.accept(&self.store, state.drives.worker(), accept, files).await?;
        resolved_agent.was_stored();
        let AcceptReceipt { session, turn, duplicate, .. } = &accepted;
        tracing::info!(%session, %turn, duplicate, "an input was accepted");
        let made = meanwhile(&accepted);
        state.journal.hub.committed(accepted.session, accepted.place.seq);
        let AcceptReceipt { session, turn, duplicate, place, work } = accepted;
        match work {
            Some(work) => state.sessions.spawn(work),
            None => state.drives.wake(),
        }
        Ok((AcceptReceipt { session, turn, duplicate, place, work: None }, made))
    }
}

/// Appends the attachments that neither these parts nor the messages before them refer to.
fn with_attachments(mut parts: Vec<Part>, before: &[Message], files: &[AttachmentUpload]) -> Vec<Part> {
    let before = before.iter().filter_map(|message| match message {
        Message::User { parts } => Some(parts),
        Message::Assistant { .. } | Message::Tool { .. } => None,
    });
    let attached = |part: &Part| match part {
        Part::Attachment { attachment } => Some(attachment.id),
        _ => None,
    };
    let shown: BTreeSet<AttachmentId> = before.flatten().chain(&parts).filter_map(attached).collect();
    let files = files.iter().map(AttachmentUpload::attachment);
    let others = files.filter(|attachment| !shown.contains(&attachment.id));
    parts.extend(others.map(|attachment| Part::Attachment { attachment: attachment.clone() }));
    parts
}

fn check_input(
    input: &Input,
    limits: &Limits,
    file_limit: &'static str,
    file_bytes_max: usize,
) -> Result<(), Error> {
    let bytes: usize = input.parts.iter().map(Part::size).sum();
    let says_nothing = bytes == 0 && input.parts.iter().all(|part| part.as_text().is_some());
    if says_nothing && input.files.is_empty() {
        return Err(Error::new(Kind::InputInvalid, "an input must not be empty"));
    }
    let carried: usize = input.plugins.values().chain(&input.note).map(json_size).sum();
    let before: usize = input.before.iter().map(Message::size).sum();
    limits::check("input_bytes", bytes + carried + before, limits.input_bytes)?;
    if !input.before.is_empty() && input.delivery == InputDelivery::Join {
        let detail = "an input that joins a turn cannot contain earlier messages";
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    for value in input.plugins.values() {
        limits::check_depth("json_depth", value, limits.json_depth)?;
    }
    limits::check("key_bytes", input.key.as_ref().map_or(0, String::len), limits.key_bytes)?;
    limits::check("key_bytes", input.head.len(), limits.key_bytes)?;
    limits::check("attachments_per_input", input.files.len(), limits.attachments_per_input)?;
    for file in &input.files {
        limits::check(file_limit, usize::try_from(file.bytes()).unwrap_or(usize::MAX), file_bytes_max)?;
    }
    check_target(&input.target, limits)
}

pub(super) fn check_target(target: &SessionTarget, limits: &Limits) -> Result<(), Error> {
    match target {
        SessionTarget::Key { key, .. } if key.is_empty() => {
            Err(Error::new(Kind::InputInvalid, "a session key must not be empty"))
        }
        SessionTarget::Key { key, .. } => limits::check("key_bytes", key.len(), limits.key_bytes),
        SessionTarget::New(_) | SessionTarget::Id(_) => Ok(()),
    }
}
