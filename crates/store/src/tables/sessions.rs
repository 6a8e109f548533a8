//! Sessions and their heads.
use super::column::{
    count, id, limit, read_count, read_hash, read_id, read_optional_count, read_record_address,
    record_address, unknown_number,
};
use super::{RowCache, Tables};
use outlast_ledger::rows::{
    LastEnded, RecordAddress, SessionNo, SessionQueries, SessionRow, SessionRows, SessionWrites,
};
use outlast_ports::turns::{CrashGuard, Fence, TrialState, TurnNo};
use outlast_views::SessionState;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{OrgId, SessionId, WorkerId};
use outlast_vocab::record::{Seq, TurnEndKind};
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

/// The columns of a session, in the order that [`read_session`] takes them.
macro_rules! session {
    ($rest:literal) => {
        concat!(
            "SELECT no, id, key, created, updated, state, fence, worker, lease_until, wake_at, last_seq, last_hash, ",
            "turns, active, queued, deaths, forked_session, forked_seq, org, imported, cost, deaths_alone, trial, ",
            "last_turn, last_end, foreign_seq ",
            "FROM sessions ",
            $rest
        )
    };
}

pub(super) use session;

pub(super) const BY_KEY: &str = session!("WHERE org = ?1 AND key = ?2");
pub(super) const SESSIONS_OF: &str = session!("WHERE org = ?1 AND no < ?2 ORDER BY no DESC LIMIT ?3");
const LAST_ENDED: &str = "SELECT count(*) FROM (SELECT 1 FROM sessions INDEXED BY sessions_last_end
     WHERE last_end = ?1 AND last_end <> 'answered' LIMIT ?2)";

impl SessionRows for Tables<'_> {
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error> {
        let find = || self.one(session!("WHERE no = ?1"), [no.0], read_session);
        self.cached_or(|held| held.session(no), find, RowCache::put_session)
    }

    fn session_by_id(&self, session: SessionId) -> Result<Option<SessionRow>, Error> {
        let sql = session!("WHERE id = ?1");
        let find = || self.one(sql, [id(session.to_u128())], read_session);
        self.cached_or(|held| held.session_by_id(session), find, RowCache::put_session)
    }

    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error> {
        self.one(BY_KEY, params![id(org.to_u128()), key], read_session)
    }

    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error> {
        let sql = "SELECT id FROM sessions WHERE forked_session = ?1 ORDER BY no";
        self.all(sql, [of.0], |row| read_id(row, 0).map(SessionId::from_u128))
    }

    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error> {
        let sql = "SELECT name, node_session, node_seq FROM heads WHERE session = ?1 ORDER BY name";
        self.all(sql, [session.0], |row| Ok((row.get(0)?, read_record_address(row, 1)?)))
    }

    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error> {
        let sql = "SELECT node_session, node_seq FROM heads WHERE session = ?1 AND name = ?2";
        self.one(sql, params![session.0, name], |row| read_record_address(row, 0))
    }
}

impl SessionQueries for Tables<'_> {
    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        most: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let (before, most) = (before.map_or(i64::MAX, |no| no.0), limit(most));
        match of {
            OrgVisibility::Everything => {
                let sql = session!("WHERE no < ?1 ORDER BY no DESC LIMIT ?2");
                self.all(sql, params![before, most], read_session)
            }
            OrgVisibility::Org(org) => {
                self.all(SESSIONS_OF, params![id(org.to_u128()), before, most], read_session)
            }
        }
    }

    fn count_last_ended(&self, end: TurnEndKind, most: usize) -> Result<usize, Error> {
        let count = self.one(LAST_ENDED, params![end.name(), limit(most)], |row| row.get::<_, i64>(0))?;
        Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0))
    }
}

impl SessionWrites for Tables<'_> {
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error> {
        let (forked_session, forked_seq) = record_address(row.forked_from);
        let no = self.insert(
            row.id,
            "INSERT INTO sessions (id, key, created, updated, state, fence, worker, lease_until, wake_at, last_seq,
             last_hash, turns, active, queued, deaths, forked_session, forked_seq, org, imported, cost, deaths_alone,
             trial, last_turn, last_end, foreign_seq)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
             ?22, ?23, ?24, ?25)",
            params![
                id(row.id.to_u128()),
                row.key,
                count(row.created.0),
                count(row.updated.0),
                session_state(row.state),
                count(row.fence.0),
                row.worker.map(|worker| id(worker.to_u128())),
                count(row.lease_until.0),
                row.wake_at.map(|at| count(at.0)),
                count(row.last_seq.0),
                row.last_hash.as_bytes(),
                row.turns,
                row.active.map(|turn| turn.0),
                row.queued,
                row.guard.deaths,
                forked_session,
                forked_seq,
                id(row.org.to_u128()),
                count(row.imported.0),
                row.cost.map(|cost| count(cost.picodollars())),
                row.guard.alone,
                trial(row.guard.trial),
                row.last_ended.map(|last| last.turn.0),
                row.last_ended.map(|last| last.end.name()),
                count(row.foreign.0),
            ],
        )?;
        Ok(SessionNo(no))
    }

    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error> {
        self.run(
            "UPDATE sessions SET updated = ?2, state = ?3, fence = ?4, worker = ?5, lease_until = ?6, wake_at = ?7,
             last_seq = ?8, last_hash = ?9, turns = ?10, active = ?11, queued = ?12, deaths = ?13, cost = ?14,
             deaths_alone = ?15, trial = ?16, last_turn = ?17, last_end = ?18, foreign_seq = ?19 WHERE no = ?1",
            params![
                row.no.0,
                count(row.updated.0),
                session_state(row.state),
                count(row.fence.0),
                row.worker.map(|worker| id(worker.to_u128())),
                count(row.lease_until.0),
                row.wake_at.map(|at| count(at.0)),
                count(row.last_seq.0),
                row.last_hash.as_bytes(),
                row.turns,
                row.active.map(|turn| turn.0),
                row.queued,
                row.guard.deaths,
                row.cost.map(|cost| count(cost.picodollars())),
                row.guard.alone,
                trial(row.guard.trial),
                row.last_ended.map(|last| last.turn.0),
                row.last_ended.map(|last| last.end.name()),
                count(row.foreign.0),
            ],
        )?;
        self.update_cache(|held| held.put_session(row));
        Ok(())
    }

    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error> {
        // Children before their parents, and counted rows before the rows that count them.
        for sql in [
            "DELETE FROM waits WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM resolutions WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM partials WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM deliveries WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM holds WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM votes WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM notices WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM grants WHERE session = ?1",
            "DELETE FROM turns WHERE session = ?1",
            "UPDATE blobs SET uses = uses - (SELECT count(*) FROM attachments
             WHERE session = ?1 AND outside = 0 AND content = blobs.hash)
             WHERE hash IN (SELECT content FROM attachments WHERE session = ?1 AND outside = 0)",
            "UPDATE outside SET uses = uses - (SELECT count(*) FROM attachments
             WHERE session = ?1 AND outside = 1 AND attachments.content = outside.content)
             WHERE content IN (SELECT content FROM attachments WHERE session = ?1 AND outside = 1)",
            "UPDATE blobs SET uses = uses - (SELECT count(*) FROM records WHERE session = ?1 AND blob = blobs.hash)
             WHERE hash IN (SELECT blob FROM records WHERE session = ?1 AND blob IS NOT NULL)",
            "DELETE FROM blobs WHERE uses = 0
             AND (hash IN (SELECT blob FROM records WHERE session = ?1 AND blob IS NOT NULL)
                  OR hash IN (SELECT content FROM attachments WHERE session = ?1 AND outside = 0))",
            "DELETE FROM attachments WHERE session = ?1",
            "DELETE FROM records WHERE session = ?1",
            "DELETE FROM claims WHERE session = ?1",
            "DELETE FROM session_values WHERE session = ?1",
            "DELETE FROM heads WHERE session = ?1",
            "DELETE FROM sessions WHERE no = ?1",
        ] {
            self.run(sql, [no.0])?;
        }
        self.update_cache(RowCache::clear);
        Ok(())
    }

    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error> {
        let (node_session, node_seq) = record_address(node);
        self.run(
            "INSERT INTO heads (session, name, node_session, node_seq) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, name) DO UPDATE SET node_session = ?3, node_seq = ?4",
            params![session.0, name, node_session, node_seq],
        )?;
        Ok(())
    }
}

/// Encodes the state of a session. The schema's indexes and the statements contain these numbers.
fn session_state(state: SessionState) -> i64 {
    match state {
        SessionState::Idle => 0,
        SessionState::Ready => 1,
        SessionState::Leased => 2,
        SessionState::Parked => 3,
        SessionState::Held => 4,
    }
}

/// Encodes the trial state of a session. The schema's index and the statements contain these numbers.
fn trial(trial: TrialState) -> i64 {
    match trial {
        TrialState::NotOnTrial => 0,
        TrialState::Waits => 1,
        TrialState::Runs => 2,
        TrialState::Hung => 3,
    }
}

pub(super) fn read_session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        no: SessionNo(row.get(0)?),
        id: SessionId::from_u128(read_id(row, 1)?),
        key: row.get(2)?,
        created: Millis(read_count(row, 3)?),
        updated: Millis(read_count(row, 4)?),
        state: read_session_state(row, 5)?,
        fence: Fence(read_count(row, 6)?),
        worker: row.get::<_, Option<[u8; 16]>>(7)?.map(|raw| WorkerId::from_u128(u128::from_be_bytes(raw))),
        lease_until: Millis(read_count(row, 8)?),
        wake_at: read_optional_count(row, 9)?.map(Millis),
        last_seq: Seq(read_count(row, 10)?),
        last_hash: read_hash(row, 11)?,
        turns: row.get(12)?,
        active: row.get::<_, Option<i64>>(13)?.map(TurnNo),
        queued: row.get(14)?,
        guard: CrashGuard { deaths: row.get(15)?, alone: row.get(21)?, trial: read_trial(row, 22)? },
        forked_from: read_record_address(row, 16)?,
        org: OrgId::from_u128(read_id(row, 18)?),
        imported: Seq(read_count(row, 19)?),
        cost: read_optional_count(row, 20)?.map(Cost::of_picodollars),
        last_ended: read_last_ended(row, 23)?,
        foreign: Seq(read_count(row, 25)?),
    })
}

/// Reads how the last turn of a session ended. Returns `None` for an end that only another version of the
/// program knows.
fn read_last_ended(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<LastEnded>> {
    let (turn, end) = (row.get::<_, Option<i64>>(at)?, row.get::<_, Option<String>>(at + 1)?);
    let end = end.as_deref().and_then(TurnEndKind::from_name);
    Ok(turn.zip(end).map(|(turn, end)| LastEnded { turn: TurnNo(turn), end }))
}

fn read_session_state(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionState> {
    match row.get(column)? {
        0 => Ok(SessionState::Idle),
        1 => Ok(SessionState::Ready),
        2 => Ok(SessionState::Leased),
        3 => Ok(SessionState::Parked),
        4 => Ok(SessionState::Held),
        other => Err(unknown_number(column, other)),
    }
}

fn read_trial(row: &Row<'_>, column: usize) -> rusqlite::Result<TrialState> {
    match row.get(column)? {
        0 => Ok(TrialState::NotOnTrial),
        1 => Ok(TrialState::Waits),
        2 => Ok(TrialState::Runs),
        3 => Ok(TrialState::Hung),
        other => Err(unknown_number(column, other)),
    }
}
