//! A session as a program holds it, and a turn on its way to its end.
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

/// Takes inputs for one session, on one of its heads.
#[derive(Clone)]
pub struct Session {
    runtime: Runtime,
    target: Target,
    head: String,
    agent: Option<String>,
    overlays: Vec<Overlay>,
    /// Which session it is, once an input was accepted: a new session is new only once.
    opened: Arc<OnceLock<SessionId>>,
}

impl Session {
    pub(crate) fn new(runtime: Runtime, target: Target) -> Self {
        let (agent, overlays, opened) = (None, Vec::new(), Arc::default());
        Self { runtime, target, head: MAIN.to_owned(), agent, overlays, opened }
    }

    /// The same session, with its inputs on another head. A fork within the session makes one; an input for a head that
    /// is not there is refused.
    #[must_use]
    pub fn on_head(&self, name: impl Into<String>) -> Self {
        Self { head: name.into(), ..self.clone() }
    }

    /// The same session, with its inputs answered by another agent of this runtime.
    #[must_use]
    pub fn answered_by(&self, agent: impl Into<String>) -> Self {
        Self { agent: Some(agent.into()), ..self.clone() }
    }

    /// The same session, with a layer over the agent for every input that is sent through this handle. Each turn keeps what
    /// was folded for it.
    #[must_use]
    pub fn with(&self, overlay: Overlay) -> Self {
        let mut session = self.clone();
        session.overlays.push(overlay);
        session
    }

    /// Sends a text.
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

    /// Sends a text under an idempotency key: sending it again gives the same turn.
    pub fn send_once(&self, key: impl Into<String>, text: impl Into<String>) -> Sending {
        Sending { key: Some(key.into()), ..self.send(text) }
    }

    /// Sends a text that joins the turn under way at its next checkpoint, or starts a turn if there is none.
    pub fn steer(&self, text: impl Into<String>) -> Sending {
        Sending { delivery: Delivery::Join, ..self.send(text) }
    }

    /// Asks for an answer of type `T` and waits for it. The model is shown the type's JSON Schema; an answer that does not
    /// fit is sent back to it with every error (R4.9).
    pub async fn ask<T: DeserializeOwned + JsonSchema>(&self, text: impl Into<String>) -> Result<T, Error> {
        self.send(text).fitting(schema_of::<T>()).await?.answer_as().await
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Which head an input is for.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// Which session an input is for.
    pub(crate) fn target(&self) -> Target {
        self.opened.get().map_or_else(|| self.target.clone(), |id| Target::Id(*id))
    }

    /// The turn that an accepted input is. From here on it is known which session this is.
    pub(crate) fn turn(self, accepted: &Accepted) -> Turn {
        let Accepted { session, turn, duplicate, place, .. } = *accepted;
        self.opened.get_or_init(|| session);
        Turn { runtime: self.runtime, session, id: turn, duplicate, place }
    }
}

/// One input on its way to its end.
pub struct Turn {
    runtime: Runtime,
    session: SessionId,
    id: TurnId,
    duplicate: bool,
    place: Place,
}

impl Turn {
    /// The turn with this id; its input is a duplicate of itself.
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

    /// The turn's id.
    pub fn id(&self) -> TurnId {
        self.id
    }

    /// The session it belongs to.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Whether the input had been accepted before under the same key.
    pub fn duplicate(&self) -> bool {
        self.duplicate
    }

    /// Where the input stands in the journal: the receipt.
    pub fn receipt(&self) -> Place {
        self.place
    }

    /// The session's events from this input on. What the model said before this was called is in its record, but not
    /// told word by word; for that see [`Sending::watched`].
    pub fn events(&self) -> Events {
        self.runtime.events(self.session, Seq(self.place.seq.0.saturating_sub(1)))
    }

    /// How the turn ended; waits until it has.
    pub async fn outcome(&self) -> Result<End, Error> {
        self.runtime.outcome(self.id).await
    }

    /// The answer; every other end is an error.
    pub async fn answer(&self) -> Result<String, Error> {
        let org = match self.runtime.access().reach {
            Reach::Org(org) => Some(org),
            Reach::Everything => None,
        };
        let at = At { org, session: Some(self.session), turn: Some(self.id), ..At::default() };
        self.outcome().await?.answer().map_err(|error| error.at(at))
    }

    /// The answer as a `T`; every other end is an error.
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

    /// Asks the turn to stop and what it did to be taken back, the newest first, as far as its tools name what takes a call
    /// back.
    pub async fn abort(&self, reason: &str) -> Result<Cancelled, Error> {
        self.runtime.abort(self.id, reason).await
    }
}
