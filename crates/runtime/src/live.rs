//! The line from a running turn to those who watch it in the same process.
//!
//! Nothing here is kept and nothing here slows a turn: a reader that falls behind loses the oldest frames, is told how
//! many, and reads what is durable from the store. A session that nobody watches costs nothing.
use crate::durability::Unsaid;
use outlast_vocab::access::Reach;
use outlast_vocab::event::{Live, LiveKind};
use outlast_vocab::record::{End, Seq};
use outlast_vocab::{OrgId, ReplayKey, SessionId, TurnId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::watch;

/// How many ends are remembered for those who ask a moment too late to be told.
const RECENT: usize = 1_024;

/// What watchers of a session are told.
#[derive(Clone, Debug)]
pub enum Signal {
    /// There are new records, up to this one.
    Committed(Seq),
    /// Something happens right now.
    Live(Live),
    /// The watcher was too slow; this many live frames are gone.
    Missed(u64),
}

/// The lines of all sessions that somebody watches, and the ends of turns that are driven here.
#[derive(Debug)]
pub struct Hub {
    lines: Mutex<HashMap<SessionId, Vec<Arc<Line>>>>,
    ends: Mutex<Ends>,
    frames: usize,
    /// What models are saying right now. Locked before the lines.
    saying: Mutex<HashMap<SessionId, Saying>>,
    /// Counts what became durable here, in any session.
    news: watch::Sender<u64>,
    /// What turns waited for their writes.
    pub(crate) unsaid: Unsaid,
}

/// The text of a reply that is not whole yet.
#[derive(Debug)]
struct Saying {
    turn: TurnId,
    key: ReplayKey,
    attempt: u32,
    text: String,
}

impl Saying {
    /// Everything that was said so far, for somebody who comes in the middle.
    fn frame(&self) -> Live {
        let Self { turn, key, attempt, text } = self;
        let what = LiveKind::Text { key: key.clone(), attempt: *attempt, offset: 0, text: text.clone() };
        Live { turn: *turn, what }
    }
}

/// A reply that is being said; dropping it says that it is over, however it ended.
pub(crate) struct Speaker<'a> {
    hub: &'a Hub,
    session: SessionId,
    turn: TurnId,
}

impl Speaker<'_> {
    /// Tells a piece of text to those who watch, and remembers it for those who come later.
    pub(crate) fn say(&self, key: &ReplayKey, attempt: u32, offset: usize, piece: &str) {
        let mut saying = lock(&self.hub.saying);
        let said = saying.entry(self.session).or_insert_with(|| Saying {
            turn: self.turn,
            key: key.clone(),
            attempt,
            text: String::new(),
        });
        if said.attempt != attempt || offset == 0 {
            (said.attempt, said.text) = (attempt, String::new());
        }
        said.text.push_str(piece);
        let text = || LiveKind::Text { key: key.clone(), attempt, offset, text: piece.to_owned() };
        self.hub.tell(self.session, || Live { turn: self.turn, what: text() });
    }

    /// What was said so far is void.
    pub(crate) fn forget(&self) {
        lock(&self.hub.saying).remove(&self.session);
    }
}

impl Drop for Speaker<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

#[derive(Debug, Default)]
struct Ends {
    driven: HashMap<TurnId, Driven>,
    recent: VecDeque<(TurnId, OrgId, End)>,
}

/// A turn that is driven here, with those who wait for its end.
#[derive(Debug)]
struct Driven {
    org: OrgId,
    waiting: watch::Sender<Option<End>>,
}

/// What one watcher has not read yet.
#[derive(Debug, Default)]
struct Line {
    waiting: Mutex<Waiting>,
    news: Notify,
}

/// Frames and news of records in the order they came.
#[derive(Debug, Default)]
struct Waiting {
    signals: VecDeque<Signal>,
    frames: usize,
    missed: u64,
}

/// A watcher of a session. Dropping it ends the watch.
pub struct Listener {
    world: Arc<crate::World>,
    session: SessionId,
    line: Arc<Line>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Lines that keep this many frames for a slow reader.
    pub fn new(frames: usize) -> Self {
        Self {
            lines: Mutex::default(),
            ends: Mutex::default(),
            frames,
            saying: Mutex::default(),
            news: watch::Sender::new(0),
            unsaid: Unsaid::default(),
        }
    }

    /// Tells of everything that becomes durable here, but not what.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Tells the watchers of a session that there are new records, up to this one.
    pub fn committed(&self, session: SessionId, last: Seq) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
        for line in lock(&self.lines).get(&session).into_iter().flatten() {
            let mut waiting = lock(&line.waiting);
            match waiting.signals.back_mut() {
                Some(Signal::Committed(seq)) => *seq = last,
                _ => waiting.signals.push_back(Signal::Committed(last)),
            }
            line.news.notify_one();
        }
    }

    /// Tells the watchers of a session what happens right now. The frame is only made if there are any.
    pub fn tell(&self, session: SessionId, frame: impl FnOnce() -> Live) {
        let lines = lock(&self.lines);
        let Some(lines) = lines.get(&session) else { return };
        let frame = frame();
        for line in lines {
            let mut waiting = lock(&line.waiting);
            if waiting.frames >= self.frames {
                waiting.drop_oldest();
            }
            waiting.signals.push_back(Signal::Live(frame.clone()));
            waiting.frames += 1;
            line.news.notify_one();
        }
    }

    /// A model begins to speak in a session.
    pub(crate) fn speaker(&self, session: SessionId, turn: TurnId) -> Speaker<'_> {
        Speaker { hub: self, session, turn }
    }

    /// A turn is driven here from now on; its end will be told.
    pub fn begins(&self, turn: TurnId, org: OrgId) {
        let driven = || Driven { org, waiting: watch::Sender::new(None) };
        lock(&self.ends).driven.entry(turn).or_insert_with(driven);
    }

    /// A turn is not driven here any more; it may go on elsewhere.
    pub fn leaves(&self, turn: TurnId) {
        lock(&self.ends).driven.remove(&turn);
    }

    /// A turn is over.
    pub fn ended(&self, turn: TurnId, end: &End) {
        let mut ends = lock(&self.ends);
        // Whose it is stands with those who wait for it; of any other turn the store tells.
        let Some(Driven { org, waiting }) = ends.driven.remove(&turn) else { return };
        waiting.send_replace(Some(end.clone()));
        if ends.recent.len() >= RECENT {
            ends.recent.pop_front();
        }
        ends.recent.push_back((turn, org, end.clone()));
    }

    /// How a turn that is driven here ended, once it has; nothing if it is not driven here or stops being so, or is
    /// not shown to whoever has this reach.
    pub async fn end_of(&self, turn: TurnId, reach: Reach) -> Option<End> {
        let mut end = {
            let ends = lock(&self.ends);
            if let Some((_, org, end)) = ends.recent.iter().rev().find(|(ended, ..)| *ended == turn) {
                return reach.covers(*org).then(|| end.clone());
            }
            ends.driven.get(&turn).filter(|driven| reach.covers(driven.org))?.waiting.subscribe()
        };
        end.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl Listener {
    /// Watches a session from now on. What a model is in the middle of saying is told from its beginning.
    pub fn new(world: Arc<crate::World>, session: SessionId) -> Self {
        let line = Arc::new(Line::default());
        {
            let saying = lock(&world.hub.saying);
            if let Some(said) = saying.get(&session) {
                let mut waiting = lock(&line.waiting);
                waiting.signals.push_back(Signal::Live(said.frame()));
                waiting.frames += 1;
            }
            lock(&world.hub.lines).entry(session).or_default().push(line.clone());
        }
        Self { world, session, line }
    }

    /// The session that is watched.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The next thing to know; waits for one.
    pub async fn next(&self) -> Signal {
        loop {
            if let Some(signal) = self.ready() {
                return signal;
            }
            self.line.news.notified().await;
        }
    }

    fn ready(&self) -> Option<Signal> {
        let mut waiting = lock(&self.line.waiting);
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

impl Waiting {
    /// Gives up the oldest frame. News of records stay, joined where nothing stands between them any more: so no two of them are
    /// neighbours, a line holds at most one more of them than frames, and the oldest frame is the first or the second signal.
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
            // The later one tells of everything that the earlier one does.
            self.signals.pop_front();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut lines = lock(&self.world.hub.lines);
        if let Some(watchers) = lines.get_mut(&self.session) {
            watchers.retain(|line| !Arc::ptr_eq(line, &self.line));
            if watchers.is_empty() {
                lines.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::system::{SystemClock, SystemEntropy};
    use outlast_vocab::Limits;

    fn world(frames: usize) -> Arc<crate::World> {
        let limits = Limits { live_frames: frames, ..Limits::default() };
        let tools = Catalogue::new(Vec::new()).unwrap();
        Arc::new(crate::World::new(Vec::new(), tools, Arc::new(SystemClock), Arc::new(SystemEntropy), limits))
    }

    fn note(text: &str) -> Live {
        let what = LiveKind::Progress { key: ReplayKey::turn(0), note: text.into() };
        Live { turn: TurnId::from_u128(1), what }
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_frames_and_is_told_how_many() {
        let world = world(2);
        let session = SessionId::from_u128(1);
        let listener = Listener::new(world.clone(), session);
        for text in ["a", "b", "c"] {
            world.hub.tell(session, || note(text));
        }
        world.hub.committed(session, Seq(3));
        assert!(matches!(listener.next().await, Signal::Missed(1)));
        assert!(matches!(listener.next().await, Signal::Live(live) if live == note("b")));
        assert!(matches!(listener.next().await, Signal::Live(live) if live == note("c")));
        assert!(matches!(listener.next().await, Signal::Committed(Seq(3))));
    }

    #[tokio::test]
    async fn a_reader_that_is_stuck_leaves_a_line_that_does_not_grow_s42() {
        let world = world(8);
        let session = SessionId::from_u128(1);
        let listener = Listener::new(world.clone(), session);
        for n in 1..=10_000 {
            world.hub.tell(session, || note("a"));
            world.hub.committed(session, Seq(n));
        }
        assert_eq!(lock(&listener.line.waiting).signals.len(), 17);
        assert!(matches!(listener.next().await, Signal::Missed(9_992)));
        assert!(matches!(listener.next().await, Signal::Committed(Seq(9_992))));
        for n in 9_993..=10_000 {
            assert!(matches!(listener.next().await, Signal::Live(_)));
            assert!(matches!(listener.next().await, Signal::Committed(Seq(seq)) if seq == n));
        }
    }

    #[tokio::test]
    async fn who_comes_in_the_middle_of_a_reply_is_told_its_beginning_and_goes_on_without_a_gap() {
        let world = world(8);
        let (session, turn) = (SessionId::from_u128(1), TurnId::from_u128(1));
        let (key, text) = (ReplayKey::turn(0).model(0), |attempt, offset, text: &str| LiveKind::Text {
            key: ReplayKey::turn(0).model(0),
            attempt,
            offset,
            text: text.to_owned(),
        });
        let speaker = world.hub.speaker(session, turn);
        speaker.say(&key, 1, 0, "void");
        speaker.say(&key, 2, 0, "one ");
        speaker.say(&key, 2, 4, "two ");
        let late = Listener::new(world.clone(), session);
        speaker.say(&key, 2, 8, "three");
        for (offset, piece) in [(0, "one two "), (8, "three")] {
            let Signal::Live(live) = late.next().await else { panic!("a frame was told") };
            assert_eq!(live.what, text(2, offset, piece));
        }
        drop(speaker);
        assert!(lock(&world.hub.saying).is_empty());
    }

    #[tokio::test]
    async fn a_session_that_nobody_watches_costs_nothing() {
        let world = world(2);
        let session = SessionId::from_u128(1);
        drop(Listener::new(world.clone(), session));
        assert!(lock(&world.hub.lines).is_empty());
        world.hub.tell(session, || unreachable!("no frame is made for nobody"));
    }

    #[tokio::test]
    async fn the_end_of_a_turn_is_told_to_those_who_ask_before_and_after() {
        let world = world(2);
        let turn = TurnId::from_u128(1);
        assert_eq!(world.hub.end_of(turn, Reach::Everything).await, None);
        world.hub.begins(turn, OrgId::DEFAULT);
        let asked = world.hub.end_of(turn, Reach::Everything);
        let end = End::Answered { text: "yes".into() };
        world.hub.ended(turn, &end);
        assert_eq!(world.hub.end_of(turn, Reach::Everything).await, Some(end.clone()));
        assert_eq!(asked.await, Some(end));
    }
}
