//! Only the operator searches all sessions for work.
use super::VisibleRows;
use crate::rows::{LeaseWrites, ReadRows, Rows, SessionNo, SessionQueue, SessionRow, WorkerRows};
use outlast_ports::turns::Fence;
use outlast_views::SessionState;
use outlast_vocab::id::{SessionId, WorkerId};
use outlast_vocab::{Error, Millis};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> SessionQueue for VisibleRows<'_, R> {
    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        self.operator_only(|| self.rows.sessions_in(state, after, limit))
    }

    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error> {
        self.operator_only(|| self.rows.sessions_due(now, limit))
    }

    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error> {
        self.operator_only(|| self.rows.suspect_due(now, most_deaths))
    }

    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error> {
        // Session numbers and worker ids that no user sees. They decide whether a worker may take an input
        // immediately.
        self.rows.trials()
    }

    fn next_wake(&self) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_wake())
    }
}

impl<R: Deref<Target: ReadRows>> WorkerRows for VisibleRows<'_, R> {
    fn is_dead(&self, worker: WorkerId) -> Result<bool, Error> {
        self.rows.is_dead(worker)
    }

    fn is_running(&self, worker: WorkerId) -> Result<bool, Error> {
        self.rows.is_running(worker)
    }
}

impl<R: DerefMut<Target: Rows>> LeaseWrites for VisibleRows<'_, R> {
    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error> {
        self.access.require_operator()?;
        self.rows.extend_leases(worker, until)
    }
}
