//! Claims of tool calls.
use super::{Tables, page};
use crate::rows::{CallRows, CallWrites, ClaimRow, SessionNo, UnknownCalls};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::CallId;
use outlast_vocab::record::ClaimRef;
use outlast_vocab::{Error, Millis};

impl CallRows for Tables {
    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error> {
        Ok(self.claims.get(&(session, claim)).cloned())
    }

    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error> {
        let ours = self.claims.values().filter(|row| row.session == session && row.turn == turn);
        Ok(ours.cloned().collect())
    }
}

impl UnknownCalls for Tables {
    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error> {
        let place = |row: &&ClaimRow| (row.since, row.call);
        let visible =
            |row: &&ClaimRow| row.unknown && self.covers(of, row.session) && Some(place(row)) > after;
        let mut rows: Vec<&ClaimRow> = self.claims.values().filter(visible).collect();
        rows.sort_by_key(place);
        Ok(page(rows.into_iter(), limit))
    }
}

impl CallWrites for Tables {
    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.claims, (row.session, row.claim), Some(row.clone()));
        Ok(())
    }

    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error> {
        self.set(|tables| &mut tables.claims, (session, claim), None);
        Ok(())
    }
}
