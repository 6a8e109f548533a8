//! The journal: records, the feed of all sessions, and replies that are still being streamed.
use super::Tables;
use super::column::{count, id, json, limit, read_count, read_hash, read_json, read_optional_count};
use outlast_ledger::rows::{
    FeedQueries, FeedRows, JournalRows, JournalWrites, PartialRow, RecordBody, RecordRange, RecordRow,
    SessionNo,
};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

/// The columns of a record, in the order that [`read_record`] takes them.
macro_rules! record {
    ($rest:literal) => {
        concat!("SELECT pos, session, seq, turn, at, node, hash, body, blob FROM records ", $rest)
    };
}

pub(super) use record;

impl JournalRows for Tables<'_> {
    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error> {
        let RecordRange { session, turn, nodes_only, from, to, limit: most } = range;
        let sql = record!(
            "WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 AND (?4 IS NULL OR turn = ?4) AND node >= ?5
             ORDER BY seq LIMIT ?6"
        );
        let turn = turn.map(|turn| turn.0);
        let params = params![session.0, count(from.0), count(to.0), turn, i64::from(nodes_only), limit(most)];
        self.all(sql, params, |row| read_record(row).map(|(_, record)| record))
    }

    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error> {
        let sql = "SELECT turn, start, key, attempt, text FROM partials WHERE turn = ?1 ORDER BY start";
        self.all(sql, [turn.0], read_partial)
    }
}

impl FeedRows for Tables<'_> {
    fn feed(&self, of: OrgVisibility, after: u64, most: usize) -> Result<Vec<(u64, RecordRow)>, Error> {
        let (after, most) = (count(after), limit(most));
        match of {
            OrgVisibility::Everything => {
                let sql = record!("WHERE pos > ?1 ORDER BY pos LIMIT ?2");
                self.all(sql, params![after, most], read_record)
            }
            OrgVisibility::Org(org) => {
                let sql = record!(
                    "WHERE pos > ?1 AND (SELECT org FROM sessions WHERE no = records.session) = ?3
                     ORDER BY pos LIMIT ?2"
                );
                self.all(sql, params![after, most, id(org.to_u128())], read_record)
            }
        }
    }

    fn feed_end(&self) -> Result<u64, Error> {
        let end = self.one("SELECT max(pos) FROM records", [], |row| read_optional_count(row, 0))?;
        Ok(end.flatten().unwrap_or(0))
    }
}

impl FeedQueries for Tables<'_> {
    fn feed_length(&self, after: u64) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM records WHERE pos > ?1";
        Ok(self.one(sql, [count(after)], |row| read_count(row, 0))?.unwrap_or(0))
    }
}

impl JournalWrites for Tables<'_> {
    fn append(&mut self, row: &RecordRow) -> Result<(), Error> {
        let (body, blob) = match &row.body {
            RecordBody::Inline(body) => (Some(body.as_slice()), None),
            RecordBody::Blob(hash) => (None, Some(hash.as_bytes())),
        };
        self.run(
            "INSERT INTO records (session, seq, turn, at, node, hash, body, blob)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                row.session.0,
                count(row.seq.0),
                row.turn.map(|turn| turn.0),
                count(row.at.0),
                row.node,
                row.hash.as_bytes(),
                body,
                blob,
            ],
        )?;
        Ok(())
    }

    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error> {
        let PartialRow { turn, key, attempt, start, text } = row;
        self.run(
            "INSERT INTO partials (turn, start, key, attempt, text) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (turn, start) DO UPDATE SET key = ?3, attempt = ?4, text = ?5",
            params![turn.0, count(*start as u64), json(key)?, attempt, text],
        )?;
        Ok(())
    }

    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.run("DELETE FROM partials WHERE turn = ?1", [turn.0])?;
        Ok(())
    }
}

pub(super) fn read_record(row: &Row<'_>) -> rusqlite::Result<(u64, RecordRow)> {
    let body = match row.get::<_, Option<Vec<u8>>>(7)? {
        Some(body) => RecordBody::Inline(body),
        None => RecordBody::Blob(read_hash(row, 8)?),
    };
    let record = RecordRow {
        session: SessionNo(row.get(1)?),
        seq: Seq(read_count(row, 2)?),
        turn: row.get::<_, Option<i64>>(3)?.map(TurnNo),
        at: Millis(read_count(row, 4)?),
        node: row.get(5)?,
        hash: read_hash(row, 6)?,
        body,
    };
    Ok((read_count(row, 0)?, record))
}

fn read_partial(row: &Row<'_>) -> rusqlite::Result<PartialRow> {
    Ok(PartialRow {
        turn: TurnNo(row.get(0)?),
        start: usize::try_from(read_count(row, 1)?).unwrap_or(usize::MAX),
        key: read_json(row, 2)?,
        attempt: row.get(3)?,
        text: row.get(4)?,
    })
}
