//! Entries of the audit log are visible within their organisation.
use super::{VisibleRows, invisible_row_error};
use crate::rows::{AuditQueries, AuditWrites, QueryRows, Rows};
use outlast_views::{AuditRange, AuditRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: QueryRows>> AuditQueries for VisibleRows<'_, R> {
    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        self.rows.audit(self.narrow(of), range)
    }
}

impl<R: DerefMut<Target: Rows>> AuditWrites for VisibleRows<'_, R> {
    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error> {
        if !self.covers(row.org) {
            return Err(invisible_row_error());
        }
        self.rows.append_audit(row)
    }
}
