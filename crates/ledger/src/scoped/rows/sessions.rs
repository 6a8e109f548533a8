//! Sessions are visible within their organisation, and heads with their session.
use super::{VisibleRows, invisible_row_error};
use crate::rows::{
    QueryRows, ReadRows, RecordAddress, Rows, SessionNo, SessionQueries, SessionRow, SessionRows,
    SessionWrites,
};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{OrgId, SessionId};
use outlast_vocab::record::TurnEndKind;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> SessionRows for VisibleRows<'_, R> {
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error> {
        Ok(self.rows.session(no)?.and_then(|row| self.session_seen(row)))
    }

    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.rows.session_by_id(id)?.and_then(|row| self.session_seen(row)))
    }

    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error> {
        Ok(self.rows.session_by_key(org, key)?.and_then(|row| self.session_seen(row)))
    }

    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error> {
        self.of(of, || self.rows.forks(of))
    }

    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error> {
        self.of(session, || self.rows.heads(session))
    }

    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error> {
        self.of(session, || self.rows.head(session, name))
    }
}

impl<R: Deref<Target: QueryRows>> SessionQueries for VisibleRows<'_, R> {
    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let rows = self.rows.sessions(self.narrow(of), before, limit)?;
        Ok(rows.into_iter().filter_map(|row| self.session_seen(row)).collect())
    }

    fn count_last_ended(&self, end: TurnEndKind, limit: usize) -> Result<usize, Error> {
        self.operator_only(|| self.rows.count_last_ended(end, limit))
    }
}

impl<R: DerefMut<Target: Rows>> SessionWrites for VisibleRows<'_, R> {
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error> {
        if !self.covers(row.org) {
            return Err(invisible_row_error());
        }
        let no = self.rows.insert_session(row)?;
        self.seen.get_mut().sessions.insert(no);
        Ok(no)
    }

    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error> {
        self.may_write(row.no)?;
        self.rows.put_session(row)
    }

    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error> {
        self.may_write(no)?;
        self.rows.delete_session(no)
    }

    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error> {
        self.may_write(session)?;
        self.rows.put_head(session, name, node)
    }
}
