//! The line from a running turn to those who watch it in the same process.
//!
//! Nothing here is kept and nothing here slows a turn: a reader that falls behind is told how much it missed, and reads
//! what is durable from the store.
use outlast_vocab::event::Live;
use outlast_vocab::record::End;
use outlast_vocab::{SessionId, TurnId};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast;

/// What watchers of a session are told.
#[derive(Clone, Debug)]
pub enum Signal {
    /// There are new records.
    Committed,
    /// A turn is over; its records are there.
    Ended(TurnId, End),
    /// Something happens right now.
    Live(Live),
}

/// The lines of all sessions that somebody watches.
#[derive(Debug)]
pub struct Hub {
    sessions: Mutex<HashMap<SessionId, broadcast::Sender<Signal>>>,
    frames: usize,
}

impl Hub {
    /// Lines that keep this many frames for a slow reader.
    pub fn new(frames: usize) -> Self {
        Self { sessions: Mutex::default(), frames }
    }

    /// Watches a session from now on.
    pub fn listen(&self, session: SessionId) -> broadcast::Receiver<Signal> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.entry(session).or_insert_with(|| broadcast::Sender::new(self.frames)).subscribe()
    }

    /// Tells the watchers of a session. The signal is only made if there are any.
    pub fn tell(&self, session: SessionId, signal: impl FnOnce() -> Signal) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = sessions.get(&session) else { return };
        if line.receiver_count() == 0 {
            sessions.remove(&session);
            return;
        }
        // Fails only when the last watcher left just now.
        let _ = line.send(signal());
    }
}
