//! Shares one reader of a session among all its event streams, so that each event is read and encoded once.
//!
//! A buffer holds recent events for readers that are slightly behind. A reader that falls further behind
//! continues from the store, and learns how many live frames it missed. Readers are woken in small groups, so
//! that a turn in this process waits for one group at most, not for all readers.
use crate::event_reader::EncodedEvent;
use outlast_runtime::Runtime;
use outlast_runtime::delivery::events::SessionEventStream;
use outlast_vocab::access::Access;
use outlast_vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::{Error, Failure, OrgId, ReplayKey, SessionId, TurnId};
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The number of readers that are woken together.
const GROUP_SIZE: usize = 32;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions with open streams.
#[derive(Clone, Default)]
pub(crate) struct SessionBroadcasts(Arc<Mutex<HashMap<BroadcastKey, Weak<SessionBroadcast>>>>);

/// A session and its organisation. An imported session may have belonged to another organisation before.
type BroadcastKey = (OrgId, SessionId);

/// A session with open streams. Its reader stops with the last stream.
struct SessionBroadcast {
    broadcast_key: BroadcastKey,
    relays: SessionBroadcasts,
    log: Arc<Mutex<EventBuffer>>,
    reader: AbortHandle,
    /// The number of events that its readers received in total.
    delivered: AtomicUsize,
}

/// The buffer of recent events, and the groups of readers to wake.
struct EventBuffer {
    buffered: VecDeque<Arc<EncodedEvent>>,
    /// The number of the first buffered event.
    first: u64,
    /// The number of live frames that were removed from the buffer.
    frames: u64,
    bytes: usize,
    most: BufferLimits,
    reply: Option<LiveReply>,
    groups: Vec<watch::Sender<()>>,
    /// Why reading stopped.
    end_reason: Option<Failure>,
}

/// The limits of the buffer.
#[derive(Clone, Copy)]
struct BufferLimits {
    events: usize,
    bytes: usize,
}

/// The partial reply of the model, for readers that join now.
struct LiveReply {
    turn: TurnId,
    key: ReplayKey,
    attempt: u32,
    text: String,
}

/// A reader of a relay. Dropping it unsubscribes.
pub(crate) struct Subscription {
    relay: Arc<SessionBroadcast>,
    wakeups: watch::Receiver<()>,
    /// The number of the next event for this reader, and of the live frames before it.
    next: u64,
    frames: u64,
    /// The partial reply at the time of subscribing.
    initial_reply: Option<Arc<EncodedEvent>>,
}

/// What a reader receives.
pub(crate) enum BroadcastEvent {
    /// An event.
    Encoded(Arc<EncodedEvent>),
    /// The reader was too slow and continues from the store. It missed this many live frames.
    Lagged(u64),
}

impl SessionBroadcasts {
    /// Subscribes to everything that happens in a session after this call, and to records after `last`.
    pub(crate) fn join(
        &self,
        runtime: &Runtime,
        limits: &ServerLimits,
        key: BroadcastKey,
        last: Seq,
    ) -> Subscription {
        let mut relays = lock(&self.0);
        let found = relays.get(&key).and_then(Weak::upgrade);
        let there = found.clone().filter(|relay| !lock(&relay.log).is_over());
        let relay = there.unwrap_or_else(|| {
            let most = BufferLimits { events: runtime.limits().live_frames, bytes: limits.relay_bytes };
            let log = Arc::new(Mutex::new(EventBuffer::new(most)));
            let (org, session) = key;
            let events = runtime.serving(Access::to(org)).events(session, last);
            let reader = tokio::spawn(read_session(events, session, log.clone()));
            let relays = self.clone();
            Arc::new(SessionBroadcast {
                broadcast_key: key,
                relays,
                log,
                reader: reader.abort_handle(),
                delivered: AtomicUsize::new(0),
            })
        });
        relays.insert(key, Arc::downgrade(&relay));
        drop(relays);
        // This may be the last handle of a relay that has stopped. Its `drop` locks the table, so release the
        // lock first.
        drop(found);
        Subscription::to(&relay)
    }
}

impl SessionBroadcast {
    /// Yields the thread after every few events. Otherwise the scheduler may leave a core to a thread that is
    /// never idle for milliseconds, and a turn would have to wait.
    fn yield_thread(&self) {
        if self.delivered.fetch_add(1, Ordering::Relaxed).is_multiple_of(GROUP_SIZE) {
            std::thread::yield_now();
        }
    }
}

impl Drop for SessionBroadcast {
    fn drop(&mut self) {
        self.reader.abort();
        let mut relays = lock(&self.relays.0);
        // A new relay may have replaced this one.
        if relays.get(&self.broadcast_key).is_some_and(|relay| relay.strong_count() == 0) {
            relays.remove(&self.broadcast_key);
        }
    }
}

/// Reads a session and wakes its readers group by group. Other tasks can run between two groups.
async fn read_session(mut events: SessionEventStream, session: SessionId, log: Arc<Mutex<EventBuffer>>) {
    let (mut group, mut due) = (0, 0);
    loop {
        let event = {
            let mut next = pin!(events.next());
            loop {
                tokio::select! {
                    biased;
                    event = &mut next => break event,
                    () = tokio::task::yield_now(), if due > 0 => due -= lock(&log).wake(&mut group, due),
                }
            }
        };
        let mut log = lock(&log);
        match event {
            Ok(event) => log.push(session, &event),
            Err(error) => {
                tracing::info!(%error, %session, "the streams of a session end");
                return log.end(&error);
            }
        }
        due = log.groups.len();
        due -= log.wake(&mut group, due);
    }
}

impl EventBuffer {
    fn new(most: BufferLimits) -> Self {
        let (buffered, groups) = (VecDeque::new(), Vec::new());
        Self { buffered, first: 0, frames: 0, bytes: 0, most, reply: None, groups, end_reason: None }
    }

    fn is_over(&self) -> bool {
        self.end_reason.is_some()
    }

    fn push(&mut self, session: SessionId, event: &Event) {
        self.track_reply(event);
        let encoded = EncodedEvent::encode(session, event);
        self.bytes += encoded.bytes.len();
        self.buffered.push_back(Arc::new(encoded));
        let over = |log: &Self| log.buffered.len() > log.most.events || log.bytes > log.most.bytes;
        // The newest event stays, whatever its size, so that not every reader has to fetch it from the store.
        while self.buffered.len() > 1
            && over(self)
            && let Some(oldest) = self.buffered.pop_front()
        {
            self.first += 1;
            self.frames += u64::from(oldest.is_live());
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Tracks the partial reply of the model.
    fn track_reply(&mut self, event: &Event) {
        match event {
            Event::Live(LiveEvent { turn, what: LiveEventKind::Text { key, attempt, offset, text } }) => {
                match &mut self.reply {
                    Some(said)
                        if (said.turn, &said.key, said.attempt, said.text.len())
                            == (*turn, key, *attempt, *offset) =>
                    {
                        said.text.push_str(text);
                    }
                    // After a gap, the start of the reply is unknown.
                    said => {
                        let (turn, key, attempt, text) = (*turn, key.clone(), *attempt, text.clone());
                        *said = (*offset == 0).then_some(LiveReply { turn, key, attempt, text });
                    }
                }
            }
            Event::Live(LiveEvent { what: LiveEventKind::Retracted { .. }, .. }) => self.reply = None,
            Event::Durable(record) => {
                let is_over = |said: &mut LiveReply| match &record.fact {
                    Fact::Performed(performed) => performed.key == said.key,
                    // When the turn continues, the model starts the reply again.
                    Fact::Ended { .. } | Fact::Parked { .. } | Fact::Resumed(_) => {
                        record.turn == Some(said.turn)
                    }
                    _ => false,
                };
                self.reply.take_if(is_over);
            }
            Event::Live(_) | Event::Missed { .. } => {}
        }
    }

    /// Wakes the next group. Returns the number of groups that are now done.
    fn wake(&mut self, group: &mut usize, due: usize) -> usize {
        let Some(awake) = self.groups.get(*group % self.groups.len().max(1)).filter(|_| due > 0) else {
            return due;
        };
        awake.send_replace(());
        *group = group.wrapping_add(1);
        1
    }

    fn end(&mut self, error: &Error) {
        self.end_reason = Some(Failure::from(error));
        for group in &self.groups {
            group.send_replace(());
        }
    }

    /// Joins a group that is not full, or creates one.
    fn join_group(&mut self) -> watch::Receiver<()> {
        if let Some(group) = self.groups.iter().find(|group| group.receiver_count() < GROUP_SIZE) {
            return group.subscribe();
        }
        let (group, news) = watch::channel(());
        self.groups.push(group);
        news
    }
}

impl Subscription {
    fn to(relay: &Arc<SessionBroadcast>) -> Self {
        let mut log = lock(&relay.log);
        let buffered = u64::try_from(log.buffered.len()).unwrap_or(u64::MAX);
        let live: usize = log.buffered.iter().map(|encoded| usize::from(encoded.is_live())).sum();
        let (next, frames) = (log.first + buffered, log.frames + u64::try_from(live).unwrap_or(u64::MAX));
        let initial_reply = log.reply.as_ref().map(|said| {
            let LiveReply { turn, key, attempt, text } = said;
            let what =
                LiveEventKind::Text { key: key.clone(), attempt: *attempt, offset: 0, text: text.clone() };
            Arc::new(EncodedEvent::encode(
                relay.broadcast_key.1,
                &Event::Live(LiveEvent { turn: *turn, what }),
            ))
        });
        let wakeups = log.join_group();
        drop(log);
        Self { relay: relay.clone(), wakeups, next, frames, initial_reply }
    }

    /// Returns the next event. Waits for one if necessary. Cancel safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Result<BroadcastEvent, Error> {
        loop {
            if let Some(received) = self.ready()? {
                self.relay.yield_thread();
                return Ok(received);
            }
            // This cannot fail: `self.relay` owns the log, which owns the sender.
            let _ = self.wakeups.changed().await;
        }
    }

    fn ready(&mut self) -> Result<Option<BroadcastEvent>, Error> {
        if let Some(begun) = self.initial_reply.take() {
            return Ok(Some(BroadcastEvent::Encoded(begun)));
        }
        let log = lock(&self.relay.log);
        let Some(ahead) = self.next.checked_sub(log.first) else {
            let missed = log.frames - self.frames;
            (self.next, self.frames) = (log.first, log.frames);
            return Ok(Some(BroadcastEvent::Lagged(missed)));
        };
        let encoded = usize::try_from(ahead).ok().and_then(|ahead| log.buffered.get(ahead));
        if let Some(encoded) = encoded.cloned() {
            self.next += 1;
            self.frames += u64::from(encoded.is_live());
            return Ok(Some(BroadcastEvent::Encoded(encoded)));
        }
        log.end_reason.clone().map_or(Ok(None), |failure| Err(Error::from(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(what: LiveEventKind) -> Event {
        Event::Live(LiveEvent { turn: TurnId::from_u128(1), what })
    }

    fn said(attempt: u32, offset: usize, text: &str) -> Event {
        let key = ReplayKey::turn(0).model(0);
        live(LiveEventKind::Text { key, attempt, offset, text: text.into() })
    }

    fn ended() -> Event {
        durable(Fact::Ended { end: outlast_vocab::record::TurnEnd::Answered { text: "done".into() } })
    }

    fn durable(fact: Fact) -> Event {
        let (turn, at) = (Some(TurnId::from_u128(1)), outlast_vocab::Millis(1));
        let record =
            outlast_vocab::record::Record { seq: Seq(7), turn, at, hash: outlast_vocab::Hash::ZERO, fact };
        Event::Durable(Box::new(record))
    }

    /// A relay whose events come from the test.
    fn relay(most: BufferLimits) -> Arc<SessionBroadcast> {
        let (whose, log) =
            ((OrgId::from_u128(0), SessionId::from_u128(1)), Arc::new(Mutex::new(EventBuffer::new(most))));
        let reader = tokio::spawn(std::future::pending::<()>()).abort_handle();
        Arc::new(SessionBroadcast {
            broadcast_key: whose,
            relays: SessionBroadcasts::default(),
            log,
            reader,
            delivered: AtomicUsize::new(0),
        })
    }

    fn tell(relay: &Arc<SessionBroadcast>, event: &Event) {
        lock(&relay.log).push(relay.broadcast_key.1, event);
    }

    fn hear(reader: &mut Subscription) -> Vec<String> {
        let encoded = std::iter::from_fn(|| reader.ready().unwrap());
        let words = encoded.map(|received| match received {
            BroadcastEvent::Lagged(frames) => format!("behind {frames}"),
            BroadcastEvent::Encoded(encoded) => {
                let bytes = String::from_utf8(encoded.bytes.to_vec()).unwrap();
                let data = bytes.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                let frame: serde_json::Value = serde_json::from_str(data).unwrap();
                let data = &frame["data"];
                match data["text"].as_str() {
                    Some(text) => format!("{}+{}: {text}", data["attempt"], data["offset"]),
                    None => frame["type"].as_str().unwrap().to_owned(),
                }
            }
        });
        words.collect()
    }

    const ROOMY: BufferLimits = BufferLimits { events: 100, bytes: 1 << 20 };

    #[tokio::test]
    async fn late_subscriber_gets_the_whole_reply_without_gaps() {
        let relay = relay(ROOMY);
        for event in [said(1, 0, "void"), said(2, 0, "one "), said(2, 4, "two ")] {
            tell(&relay, &event);
        }
        let mut late = Subscription::to(&relay);
        tell(&relay, &said(2, 8, "three"));
        assert_eq!(hear(&mut late), ["2+0: one two ", "2+8: three"]);
        let (worker, since) = (outlast_vocab::WorkerId::from_u128(2), outlast_vocab::Millis(1));
        let resumed = Fact::Resumed(outlast_vocab::record::TurnResumed { worker, lease: 2, since });
        let retracted = live(LiveEventKind::Retracted { key: ReplayKey::turn(0).model(0), attempt: 2 });
        for over in [ended(), durable(resumed), retracted] {
            tell(&relay, &said(2, 0, "again"));
            tell(&relay, &over);
            assert_eq!(hear(&mut Subscription::to(&relay)), Vec::<String>::new());
        }
    }

    #[tokio::test]
    async fn subscriber_after_a_gap_gets_no_partial_reply() {
        let relay = relay(ROOMY);
        tell(&relay, &said(1, 0, "one "));
        tell(&relay, &said(1, 8, "three "));
        assert_eq!(hear(&mut Subscription::to(&relay)), Vec::<String>::new());
        tell(&relay, &said(2, 0, "one "));
        assert_eq!(hear(&mut Subscription::to(&relay)), ["2+0: one "]);
    }

    #[tokio::test]
    async fn slow_subscriber_gets_lost_count_from_bounded_buffer() {
        for most in [BufferLimits { events: 2, ..ROOMY }, BufferLimits { bytes: 600, ..ROOMY }] {
            let relay = relay(most);
            let (mut slow, mut quick) = (Subscription::to(&relay), Subscription::to(&relay));
            let mut received = Vec::new();
            for n in 0..1_000 {
                tell(&relay, &said(1, n, "x"));
                tell(&relay, &ended());
                received.extend(hear(&mut quick));
            }
            assert_eq!(received.len(), 2_000);
            let buffered = lock(&relay.log).buffered.len();
            let bytes = lock(&relay.log).bytes;
            assert_eq!((bytes <= 600, buffered), (true, 2), "{bytes} bytes");
            assert_eq!(hear(&mut slow), ["behind 999", "1+999: x", "turn.ended"]);
        }
    }

    #[tokio::test]
    async fn oversized_event_is_delivered_once_to_every_subscriber() {
        let relay = relay(BufferLimits { bytes: 10, ..ROOMY });
        let mut reader = Subscription::to(&relay);
        tell(&relay, &ended());
        assert_eq!(hear(&mut reader), ["turn.ended"]);
    }

    #[tokio::test]
    async fn subscribers_are_woken_in_groups_without_omission() {
        let relay = relay(ROOMY);
        let readers: Vec<_> = (0..3 * GROUP_SIZE).map(|_| Subscription::to(&relay)).collect();
        let awake = || readers.iter().filter(|reader| reader.wakeups.has_changed().unwrap()).count();
        let (mut group, mut due) = (0, 3);
        for woken in 1..=3 {
            due -= lock(&relay.log).wake(&mut group, due);
            assert_eq!((awake(), due), (woken * GROUP_SIZE, 3 - woken));
        }
        drop(readers);
        // A new reader takes a free place in an existing group.
        let _reader = Subscription::to(&relay);
        assert_eq!(lock(&relay.log).groups.len(), 3);
    }

    #[tokio::test]
    async fn final_error_arrives_after_earlier_events() {
        let relay = relay(ROOMY);
        let mut reader = Subscription::to(&relay);
        tell(&relay, &said(1, 0, "x"));
        lock(&relay.log).end(&Error::new(outlast_vocab::Kind::SessionNotFound, "gone"));
        assert!(matches!(reader.next().await, Ok(BroadcastEvent::Encoded(_))));
        let over = reader.next().await.err().map(|error| error.kind());
        assert_eq!(over, Some(outlast_vocab::Kind::SessionNotFound));
    }
}
