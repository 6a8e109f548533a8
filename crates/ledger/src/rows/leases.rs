//! Leases: which sessions need a worker, and which workers are dead.
use super::{RowAccess, SessionNo, SessionRow};
use outlast_ports::turns::Fence;
use outlast_views::SessionState;
use outlast_vocab::id::{SessionId, WorkerId};
use outlast_vocab::{Error, Millis};

/// Finds sessions that need a worker, among all sessions.
pub trait SessionQueue: RowAccess {
    /// Returns sessions in a state above `after`, by ascending number.
    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error>;
    /// Returns parked sessions that are due, earliest due time first.
    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error>;
    /// Returns the held session with the earliest due time, if it is due. Ignores sessions with more than
    /// `most_deaths`.
    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error>;
    /// Returns leased sessions that are on trial or wait for their trial, with their workers.
    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error>;
    /// Returns when the next parked or held session is due.
    fn next_wake(&self) -> Result<Option<Millis>, Error>;
}

/// Reads which workers are dead.
pub trait WorkerRows: RowAccess {
    /// Returns whether a worker is known to be dead. This takes evidence, such as a released lock. Silence is not
    /// enough.
    fn is_dead(&self, worker: WorkerId) -> Result<bool, Error>;
    /// Returns whether the process of a worker may still run. A worker that ended without duties leaves no evidence of
    /// its death, but it does not run.
    fn is_running(&self, worker: WorkerId) -> Result<bool, Error>;
}

/// Extends leases.
pub trait LeaseWrites: RowAccess {
    /// Extends every lease of a worker and returns them.
    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error>;
}
