//! Turns.
use super::column::{
    count, id, limit, read_count, read_hash, read_id, read_optional_count, read_record_address,
    record_address, unknown_number,
};
use super::{RowCache, Tables};
use outlast_ledger::rows::{SessionNo, TurnQueries, TurnRow, TurnRows, TurnWrites};
use outlast_ports::turns::TurnNo;
use outlast_views::{TurnState, WriteCount};
use outlast_vocab::Error;
use outlast_vocab::id::TurnId;
use outlast_vocab::record::{InputDelivery, Seq};
use rusqlite::{Row, params};
use std::time::Duration;

/// The columns of a turn, in the order that [`read_turn`] takes them.
macro_rules! turn {
    ($rest:literal) => {
        concat!(
            "SELECT no, id, session, place, key, input, delivery, head, state, accepted, last_node, parent_session, ",
            "parent_seq, ended, cancelled, commits, waited_us, retry_of FROM turns ",
            $rest
        )
    };
}

pub(super) const LAST_RETRY: &str = turn!("WHERE retry_of = ?1 ORDER BY no DESC LIMIT 1");
pub(super) const TURNS_AFTER: &str = turn!("WHERE no > ?1 ORDER BY no LIMIT ?2");
pub(super) const QUEUED: &str = turn!("WHERE session = ?1 AND state = 0 ORDER BY place LIMIT ?2");

impl TurnRows for Tables<'_> {
    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error> {
        let find = || self.one(turn!("WHERE no = ?1"), [no.0], read_turn);
        self.cached_or(|held| held.turn(no), find, RowCache::put_turn)
    }

    fn turn_by_id(&self, turn: TurnId) -> Result<Option<TurnRow>, Error> {
        self.one(turn!("WHERE id = ?1"), [id(turn.to_u128())], read_turn)
    }

    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error> {
        let sql = turn!("WHERE session = ?1 AND key = ?2");
        self.one(sql, params![session.0, key], read_turn)
    }

    fn turns(&self, session: SessionNo, from: u32, most: usize) -> Result<Vec<TurnRow>, Error> {
        let sql = turn!("WHERE session = ?1 AND place >= ?2 ORDER BY place LIMIT ?3");
        self.all(sql, params![session.0, from, limit(most)], read_turn)
    }

    fn queued(&self, session: SessionNo, most: usize) -> Result<Vec<TurnRow>, Error> {
        self.all(QUEUED, params![session.0, limit(most)], read_turn)
    }

    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error> {
        self.one(LAST_RETRY, [of.0], read_turn)
    }
}

impl TurnQueries for Tables<'_> {
    fn turns_after(&self, after: TurnNo, most: usize) -> Result<Vec<TurnRow>, Error> {
        self.all(TURNS_AFTER, params![after.0, limit(most)], read_turn)
    }

    fn newest_turn(&self) -> Result<TurnNo, Error> {
        let newest = self.one("SELECT max(no) FROM turns", [], |row| row.get::<_, Option<i64>>(0))?;
        Ok(TurnNo(newest.flatten().unwrap_or(0)))
    }
}

impl TurnWrites for Tables<'_> {
    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error> {
        let (parent_session, parent_seq) = record_address(row.parent);
        let no = self.insert(
            row.id,
            "INSERT INTO turns (id, session, place, key, input, delivery, head, state, accepted, last_node,
             parent_session, parent_seq, ended, cancelled, commits, waited_us, retry_of)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                id(row.id.to_u128()),
                row.session.0,
                row.index,
                row.key,
                row.input.as_bytes(),
                delivery(row.delivery),
                row.head,
                turn_state(row.state),
                count(row.accepted.0),
                count(row.last_node.0),
                parent_session,
                parent_seq,
                row.ended.map(|seq| count(seq.0)),
                row.cancelled,
                row.writes.map(|writes| count(writes.commits)),
                row.writes.map(|writes| micros(writes.waited)),
                row.retry_of.map(|turn| turn.0),
            ],
        )?;
        self.update_cache(|held| held.put_turn(&TurnRow { no: TurnNo(no), ..row.clone() }));
        Ok(TurnNo(no))
    }

    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error> {
        let (parent_session, parent_seq) = record_address(row.parent);
        self.run(
            "UPDATE turns SET state = ?2, last_node = ?3, parent_session = ?4, parent_seq = ?5, ended = ?6,
             cancelled = ?7, commits = ?8, waited_us = ?9, retry_of = ?10 WHERE no = ?1",
            params![
                row.no.0,
                turn_state(row.state),
                count(row.last_node.0),
                parent_session,
                parent_seq,
                row.ended.map(|seq| count(seq.0)),
                row.cancelled,
                row.writes.map(|writes| count(writes.commits)),
                row.writes.map(|writes| micros(writes.waited)),
                row.retry_of.map(|turn| turn.0),
            ],
        )?;
        self.update_cache(|held| held.put_turn(row));
        Ok(())
    }
}

/// Encodes a duration, in microseconds.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Encodes the state of a turn. The schema's indexes and the statements contain these numbers.
fn turn_state(state: TurnState) -> i64 {
    match state {
        TurnState::Queued => 0,
        TurnState::Active => 1,
        TurnState::Ended => 2,
    }
}

/// Encodes how an input is delivered.
fn delivery(delivery: InputDelivery) -> i64 {
    match delivery {
        InputDelivery::Next => 0,
        InputDelivery::Join => 1,
    }
}

fn read_turn(row: &Row<'_>) -> rusqlite::Result<TurnRow> {
    Ok(TurnRow {
        no: TurnNo(row.get(0)?),
        id: TurnId::from_u128(read_id(row, 1)?),
        session: SessionNo(row.get(2)?),
        index: row.get(3)?,
        key: row.get(4)?,
        input: read_hash(row, 5)?,
        delivery: read_delivery(row, 6)?,
        head: row.get(7)?,
        state: read_turn_state(row, 8)?,
        accepted: Seq(read_count(row, 9)?),
        last_node: Seq(read_count(row, 10)?),
        parent: read_record_address(row, 11)?,
        ended: read_optional_count(row, 13)?.map(Seq),
        cancelled: row.get(14)?,
        writes: read_writes(row, 15)?,
        retry_of: row.get::<_, Option<i64>>(17)?.map(TurnNo),
    })
}

fn read_writes(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<WriteCount>> {
    let (commits, waited) = (read_optional_count(row, at)?, read_optional_count(row, at + 1)?);
    Ok(commits
        .zip(waited)
        .map(|(commits, waited)| WriteCount { commits, waited: Duration::from_micros(waited) }))
}

fn read_turn_state(row: &Row<'_>, column: usize) -> rusqlite::Result<TurnState> {
    match row.get(column)? {
        0 => Ok(TurnState::Queued),
        1 => Ok(TurnState::Active),
        2 => Ok(TurnState::Ended),
        other => Err(unknown_number(column, other)),
    }
}

fn read_delivery(row: &Row<'_>, column: usize) -> rusqlite::Result<InputDelivery> {
    match row.get(column)? {
        0 => Ok(InputDelivery::Next),
        1 => Ok(InputDelivery::Join),
        other => Err(unknown_number(column, other)),
    }
}
