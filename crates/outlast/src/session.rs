//! Handles for sessions and turns.
use crate::Sending;
use outlast_ports::store::{Accepted, Cancelled, MAIN, Target};
use outlast_ports::tool::schema_of;
use outlast_runtime::Runtime;
use outlast_runtime::events::Events;
use outlast_runtime::output::value_of;
use outlast_vocab::access::Reach;
use outlast_vocab::effect::Place;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::record::{Delivery, End, Seq};
use outlast_vocab::{At, Error, Kind, SessionId, TurnId};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::sync::{Arc, OnceLock};

/// A handle to one session, which sends inputs to one of its heads.
#[derive(Clone)]
pub struct Session {
    runtime: Runtime,
    target: Target,
    head: String,
    agent: Option<String>,
    overlays: Vec<Overlay>,
    /// The session's id, once an input was accepted. Later inputs then go to the same session instead of a new one.
    opened: Arc<OnceLock<SessionId>>,
}

impl Session {
    pub(crate) fn new(runtime: Runtime, target: Target) -> Self {
        let (agent, overlays, opened) = (None, Vec::new(), Arc::default());
        Self { runtime, target, head: MAIN.to_owned(), agent, overlays, opened }
    }

    /// Returns a handle that sends inputs to another head. A fork within the session creates a head; an input to a
    /// missing head is rejected.
    #[must_use]
    pub fn on_head(&self, name: impl Into<String>) -> Self {
        Self { head: name.into(), ..self.clone() }
    }

    /// Returns a handle whose inputs are answered by another agent of this worker.
    #[must_use]
    pub fn answered_by(&self, agent: impl Into<String>) -> Self {
        Self { agent: Some(agent.into()), ..self.clone() }
    }

    /// Returns a handle that adds an overlay to the agent for every input sent through it. Each turn records the merged
    /// result.
    #[must_use]
    pub fn with(&self, overlay: Overlay) -> Self {
        let mut session = self.clone();
        session.overlays.push(overlay);
        session
    }

    /// Sends a text. Await the result to submit it.
    pub fn send(&self, text: impl Into<String>) -> Sending {
        Sending {
            session: self.clone(),
            text: text.into(),
            key: None,
            delivery: Delivery::Next,
            output: None,
            agent: self.agent.clone(),
            overlays: self.overlays.clone(),
            files: Vec::new(),
            plugins: std::collections::BTreeMap::new(),
            traceparent: None,
        }
    }

    /// Sends a text under an idempotency key. Sending it again returns the same turn.
    pub fn send_once(&self, key: impl Into<String>, text: impl Into<String>) -> Sending {
        Sending { key: Some(key.into()), ..self.send(text) }
    }

    /// Sends a text that joins the running turn at its next checkpoint. If no turn is running, it starts one.
    pub fn steer(&self, text: impl Into<String>) -> Sending {
        Sending { delivery: Delivery::Join, ..self.send(text) }
    }

    /// Asks for an answer of type `T` and waits for it.
    ///
    /// The model receives the JSON Schema of the type. If the answer does not match, the model gets all errors and
    /// tries again.
    pub async fn ask<T: DeserializeOwned + JsonSchema>(&self, text: impl Into<String>) -> Result<T, Error> {
        self.send(text).fitting(schema_of::<T>()).await?.answer_as().await
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the head that inputs are sent to.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// Returns the session that inputs are sent to.
    pub(crate) fn target(&self) -> Target {
        self.opened.get().map_or_else(|| self.target.clone(), |id| Target::Id(*id))
    }

    /// Returns the turn of an accepted input, and remembers the session's id for later inputs.
    pub(crate) fn turn(self, accepted: &Accepted) -> Turn {
        let Accepted { session, turn, duplicate, place, .. } = *accepted;
        self.opened.get_or_init(|| session);
        Turn { runtime: self.runtime, session, id: turn, duplicate, place }
    }
}

/// A handle to one turn: an accepted input and the work on its answer.
pub struct Turn {
    runtime: Runtime,
    session: SessionId,
    id: TurnId,
    duplicate: bool,
    place: Place,
}

impl Turn {
    /// Returns the turn with this id. Its input is reported as a duplicate.
    pub(crate) async fn find(runtime: Runtime, id: TurnId) -> Result<Self, Error> {
        let session = runtime.store().turn(id).await?.session;
        let accepted = runtime
            .store()
            .turn_records(id)
            .await?
            .into_iter()
            .next()
            .ok_or_else(|| Error::new(Kind::RecordCorrupt, format!("{id} has no record of its input")))?;
        Ok(Self { runtime, session, id, duplicate: true, place: accepted.place() })
    }

    /// Returns the turn's id.
    pub fn id(&self) -> TurnId {
        self.id
    }

    /// Returns the session that the turn belongs to.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns whether an input with the same idempotency key had already been accepted.
    pub fn duplicate(&self) -> bool {
        self.duplicate
    }

    /// Returns the receipt: the position of the input in the journal.
    pub fn receipt(&self) -> Place {
        self.place
    }

    /// Returns the session's events, starting with this input.
    ///
    /// Model output from before this call appears as a record, not as streamed text. To stream all of it, use
    /// [`Sending::watched`].
    pub fn events(&self) -> Events {
        self.runtime.events(self.session, Seq(self.place.seq.0.saturating_sub(1)))
    }

    /// Waits until the turn ends and returns how it ended.
    pub async fn outcome(&self) -> Result<End, Error> {
        self.runtime.outcome(self.id).await
    }

    /// Waits for the turn to end and returns its answer. Any other end is an error.
    pub async fn answer(&self) -> Result<String, Error> {
        let org = match self.runtime.access().reach {
            Reach::Org(org) => Some(org),
            Reach::Everything => None,
        };
        let at = At { org, session: Some(self.session), turn: Some(self.id), ..At::default() };
        self.outcome().await?.answer().map_err(|error| error.at(at))
    }

    /// Like [`Turn::answer`], but deserialises the answer into a `T`.
    pub async fn answer_as<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let value = value_of(&self.answer().await?)?;
        T::deserialize(value).map_err(|cause| {
            let detail = format!("the answer fits its schema, but not the type: {cause}");
            Error::new(Kind::OutputInvalid, detail)
        })
    }

    /// Asks the turn to stop.
    pub async fn cancel(&self, reason: &str) -> Result<Cancelled, Error> {
        self.runtime.cancel(self.id, reason).await
    }

    /// Asks the turn to stop and to undo its calls, newest first. Only calls whose tools name a compensating call are
    /// undone.
    pub async fn abort(&self, reason: &str) -> Result<Cancelled, Error> {
        self.runtime.abort(self.id, reason).await
    }
}
