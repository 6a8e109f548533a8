//! Follows one session or all of them, and lets through what a reader asked for.
use outlast_ports::store::FeedRecord;
use outlast_runtime::Runtime;
use outlast_runtime::events::Events;
use outlast_runtime::feed::Feed;
use outlast_runtime::outfits;
use outlast_vocab::event::Event;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Kind, Millis, SessionId, TurnId};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Agents of turns that a reader remembers.
const REMEMBERED: usize = 1_024;

/// An event. Readers ignore what they do not know.
#[derive(Serialize, ToSchema)]
pub(crate) struct Frame {
    /// The form of this frame.
    v: u8,
    /// The session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The number of its record in the session, without gaps; what happens right now has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    seq: Option<Seq>,
    /// The turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    turn: Option<TurnId>,
    /// When it became durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    at: Option<Millis>,
    /// What it is: `turn.accepted`, `effect.performed`, …; `live` for what happens right now; `missed` if the reader was too
    /// slow for that.
    #[serde(rename = "type")]
    name: String,
    /// Its content.
    #[schema(value_type = Object)]
    data: Value,
}

impl Frame {
    pub(crate) fn new(session: SessionId, event: &Event) -> Self {
        let outlast_vocab::event::Frame { v, session, seq, turn, at, name, data } = event.frame(session);
        Self { v, session, seq, turn, at, name: name.to_owned(), data }
    }

    /// What it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// What is followed.
pub(crate) enum Followed {
    /// One session, with what happens right now.
    Session(SessionId, Box<Events>),
    /// All that are shown.
    All(Box<Feed>),
}

/// An event, with the cursor that a reader goes on from.
pub(crate) struct Seen {
    pub(crate) cursor: Option<u64>,
    pub(crate) session: SessionId,
    pub(crate) event: Event,
}

impl From<FeedRecord> for Seen {
    fn from(FeedRecord { cursor, session, record }: FeedRecord) -> Self {
        Self { cursor: Some(cursor.0), session, event: Event::Durable(Box::new(record)) }
    }
}

impl Followed {
    /// The next event; waits for one. Giving up on it loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Seen, Error> {
        match self {
            Self::Session(session, events) => events.next().await.map(|event| seen(*session, event)),
            Self::All(feed) => feed.next().await.map(Seen::from),
        }
    }

    /// The next event that is there already.
    pub(crate) async fn past(&mut self) -> Result<Option<Seen>, Error> {
        match self {
            Self::Session(session, events) => Ok(events.past().await?.map(|event| seen(*session, event))),
            Self::All(feed) => Ok(feed.past().await?.map(Seen::from)),
        }
    }
}

fn seen(session: SessionId, event: Event) -> Seen {
    Seen { cursor: event.seq().map(|Seq(seq)| seq), session, event }
}

/// Which events a reader asked for.
pub(crate) struct Filter {
    pub(crate) session: Option<SessionId>,
    pub(crate) turn: Option<TurnId>,
    pub(crate) agent: Option<String>,
    /// Names of types; `*` at an end stands for anything.
    pub(crate) types: Vec<String>,
    pub(crate) live: bool,
    /// The agents of turns that were looked up.
    pub(crate) agents: BTreeMap<TurnId, Option<String>>,
}

impl Filter {
    /// The frame of an event, if it was asked for.
    pub(crate) async fn frame(&mut self, runtime: &Runtime, seen: &Seen) -> Result<Option<Frame>, Error> {
        let durable = matches!(seen.event, Event::Durable(_));
        if (!durable && !self.live) || self.session.is_some_and(|session| session != seen.session) {
            return Ok(None);
        }
        let frame = Frame::new(seen.session, &seen.event);
        let missed = matches!(seen.event, Event::Missed { .. });
        if missed {
            return Ok(Some(frame));
        }
        if self.turn.is_some() && self.turn != frame.turn || !self.names(frame.name()) {
            return Ok(None);
        }
        let Some(agent) = self.agent.clone() else { return Ok(Some(frame)) };
        let Some(turn) = frame.turn else { return Ok(None) };
        let answers = self.agent_of(runtime, turn).await?.is_some_and(|of| of == agent);
        Ok(answers.then_some(frame))
    }

    fn names(&self, name: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begins) => name.starts_with(begins),
            None => name == pattern,
        };
        self.types.is_empty() || self.types.iter().any(fits)
    }

    async fn agent_of(&mut self, runtime: &Runtime, turn: TurnId) -> Result<Option<String>, Error> {
        if let Some(known) = self.agents.get(&turn) {
            return Ok(known.clone());
        }
        let pinned = match outfits::of_turn(runtime.store().as_ref(), turn).await {
            // Its session was deleted after this became durable.
            Err(error) if error.kind() == Kind::TurnNotFound => None,
            found => found?,
        };
        let agent = pinned.map(|pinned| pinned.package.agent);
        if self.agents.len() >= REMEMBERED {
            self.agents.clear();
        }
        self.agents.insert(turn, agent.clone());
        Ok(agent)
    }
}
