//! The audit log.
use super::RowAccess;
use outlast_views::{AuditRange, AuditRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;

/// Reads the audit log.
pub trait AuditQueries: RowAccess {
    /// Returns entries of the audit log, by ascending number.
    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error>;
}

/// Writes the audit log.
pub trait AuditWrites: RowAccess {
    /// Adds an entry to the audit log and assigns its number, ignoring the number in the row.
    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error>;
}
