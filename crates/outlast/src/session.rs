//! Handles for sessions and turns.
use crate::InputBuilder;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::inbox::{AcceptReceipt, SessionTarget};
use outlast_ports::tool::schema_of;
use outlast_runtime::Runtime;
use outlast_runtime::delivery::events::SessionEventStream;
use outlast_runtime::turn::output_schema::value_of;
use outlast_views::CancelOutcome;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::record::{InputDelivery, Seq, TurnEnd};
use outlast_vocab::{Error, ErrorPlace, Kind, SessionId, TurnId};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::sync::{Arc, OnceLock};

/// A handle to one session, which sends inputs to one of its heads.
///
/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().builtin_tools().start().await?;
/// let session = outlast.session("ann");
/// let turn = session.send("add 2 and 3").await?;
/// assert_eq!(turn.answer().await?, "2 + 3 is 5.");
///
/// // An idempotency key makes it safe to send again after a lost response.
/// let first = session.send_once("order-17", "add 3 and 4").await?;
/// let second = session.send_once("order-17", "add 3 and 4").await?;
/// assert!(second.duplicate() && first.id() == second.id());
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    runtime: Runtime,
    target: SessionTarget,
    head: String,
    agent: Option<String>,
    overlays: Vec<Overlay>,
    /// The session's id, once an input was accepted. Later inputs then go to the same session instead of a new one.
    id: Arc<OnceLock<SessionId>>,
}

impl Session {
    pub(crate) fn new(runtime: Runtime, target: SessionTarget) -> Self {
        let (agent, overlays, id) = (None, Vec::new(), Arc::default());
        Self { runtime, target, head: MAIN_HEAD.to_owned(), agent, overlays, id }
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
    pub fn with_overlay(&self, overlay: Overlay) -> Self {
        let mut session = self.clone();
        session.overlays.push(overlay);
        session
    }

    /// Sends a text. Await the result to submit it.
    pub fn send(&self, text: impl Into<String>) -> InputBuilder {
        InputBuilder {
            session: self.clone(),
            text: text.into(),
            key: None,
            delivery: InputDelivery::Next,
            output: None,
            agent: self.agent.clone(),
            overlays: self.overlays.clone(),
            files: Vec::new(),
            plugins: std::collections::BTreeMap::new(),
            traceparent: None,
        }
    }

    /// Sends a text under an idempotency key. Sending it again returns the same turn.
    pub fn send_once(&self, key: impl Into<String>, text: impl Into<String>) -> InputBuilder {
        InputBuilder { key: Some(key.into()), ..self.send(text) }
    }

    /// Sends a text that joins the running turn at its next checkpoint. If no turn is running, it starts one.
    pub fn steer(&self, text: impl Into<String>) -> InputBuilder {
        InputBuilder { delivery: InputDelivery::Join, ..self.send(text) }
    }

    /// Asks for an answer of type `T` and waits for it.
    ///
    /// The model receives the JSON Schema of the type. If the answer does not match, the model gets all errors and
    /// tries again.
    pub async fn ask<T: DeserializeOwned + JsonSchema>(&self, text: impl Into<String>) -> Result<T, Error> {
        self.send(text).answer_schema(schema_of::<T>()).await?.answer_as().await
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the head that inputs are sent to.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// Returns the session that inputs are sent to.
    pub(crate) fn target(&self) -> SessionTarget {
        self.id.get().map_or_else(|| self.target.clone(), |id| SessionTarget::Id(*id))
    }

    /// Returns the turn of an accepted input, and remembers the session's id for later inputs.
    pub(crate) fn turn(self, accepted: &AcceptReceipt) -> Turn {
        let AcceptReceipt { session, turn, duplicate, place, .. } = *accepted;
        self.id.get_or_init(|| session);
        Turn { runtime: self.runtime, session, id: turn, duplicate, place }
    }
}

/// A handle to one turn: an accepted input and the work on its answer.
///
/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::vocab::record::TurnEnd;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().builtin_tools().start().await?;
/// let turn = outlast.session("ann").send("add 2 and 3").await?;
/// match turn.outcome().await? {
///     TurnEnd::Answered { .. } => assert_eq!(turn.answer().await?, "2 + 3 is 5."),
///     end => panic!("the turn ended as {}", end.name()),
/// }
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub struct Turn {
    runtime: Runtime,
    session: SessionId,
    id: TurnId,
    duplicate: bool,
    place: JournalPosition,
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
    pub fn receipt(&self) -> JournalPosition {
        self.place
    }

    /// Returns the session's events, starting with this input.
    ///
    /// Model output from before this call appears as a record, not as streamed text. To stream all of it, use
    /// [`InputBuilder::watched`].
    pub fn events(&self) -> SessionEventStream {
        self.runtime.events(self.session, Seq(self.place.seq.0.saturating_sub(1)))
    }

    /// Waits until the turn ends and returns how it ended.
    pub async fn outcome(&self) -> Result<TurnEnd, Error> {
        self.runtime.outcome(self.id).await
    }

    /// Waits for the turn to end and returns its answer. Any other end is an error.
    pub async fn answer(&self) -> Result<String, Error> {
        let org = match self.runtime.access().visibility {
            OrgVisibility::Org(org) => Some(org),
            OrgVisibility::Everything => None,
        };
        let at =
            ErrorPlace { org, session: Some(self.session), turn: Some(self.id), ..ErrorPlace::default() };
        self.outcome().await?.answer().map_err(|error| error.at(at))
    }

    /// Like [`Turn::answer`], but deserialises the answer into a `T`.
    pub async fn answer_as<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let value = value_of(&self.answer().await?)?;
        T::deserialize(value).map_err(|cause| {
            let detail = format!("the answer matches its schema, but not the type: {cause}");
            Error::new(Kind::OutputInvalid, detail)
        })
    }

    /// Asks the turn to stop.
    pub async fn cancel(&self, reason: &str) -> Result<CancelOutcome, Error> {
        self.runtime.cancel(self.id, reason).await
    }

    /// Asks the turn to stop and to undo its calls, newest first. Only calls whose tools name a compensating call are
    /// undone.
    pub async fn abort(&self, reason: &str) -> Result<CancelOutcome, Error> {
        self.runtime.abort(self.id, reason).await
    }
}
