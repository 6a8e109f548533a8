//! The audit log.
use super::{Tables, page};
use crate::rows::{AuditQueries, AuditWrites};
use outlast_views::{AuditRange, AuditRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;

impl AuditQueries for Tables {
    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let AuditRange { after, since, limit } = range;
        let later = self.audit.range(after.saturating_add(1)..).map(|(_, row)| row);
        Ok(page(later.filter(|row| row.at >= since && of.covers(row.org)), limit))
    }
}

impl AuditWrites for Tables {
    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error> {
        self.last.act += 1;
        let no = self.last.act;
        self.set(|tables| &mut tables.audit, no, Some(AuditRow { no, ..row.clone() }));
        Ok(())
    }
}
