//! Read-only queries of a worker: the feed of all sessions, why a turn waits, the agents and the load.
use super::Runtime;
use crate::agents::agent_registry::AgentView;
use crate::delivery::feed::RecordFeed;
use crate::turn::journal_writer::WorkerJournal;
use crate::views::wait_explanation;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::journal::FeedCursor;
use outlast_views::{TurnDurabilityCost, TurnView, WaitExplanation, WriteCount};
use outlast_vocab::record::Record;
use outlast_vocab::{Error, Millis, SessionId, TurnId};

/// The load of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLoad {
    /// The number of sessions that it drives now.
    pub driven: usize,
    /// The number of sessions that it can drive at the same time.
    pub most: usize,
}

/// A turn that a worker drives now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningTurn {
    /// Its session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The agent that answers, once it is known.
    pub agent: Option<String>,
    /// When this worker began to drive it. The turn itself may have begun earlier, here or on another worker.
    pub since: Millis,
}

impl Runtime {
    /// Follows all visible sessions from a cursor.
    pub fn feed(&self, after: FeedCursor) -> RecordFeed {
        let WorkerJournal { store, clock, limits, hub, .. } = &*self.state.journal;
        let (visible, whole) = (self.store.clone(), store.clone());
        RecordFeed::new(hub, clock.clone(), limits.page_rows, visible, whole, after)
    }

    /// Explains why a session is not progressing: what its turn waits for, since when, and who or what can unblock it.
    pub async fn why(&self, session: SessionId) -> Result<WaitExplanation, Error> {
        wait_explanation::of_session(self.store.as_ref(), session).await
    }

    /// Explains why a turn is not progressing. The turn may be queued, running or over.
    pub async fn why_turn(&self, turn: TurnId) -> Result<WaitExplanation, Error> {
        wait_explanation::of_turn(self.store.as_ref(), turn).await
    }

    /// Opens a session without an input. An existing session with this key stays as it is.
    pub async fn open_session(&self, key: Option<String>) -> Result<SessionId, Error> {
        let fresh = self.fresh_session();
        let target = key.map_or(SessionTarget::New(fresh), |key| SessionTarget::Key { key, fresh });
        super::inputs::check_target(&target, &self.state.journal.limits)?;
        self.store.open(target, self.now()).await
    }

    /// Returns what the durability of a turn with these records cost.
    pub fn durability(&self, turn: &TurnView, records: &[Record]) -> TurnDurabilityCost {
        let unreported = self.state.journal.unreported_writes.of(turn.id);
        let writes = turn.writes.map(|writes| WriteCount { waited: writes.waited + unreported, ..writes });
        TurnDurabilityCost::of(records, writes)
    }

    /// Returns the agents that callers of this handle may use, by name: those of the program, and those of its
    /// organisation.
    pub fn agents(&self) -> Vec<AgentView> {
        self.state.agents.registry.views(self.access.visibility)
    }

    /// Returns the visible turns that this worker drives now, by session. Leaves out parked turns and turns driven by
    /// other workers.
    pub fn running(&self) -> Vec<RunningTurn> {
        self.state.drives.running(self.access.visibility)
    }

    /// Returns the load of this worker.
    pub fn load(&self) -> WorkerLoad {
        WorkerLoad { driven: self.state.drives.count(), most: self.state.journal.limits.sessions_at_once }
    }
}
