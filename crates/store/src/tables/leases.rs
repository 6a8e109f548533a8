//! Leases: which sessions need a worker, and which workers are dead.
use super::column::{count, id, limit, read_count, read_id};
use super::sessions::read_session;
use super::sessions::session;
use super::{RowCache, Tables};
use outlast_ledger::rows::{LeaseWrites, SessionNo, SessionQueue, SessionRow, WorkerRows};
use outlast_ports::turns::Fence;
use outlast_views::SessionState;
use outlast_vocab::id::{SessionId, WorkerId};
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

// The state is a literal in each statement, because SQLite uses a partial index only then.
const IDLE: &str = session!("WHERE state = 0 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const READY: &str = session!("WHERE state = 1 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const LEASED: &str = session!("WHERE state = 2 AND no > ?1 ORDER BY no LIMIT ?2");
const PARKED: &str = session!("WHERE state = 3 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const HELD: &str = session!("WHERE state = 4 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const DUE: &str = session!("WHERE state = 3 AND wake_at <= ?1 ORDER BY wake_at, no LIMIT ?2");
pub(super) const SUSPECT_DUE: &str = session!(
    "INDEXED BY sessions_wake WHERE state = 4 AND wake_at <= ?1 AND deaths <= ?2 ORDER BY wake_at, no LIMIT 1"
);
pub(super) const TRIALS: &str = "SELECT no, worker FROM sessions INDEXED BY sessions_trial WHERE trial > 0 AND trial < 3 AND state = 2 AND worker IS NOT NULL ORDER BY no";
pub(super) const NEXT_WAKE: &str =
    "SELECT wake_at FROM sessions WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1";

impl SessionQueue for Tables<'_> {
    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        most: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let sql = match state {
            SessionState::Idle => IDLE,
            SessionState::Ready => READY,
            SessionState::Leased => LEASED,
            SessionState::Parked => PARKED,
            SessionState::Held => HELD,
        };
        self.all(sql, params![after.0, limit(most)], read_session)
    }

    fn sessions_due(&self, now: Millis, most: usize) -> Result<Vec<SessionRow>, Error> {
        self.all(DUE, params![count(now.0), limit(most)], read_session)
    }

    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error> {
        self.one(SUSPECT_DUE, params![count(now.0), most_deaths], read_session)
    }

    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error> {
        let read = |row: &Row<'_>| Ok((SessionNo(row.get(0)?), WorkerId::from_u128(read_id(row, 1)?)));
        self.all(TRIALS, [], read)
    }

    fn next_wake(&self) -> Result<Option<Millis>, Error> {
        Ok(self.one(NEXT_WAKE, [], |row| read_count(row, 0))?.map(Millis))
    }
}

impl WorkerRows for Tables<'_> {
    fn is_dead(&self, worker: WorkerId) -> Result<bool, Error> {
        Ok(self.shared.workers.is_dead(worker))
    }

    fn is_running(&self, worker: WorkerId) -> Result<bool, Error> {
        Ok(self.shared.workers.is_running(worker))
    }
}

impl LeaseWrites for Tables<'_> {
    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error> {
        self.update_cache(RowCache::clear);
        self.all(
            "UPDATE sessions SET lease_until = ?2 WHERE state = 2 AND worker = ?1 RETURNING id, fence",
            params![id(worker.to_u128()), count(until.0)],
            |row| Ok((SessionId::from_u128(read_id(row, 0)?), Fence(read_count(row, 1)?))),
        )
    }
}
