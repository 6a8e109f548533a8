//! Claims of tool calls.
use super::Tables;
use super::column::{count, id, id_lower_bound, limit, read_count, read_id};
use outlast_ledger::rows::{CallRows, CallWrites, ClaimRow, SessionNo, UnknownCalls};
use outlast_ports::turns::{Fence, TurnNo};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::CallId;
use outlast_vocab::record::{ClaimRef, Seq};
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

/// The columns of a claim, in the order that [`read_claim`] takes them.
macro_rules! claim {
    ($rest:literal) => {
        concat!("SELECT session, asked, child, turn, call, fence, unknown, since FROM claims ", $rest)
    };
}

pub(super) const UNKNOWN: &str =
    claim!("WHERE unknown = 1 AND (since, call) > (?1, ?2) ORDER BY since, call LIMIT ?3");
pub(super) const UNKNOWN_OF: &str =
    claim!("WHERE unknown = 1 AND org = ?4 AND (since, call) > (?1, ?2) ORDER BY since, call LIMIT ?3");

impl CallRows for Tables<'_> {
    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error> {
        let sql = claim!("WHERE session = ?1 AND asked = ?2 AND child = ?3");
        self.one(sql, params![session.0, count(claim.asked.0), claim.child], read_claim)
    }

    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error> {
        let sql = claim!("WHERE session = ?1 AND turn = ?2 ORDER BY asked, child");
        self.all(sql, params![session.0, turn.0], read_claim)
    }
}

impl UnknownCalls for Tables<'_> {
    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        most: usize,
    ) -> Result<Vec<ClaimRow>, Error> {
        let since = after.map_or(-1, |(since, _)| count(since.0));
        let (call, most) = (id_lower_bound(after.map(|(_, call)| call.to_u128())), limit(most));
        match of {
            OrgVisibility::Everything => self.all(UNKNOWN, params![since, call, most], read_claim),
            OrgVisibility::Org(org) => {
                self.all(UNKNOWN_OF, params![since, call, most, id(org.to_u128())], read_claim)
            }
        }
    }
}

impl CallWrites for Tables<'_> {
    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO claims (session, asked, child, turn, call, fence, unknown, since, org)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CASE WHEN ?7 THEN (SELECT org FROM sessions WHERE no = ?1) END)
             ON CONFLICT (session, asked, child)
             DO UPDATE SET turn = ?4, call = ?5, fence = ?6, unknown = ?7, since = ?8, org = excluded.org",
            params![
                row.session.0,
                count(row.claim.asked.0),
                row.claim.child,
                row.turn.0,
                id(row.call.to_u128()),
                count(row.fence.0),
                row.unknown,
                count(row.since.0),
            ],
        )?;
        Ok(())
    }

    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error> {
        self.run(
            "DELETE FROM claims WHERE session = ?1 AND asked = ?2 AND child = ?3",
            params![session.0, count(claim.asked.0), claim.child],
        )?;
        Ok(())
    }
}

fn read_claim(row: &Row<'_>) -> rusqlite::Result<ClaimRow> {
    Ok(ClaimRow {
        session: SessionNo(row.get(0)?),
        claim: ClaimRef { asked: Seq(read_count(row, 1)?), child: row.get(2)? },
        turn: TurnNo(row.get(3)?),
        call: CallId::from_u128(read_id(row, 4)?),
        fence: Fence(read_count(row, 5)?),
        unknown: row.get(6)?,
        since: Millis(read_count(row, 7)?),
    })
}
