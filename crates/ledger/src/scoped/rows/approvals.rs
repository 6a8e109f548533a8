//! Votes and notices are visible with their turn, approvals with their session. Due notices are for the operator.
use super::{VisibleRows, invisible_row_error};
use crate::rows::{
    ApprovalQueries, ApprovalRows, ApprovalWrites, GrantRow, NoticeQueue, NoticeRow, QueryRows, ReadRows,
    Rows, SessionNo, VoteRow,
};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::GrantId;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::{Error, Millis};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> ApprovalRows for VisibleRows<'_, R> {
    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error> {
        self.of_turn(turn, || self.rows.votes(turn))
    }

    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error> {
        self.of_turn(turn, || self.rows.notices(turn))
    }

    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error> {
        match self.rows.grant(id)? {
            Some(row) if self.is_visible(row.session)? => Ok(Some(row)),
            _ => Ok(None),
        }
    }

    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error> {
        self.of(session, || self.rows.session_grants(session))
    }
}

impl<R: Deref<Target: ReadRows>> NoticeQueue for VisibleRows<'_, R> {
    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error> {
        self.operator_only(|| self.rows.notices_due(now, limit))
    }

    fn next_notice(&self) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_notice())
    }
}

impl<R: Deref<Target: QueryRows>> ApprovalQueries for VisibleRows<'_, R> {
    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error> {
        let mut visible = Vec::new();
        for row in self.rows.grants(self.narrow(of), after, limit)? {
            if self.is_visible(row.session)? {
                visible.push(row);
            }
        }
        Ok(visible)
    }
}

impl<R: DerefMut<Target: Rows>> ApprovalWrites for VisibleRows<'_, R> {
    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_vote(row)
    }

    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.delete_vote(row)
    }

    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_notice(row)
    }

    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_notice(turn, key)
    }

    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.put_grant(row)
    }

    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error> {
        if self.grant(id)?.is_some() { self.rows.delete_grant(id) } else { Err(invisible_row_error()) }
    }
}
