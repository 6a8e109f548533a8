//! Leases: which sessions need a worker, and which workers are dead.
use super::{Tables, page};
use crate::rows::{LeaseWrites, SessionNo, SessionQueue, SessionRow, WorkerRows};
use outlast_ports::turns::{Fence, TrialState};
use outlast_views::SessionState;
use outlast_vocab::id::{SessionId, WorkerId};
use outlast_vocab::{Error, Millis};

impl SessionQueue for Tables {
    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let later = self.sessions.values().filter(|row| row.no > after && row.state == state);
        Ok(page(later, limit))
    }

    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error> {
        let mut due: Vec<&SessionRow> =
            self.sessions.values().filter(|row| is_due(row, SessionState::Parked, now)).collect();
        due.sort_by_key(|row| row.wake_at);
        Ok(page(due.into_iter(), limit))
    }

    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error> {
        let due = self.sessions.values().filter(|row| is_due(row, SessionState::Held, now));
        let old_enough = due.filter(|row| row.guard.deaths <= most_deaths);
        Ok(old_enough.min_by_key(|row| (row.wake_at, row.no)).cloned())
    }

    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error> {
        let leased = self.sessions.values().filter(|row| row.state == SessionState::Leased);
        let on_trial = leased.filter(|row| matches!(row.guard.trial, TrialState::Waits | TrialState::Runs));
        Ok(on_trial.filter_map(|row| Some((row.no, row.worker?))).collect())
    }

    fn next_wake(&self) -> Result<Option<Millis>, Error> {
        Ok(self.sessions.values().filter_map(|row| row.wake_at).min())
    }
}

impl WorkerRows for Tables {
    fn is_dead(&self, worker: WorkerId) -> Result<bool, Error> {
        Ok(self.dead.contains(&worker))
    }

    fn is_running(&self, worker: WorkerId) -> Result<bool, Error> {
        Ok(!self.dead.contains(&worker))
    }
}

impl LeaseWrites for Tables {
    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error> {
        let held = |row: &&SessionRow| row.worker == Some(worker) && row.state == SessionState::Leased;
        let rows: Vec<SessionRow> = self.sessions.values().filter(held).cloned().collect();
        let leases = rows.iter().map(|row| (row.id, row.fence)).collect();
        for row in rows {
            self.set(|tables| &mut tables.sessions, row.no, Some(SessionRow { lease_until: until, ..row }));
        }
        Ok(leases)
    }
}

/// Returns whether a session is in this state and due.
fn is_due(row: &SessionRow, state: SessionState, now: Millis) -> bool {
    row.state == state && row.wake_at.is_some_and(|at| at <= now)
}
