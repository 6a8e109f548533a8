//! Live events from a running turn to watchers in the same process.
//!
//! Nothing is stored here, and watchers never slow a turn. A watcher that falls behind loses the oldest
//! frames and learns how many. It reads durable records from the store. A session without watchers costs
//! nothing.
use crate::calls::catalogue::CallingTurn;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::event::{LiveEvent, LiveEventKind};
use outlast_vocab::record::{Seq, TurnEnd};
use outlast_vocab::{OrgId, ReplayKey, SessionId, TurnId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::watch;

/// How many ended turns are remembered for callers who ask just after the end.
const RECENT: usize = 1_024;

/// A notification to a watcher of a session.
#[derive(Clone, Debug)]
pub enum Signal {
    /// There are new records, up to this one.
    Committed(Seq),
    /// A live event.
    Live(LiveEvent),
    /// The watcher was too slow and lost this many live frames.
    Missed(u64),
}

/// The queues of all watched sessions, and the ends of turns that are driven here.
#[derive(Debug)]
pub struct LiveHub {
    queues: Mutex<HashMap<SessionId, Vec<Arc<WatcherQueue>>>>,
    ends: Mutex<TurnEnds>,
    frames: usize,
    /// Replies that are streaming now. Lock this before `queues`.
    streaming: Mutex<HashMap<SessionId, StreamingReply>>,
    /// Counts commits of this process, in any session.
    commits: watch::Sender<u64>,
}

/// The text of a reply that is still streaming.
#[derive(Debug)]
struct StreamingReply {
    turn: TurnId,
    key: ReplayKey,
    attempt: u32,
    text: String,
}

impl StreamingReply {
    /// Returns all text so far, for a watcher who joins late.
    fn frame(&self) -> LiveEvent {
        let Self { turn, key, attempt, text } = self;
        let what = LiveEventKind::Text { key: key.clone(), attempt: *attempt, offset: 0, text: text.clone() };
        LiveEvent { turn: *turn, what }
    }
}

/// The progress of a reply that a model writes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyProgress {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The model call.
    pub key: ReplayKey,
    /// The words so far. Zero while the model reasons, writes a call, or its text is held back.
    pub words: usize,
}

/// A reply that is streaming. Dropping it ends the reply, however it ended.
pub(crate) struct ReplyPublisher<'a> {
    hub: &'a LiveHub,
    caller: CallingTurn,
}

impl ReplyPublisher<'_> {
    /// Registers the reply before its first text.
    pub(crate) fn begin(&self, key: &ReplayKey) {
        let reply =
            StreamingReply { turn: self.caller.turn, key: key.clone(), attempt: 0, text: String::new() };
        lock(&self.hub.streaming).insert(self.caller.session, reply);
    }

    /// Publishes a piece of text, and buffers it for watchers who join late.
    pub(crate) fn publish(&self, key: &ReplayKey, attempt: u32, offset: usize, piece: &str) {
        let mut streaming = lock(&self.hub.streaming);
        let reply = streaming.entry(self.caller.session).or_insert_with(|| StreamingReply {
            turn: self.caller.turn,
            key: key.clone(),
            attempt,
            text: String::new(),
        });
        if reply.attempt != attempt || offset == 0 {
            (reply.attempt, reply.text) = (attempt, String::new());
        }
        reply.text.push_str(piece);
        let text = |key| LiveEventKind::Text { key, attempt, offset, text: piece.to_owned() };
        self.hub.publish_effect(self.caller, key, text);
    }

    /// Discards the text so far.
    pub(crate) fn discard(&self) {
        lock(&self.hub.streaming).remove(&self.caller.session);
    }
}

impl Drop for ReplyPublisher<'_> {
    fn drop(&mut self) {
        self.discard();
    }
}

#[derive(Debug, Default)]
struct TurnEnds {
    driven: HashMap<TurnId, DrivenTurn>,
    recent: VecDeque<(TurnId, OrgId, TurnEnd)>,
}

/// A turn that is driven here, and those who wait for its end.
#[derive(Debug)]
struct DrivenTurn {
    org: OrgId,
    waiting: watch::Sender<Option<TurnEnd>>,
}

/// The queue of one watcher.
#[derive(Debug, Default)]
struct WatcherQueue {
    waiting: Mutex<QueuedSignals>,
    changed: Notify,
}

/// Queued frames and commit notifications, in order of arrival.
#[derive(Debug, Default)]
struct QueuedSignals {
    signals: VecDeque<Signal>,
    frames: usize,
    missed: u64,
}

/// A watcher of a session. Dropping it unsubscribes.
pub struct LiveListener {
    hub: Arc<LiveHub>,
    session: SessionId,
    queue: Arc<WatcherQueue>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveHub {
    /// Creates a hub whose queues hold this many frames per watcher.
    pub fn new(frames: usize) -> Self {
        Self {
            queues: Mutex::default(),
            ends: Mutex::default(),
            frames,
            streaming: Mutex::default(),
            commits: watch::Sender::new(0),
        }
    }

    /// Subscribes to commits of this process. The value is only a counter.
    pub(crate) fn subscribe_commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Notifies the watchers of a session of new records, up to this one.
    pub fn committed(&self, session: SessionId, last: Seq) {
        self.commits.send_modify(|count| *count = count.wrapping_add(1));
        for queue in lock(&self.queues).get(&session).into_iter().flatten() {
            let mut waiting = lock(&queue.waiting);
            match waiting.signals.back_mut() {
                Some(Signal::Committed(seq)) => *seq = last,
                _ => waiting.signals.push_back(Signal::Committed(last)),
            }
            queue.changed.notify_one();
        }
    }

    /// Publishes a live event of a turn to the watchers of its session. `what` is called only if there are any.
    pub(crate) fn publish(
        &self,
        CallingTurn { session, turn }: CallingTurn,
        what: impl FnOnce() -> LiveEventKind,
    ) {
        let queues = lock(&self.queues);
        let Some(queues) = queues.get(&session) else { return };
        let event = LiveEvent { turn, what: what() };
        for queue in queues {
            let mut waiting = lock(&queue.waiting);
            if waiting.frames >= self.frames {
                waiting.drop_oldest();
            }
            waiting.signals.push_back(Signal::Live(event.clone()));
            waiting.frames += 1;
            queue.changed.notify_one();
        }
    }

    /// Publishes a live event of an effect. `what` is called with its key, only if there are watchers.
    pub(crate) fn publish_effect(
        &self,
        caller: CallingTurn,
        key: &ReplayKey,
        what: impl FnOnce(ReplayKey) -> LiveEventKind,
    ) {
        self.publish(caller, || what(key.clone()));
    }

    /// Begins a streamed reply in a session.
    pub(crate) fn reply(&self, caller: CallingTurn) -> ReplyPublisher<'_> {
        ReplyPublisher { hub: self, caller }
    }

    /// Returns the replies that models write now for turns that are driven here, within this visibility.
    pub(crate) fn replies(&self, visibility: OrgVisibility) -> Vec<ReplyProgress> {
        let streaming = lock(&self.streaming);
        let ends = lock(&self.ends);
        let is_visible =
            |turn: &TurnId| ends.driven.get(turn).is_some_and(|driven| visibility.covers(driven.org));
        let visible = streaming.iter().filter(|(_, reply)| is_visible(&reply.turn));
        let progress = visible.map(|(session, reply)| ReplyProgress {
            session: *session,
            turn: reply.turn,
            key: reply.key.clone(),
            words: reply.text.split_whitespace().count(),
        });
        progress.collect()
    }

    /// Registers a turn that is driven here, so that callers can wait for its end.
    pub fn begins(&self, turn: TurnId, org: OrgId) {
        let driven = || DrivenTurn { org, waiting: watch::Sender::new(None) };
        lock(&self.ends).driven.entry(turn).or_insert_with(driven);
    }

    /// Unregisters a turn that is no longer driven here. Another worker may continue it.
    pub fn unregister_turn(&self, turn: TurnId) {
        lock(&self.ends).driven.remove(&turn);
    }

    /// Reports the end of a turn.
    pub fn ended(&self, turn: TurnId, end: &TurnEnd) {
        let mut ends = lock(&self.ends);
        // The organisation is known only for turns driven here. For other turns, callers ask the store.
        let Some(DrivenTurn { org, waiting }) = ends.driven.remove(&turn) else { return };
        waiting.send_replace(Some(end.clone()));
        if ends.recent.len() >= RECENT {
            ends.recent.pop_front();
        }
        ends.recent.push_back((turn, org, end.clone()));
    }

    /// Waits for the end of a turn that is driven here.
    ///
    /// Returns `None` if the turn is not driven here, leaves this worker, or is outside this visibility.
    pub async fn end_of(&self, turn: TurnId, visibility: OrgVisibility) -> Option<TurnEnd> {
        let mut end = {
            let ends = lock(&self.ends);
            if let Some((_, org, end)) = ends.recent.iter().rev().find(|(ended, ..)| *ended == turn) {
                return visibility.covers(*org).then(|| end.clone());
            }
            ends.driven.get(&turn).filter(|driven| visibility.covers(driven.org))?.waiting.subscribe()
        };
        end.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl LiveListener {
    /// Watches a session. If a reply is streaming, its text so far is delivered first.
    pub fn new(hub: &Arc<LiveHub>, session: SessionId) -> Self {
        let queue = Arc::new(WatcherQueue::default());
        {
            let streaming = lock(&hub.streaming);
            if let Some(reply) = streaming.get(&session).filter(|reply| !reply.text.is_empty()) {
                let mut waiting = lock(&queue.waiting);
                waiting.signals.push_back(Signal::Live(reply.frame()));
                waiting.frames += 1;
            }
            lock(&hub.queues).entry(session).or_default().push(queue.clone());
        }
        Self { hub: hub.clone(), session, queue }
    }

    /// Returns the watched session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the next signal, waiting for it if necessary.
    pub async fn next(&self) -> Signal {
        loop {
            if let Some(signal) = self.ready() {
                return signal;
            }
            self.queue.changed.notified().await;
        }
    }

    fn ready(&self) -> Option<Signal> {
        let mut waiting = lock(&self.queue.waiting);
        if waiting.missed > 0 {
            return Some(Signal::Missed(std::mem::take(&mut waiting.missed)));
        }
        let signal = waiting.signals.pop_front();
        if let Some(Signal::Live(_)) = signal {
            waiting.frames -= 1;
        }
        signal
    }
}

impl QueuedSignals {
    /// Drops the oldest frame and merges commit notifications that become adjacent.
    ///
    /// So no two notifications are adjacent, and a queue holds at most one more of them than frames. The
    /// oldest frame is therefore the first or second signal.
    fn drop_oldest(&mut self) {
        let is_live = |signal: Option<&Signal>| matches!(signal, Some(Signal::Live(_)));
        let oldest = usize::from(!is_live(self.signals.front()));
        if !is_live(self.signals.get(oldest)) {
            return;
        }
        self.signals.remove(oldest);
        self.frames -= 1;
        self.missed += 1;
        if oldest == 1 && matches!(self.signals.get(1), Some(Signal::Committed(_))) {
            // The later notification covers the earlier one.
            self.signals.pop_front();
        }
    }
}

impl Drop for LiveListener {
    fn drop(&mut self) {
        let mut queues = lock(&self.hub.queues);
        if let Some(watchers) = queues.get_mut(&self.session) {
            watchers.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
            if watchers.is_empty() {
                queues.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId::from_u128(1);
    const CALLER: CallingTurn = CallingTurn { session: SESSION, turn: TurnId::from_u128(1) };

    fn hub(frames: usize) -> Arc<LiveHub> {
        Arc::new(LiveHub::new(frames))
    }

    fn note(text: &str) -> LiveEventKind {
        LiveEventKind::Progress { key: ReplayKey::turn(0), note: text.into() }
    }

    #[tokio::test]
    async fn slow_reader_loses_oldest_frames_and_gets_count() {
        let hub = hub(2);
        let listener = LiveListener::new(&hub, SESSION);
        for text in ["a", "b", "c"] {
            hub.publish(CALLER, || note(text));
        }
        hub.committed(SESSION, Seq(3));
        assert!(matches!(listener.next().await, Signal::Missed(1)));
        assert!(matches!(listener.next().await, Signal::Live(live) if live.what == note("b")));
        assert!(matches!(listener.next().await, Signal::Live(live) if live.what == note("c")));
        assert!(matches!(listener.next().await, Signal::Committed(Seq(3))));
    }

    #[tokio::test]
    async fn stuck_reader_queue_stays_bounded() {
        let hub = hub(8);
        let listener = LiveListener::new(&hub, SESSION);
        for n in 1..=10_000 {
            hub.publish(CALLER, || note("a"));
            hub.committed(SESSION, Seq(n));
        }
        assert_eq!(lock(&listener.queue.waiting).signals.len(), 17);
        assert!(matches!(listener.next().await, Signal::Missed(9_992)));
        assert!(matches!(listener.next().await, Signal::Committed(Seq(9_992))));
        for n in 9_993..=10_000 {
            assert!(matches!(listener.next().await, Signal::Live(_)));
            assert!(matches!(listener.next().await, Signal::Committed(Seq(seq)) if seq == n));
        }
    }

    #[test]
    fn replies_in_progress_are_visible_to_their_organisation() {
        let (hub, org) = (hub(8), OrgId::from_u128(1));
        let key = ReplayKey::turn(0).model(0);
        let words =
            |visibility| hub.replies(visibility).into_iter().map(|reply| reply.words).collect::<Vec<_>>();
        hub.begins(CALLER.turn, org);
        let reply = hub.reply(CALLER);
        assert!(words(OrgVisibility::Everything).is_empty());
        reply.begin(&key);
        assert_eq!(words(OrgVisibility::Everything), [0]);
        reply.publish(&key, 1, 0, "one two ");
        reply.publish(&key, 1, 8, "three");
        assert_eq!(words(OrgVisibility::Org(org)), [3]);
        assert!(words(OrgVisibility::Org(OrgId::from_u128(2))).is_empty());
        drop(reply);
        assert!(words(OrgVisibility::Everything).is_empty());
    }

    #[tokio::test]
    async fn subscriber_joining_mid_reply_misses_no_text() {
        let hub = hub(8);
        let (key, text) = (ReplayKey::turn(0).model(0), |attempt, offset, text: &str| LiveEventKind::Text {
            key: ReplayKey::turn(0).model(0),
            attempt,
            offset,
            text: text.to_owned(),
        });
        let reply = hub.reply(CALLER);
        reply.publish(&key, 1, 0, "void");
        reply.publish(&key, 2, 0, "one ");
        reply.publish(&key, 2, 4, "two ");
        let late = LiveListener::new(&hub, SESSION);
        reply.publish(&key, 2, 8, "three");
        for (offset, piece) in [(0, "one two "), (8, "three")] {
            let Signal::Live(live) = late.next().await else { panic!("a frame was told") };
            assert_eq!(live.what, text(2, offset, piece));
        }
        drop(reply);
        assert!(lock(&hub.streaming).is_empty());
    }

    #[tokio::test]
    async fn session_without_subscribers_costs_nothing() {
        let hub = hub(2);
        drop(LiveListener::new(&hub, SESSION));
        assert!(lock(&hub.queues).is_empty());
        hub.publish(CALLER, || unreachable!("no frame is made for nobody"));
    }

    #[tokio::test]
    async fn turn_end_reaches_early_and_late_waiters() {
        let hub = hub(2);
        let turn = TurnId::from_u128(1);
        assert_eq!(hub.end_of(turn, OrgVisibility::Everything).await, None);
        hub.begins(turn, OrgId::DEFAULT);
        let asked = hub.end_of(turn, OrgVisibility::Everything);
        let end = TurnEnd::Answered { text: "yes".into() };
        hub.ended(turn, &end);
        assert_eq!(hub.end_of(turn, OrgVisibility::Everything).await, Some(end.clone()));
        assert_eq!(asked.await, Some(end));
    }
}
