//! Claims are visible with their session.
use super::VisibleRows;
use crate::rows::{CallRows, CallWrites, ClaimRow, ReadRows, Rows, SessionNo, UnknownCalls};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::CallId;
use outlast_vocab::record::ClaimRef;
use outlast_vocab::{Error, Millis};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> CallRows for VisibleRows<'_, R> {
    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error> {
        self.of(session, || self.rows.claim(session, claim))
    }

    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error> {
        self.of(session, || self.rows.claims(session, turn))
    }
}

impl<R: Deref<Target: ReadRows>> UnknownCalls for VisibleRows<'_, R> {
    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error> {
        let mut visible = Vec::new();
        for row in self.rows.unknown(self.narrow(of), after, limit)? {
            if self.is_visible(row.session)? {
                visible.push(row);
            }
        }
        Ok(visible)
    }
}

impl<R: DerefMut<Target: Rows>> CallWrites for VisibleRows<'_, R> {
    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.put_claim(row)
    }

    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error> {
        self.may_write(session)?;
        self.rows.delete_claim(session, claim)
    }
}
