//! Reads the events of one session or of all sessions, and filters them for a reader.
use crate::session_broadcast::{BroadcastEvent, Subscription};
use bytes::Bytes;
use outlast_api::events::EventResource;
use outlast_ports::journal::FeedRecord;
use outlast_ports::store::Store;
use outlast_runtime::Runtime;
use outlast_runtime::agents::agent_registry;
use outlast_runtime::delivery::events::SessionEventStream;
use outlast_runtime::delivery::feed::RecordFeed;
use outlast_vocab::event::Event;
use outlast_vocab::record::{Record, Seq};
use outlast_vocab::{Error, Kind, SessionId, TurnId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The number of turns whose agent a reader caches.
const CACHED_TURNS: usize = 1_024;

/// The properties of an event that a filter checks.
#[derive(Clone, Copy)]
pub(crate) struct EventProperties {
    session: SessionId,
    turn: Option<TurnId>,
    name: &'static str,
    delivery: EventDelivery,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EventDelivery {
    Durable,
    Live,
    Missed,
}

impl EventProperties {
    fn of(session: SessionId, event: &Event) -> Self {
        let (turn, delivery) = match event {
            Event::Durable(record) => (record.turn, EventDelivery::Durable),
            Event::Live(live) => (Some(live.turn), EventDelivery::Live),
            Event::Missed { .. } => (None, EventDelivery::Missed),
        };
        Self { session, turn, name: event.name(), delivery }
    }
}

/// An event encoded for an SSE stream, shared by any number of readers.
pub(crate) struct EncodedEvent {
    pub(crate) cursor: Option<u64>,
    pub(crate) properties: EventProperties,
    pub(crate) bytes: Bytes,
}

impl EncodedEvent {
    /// Encodes an event of a session. Its cursor is the sequence number in the session.
    pub(crate) fn encode(session: SessionId, event: &Event) -> Self {
        Self::encode_at(event.seq().map(|Seq(seq)| seq), session, event)
    }

    /// Encodes an event with the cursor from which a reader can resume.
    fn encode_at(cursor: Option<u64>, session: SessionId, event: &Event) -> Self {
        let frame = EventResource::from(event.frame(session));
        let id = cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
        // Serialised JSON contains no line breaks.
        let data = serde_json::to_string(&frame).unwrap_or_default();
        let bytes = Bytes::from(format!("{id}event: {}\ndata: {data}\n\n", frame.name));
        Self { cursor, properties: EventProperties::of(session, event), bytes }
    }

    /// Returns whether this is a live event.
    pub(crate) fn is_live(&self) -> bool {
        self.properties.delivery == EventDelivery::Live
    }
}

/// The source of a stream.
pub(crate) enum StreamSource {
    /// One session, including live events.
    Session(Box<SessionReader>),
    /// All sessions that the caller may see.
    All(Box<RecordFeed>),
}

impl StreamSource {
    /// Returns the next event. Waits for one if necessary. Cancel safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Result<Arc<EncodedEvent>, Error> {
        match self {
            Self::Session(joined) => joined.next().await,
            Self::All(feed) => {
                let FeedRecord { cursor, session, record } = feed.next().await?;
                Ok(Arc::new(EncodedEvent::encode_at(
                    Some(cursor.0),
                    session,
                    &Event::Durable(Box::new(record)),
                )))
            }
        }
    }
}

/// A reader of one session that starts at any record and shares new events with other readers.
pub(crate) struct SessionReader {
    store: Arc<dyn Store>,
    session: SessionId,
    after: Seq,
    page: usize,
    ready: VecDeque<Record>,
    /// Whether the store may contain records that precede the next shared event.
    may_have_records: bool,
    broadcast: Subscription,
}

impl SessionReader {
    /// Starts reading after a cursor. Subscribes to the shared events first, so that no event is missed.
    pub(crate) fn new(
        runtime: &Runtime,
        session: SessionId,
        after: Seq,
        join: impl FnOnce() -> Subscription,
    ) -> Self {
        let (broadcast, page) = (join(), runtime.limits().page_rows);
        let store = runtime.store().clone();
        Self { store, session, after, page, ready: VecDeque::new(), may_have_records: true, broadcast }
    }

    async fn next(&mut self) -> Result<Arc<EncodedEvent>, Error> {
        loop {
            if let Some(record) = self.next_stored().await? {
                self.after = record.seq;
                return Ok(Arc::new(EncodedEvent::encode(self.session, &Event::Durable(Box::new(record)))));
            }
            match self.broadcast.next().await? {
                BroadcastEvent::Encoded(encoded) => match encoded.cursor {
                    None => return Ok(encoded),
                    Some(seq) if seq <= self.after.0 => {}
                    Some(seq) if seq == self.after.0 + 1 => {
                        self.after = Seq(seq);
                        return Ok(encoded);
                    }
                    // There is a gap between the cursor and the shared event. Read it from the store.
                    Some(_) => self.may_have_records = true,
                },
                BroadcastEvent::Lagged(frames) => {
                    self.may_have_records = true;
                    if frames > 0 {
                        return Ok(Arc::new(EncodedEvent::encode(self.session, &Event::Missed { frames })));
                    }
                }
            }
        }
    }

    /// Returns the next record that is already in the store.
    async fn next_stored(&mut self) -> Result<Option<Record>, Error> {
        if self.ready.is_empty() && self.may_have_records {
            let page = self.store.records(self.session, self.after, self.page).await?;
            self.may_have_records = page.len() == self.page;
            self.ready.extend(page);
        }
        Ok(self.ready.pop_front())
    }
}

/// The source of a page.
pub(crate) enum PageSource {
    /// One session.
    Session(SessionId, Box<SessionEventStream>),
    /// All sessions that the caller may see.
    All(Box<RecordFeed>),
}

/// An event, with the cursor from which a reader can resume.
pub(crate) struct PagedEvent {
    pub(crate) cursor: Option<u64>,
    session: SessionId,
    event: Event,
}

impl From<FeedRecord> for PagedEvent {
    fn from(FeedRecord { cursor, session, record }: FeedRecord) -> Self {
        Self { cursor: Some(cursor.0), session, event: Event::Durable(Box::new(record)) }
    }
}

impl PagedEvent {
    /// Returns the properties that a filter checks.
    pub(crate) fn properties(&self) -> EventProperties {
        EventProperties::of(self.session, &self.event)
    }

    /// Returns the event in the form that a page contains.
    pub(crate) fn frame(&self) -> EventResource {
        self.event.frame(self.session).into()
    }
}

impl PageSource {
    /// Returns the next event. Waits for one if necessary. Cancel safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Result<PagedEvent, Error> {
        match self {
            Self::Session(session, events) => events.next().await.map(|event| paged_event(*session, event)),
            Self::All(feed) => feed.next().await.map(PagedEvent::from),
        }
    }

    /// Returns the next event that is already in the store.
    pub(crate) async fn next_stored(&mut self) -> Result<Option<PagedEvent>, Error> {
        match self {
            Self::Session(session, events) => {
                Ok(events.past().await?.map(|event| paged_event(*session, event)))
            }
            Self::All(feed) => Ok(feed.past().await?.map(PagedEvent::from)),
        }
    }
}

fn paged_event(session: SessionId, event: Event) -> PagedEvent {
    PagedEvent { cursor: event.seq().map(|Seq(seq)| seq), session, event }
}

/// The events that a reader asked for.
pub(crate) struct EventFilter {
    pub(crate) session: Option<SessionId>,
    pub(crate) turn: Option<TurnId>,
    pub(crate) agent: Option<String>,
    /// Names of event types. `*` at the end of a name matches any suffix.
    pub(crate) types: Vec<String>,
    pub(crate) live: bool,
    /// A cache of the agents of turns.
    pub(crate) agents: BTreeMap<TurnId, Option<String>>,
}

impl EventFilter {
    /// Returns whether an event matches.
    pub(crate) async fn matches(&mut self, runtime: &Runtime, sight: EventProperties) -> Result<bool, Error> {
        let EventProperties { session, turn, name, delivery: sort } = sight;
        if (sort != EventDelivery::Durable && !self.live)
            || self.session.is_some_and(|wanted| wanted != session)
        {
            return Ok(false);
        }
        if sort == EventDelivery::Missed {
            return Ok(true);
        }
        if self.turn.is_some() && self.turn != turn || !self.matches_type(name) {
            return Ok(false);
        }
        let Some(agent) = self.agent.clone() else { return Ok(true) };
        let Some(turn) = turn else { return Ok(false) };
        Ok(self.agent_of(runtime, turn).await?.is_some_and(|of| of == agent))
    }

    fn matches_type(&self, name: &str) -> bool {
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
        let pinned = match agent_registry::of_turn(runtime.store().as_ref(), turn).await {
            // The session was deleted after the event became durable.
            Err(error) if error.kind() == Kind::TurnNotFound => None,
            found => found?,
        };
        let agent = pinned.map(|pinned| pinned.package.agent);
        if self.agents.len() >= CACHED_TURNS {
            self.agents.clear();
        }
        self.agents.insert(turn, agent.clone());
        Ok(agent)
    }
}
