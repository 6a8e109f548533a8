//! The audit log.
use super::Tables;
use super::column::{count, id, limit, read_count, read_id, read_parsed};
use outlast_ledger::rows::{AuditQueries, AuditWrites};
use outlast_views::{AuditRange, AuditRow};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::OrgId;
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

/// The columns of an audit entry, in the order that [`read_audit`] takes them.
macro_rules! act {
    ($rest:literal) => {
        concat!("SELECT no, at, org, principal, act, subject, detail FROM audit ", $rest)
    };
}

// Starts at the first row that can have the requested time, and reads nothing if there is no such row.
pub(super) const AUDIT: &str = act!(
    "WHERE no > max(?1, coalesce((SELECT no - 1 FROM audit WHERE reached >= ?2 ORDER BY reached, no LIMIT 1),
                                 9223372036854775807))
     AND at >= ?2 ORDER BY no LIMIT ?3"
);
pub(super) const AUDIT_OF: &str = act!(
    "WHERE org = ?4
     AND no > max(?1, coalesce((SELECT no - 1 FROM audit WHERE reached >= ?2 ORDER BY reached, no LIMIT 1),
                               9223372036854775807))
     AND at >= ?2 ORDER BY no LIMIT ?3"
);

impl AuditQueries for Tables<'_> {
    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let (after, since, most) = (count(range.after), count(range.since.0), limit(range.limit));
        match of {
            OrgVisibility::Everything => self.all(AUDIT, params![after, since, most], read_audit),
            OrgVisibility::Org(org) => {
                self.all(AUDIT_OF, params![after, since, most, id(org.to_u128())], read_audit)
            }
        }
    }
}

impl AuditWrites for Tables<'_> {
    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error> {
        let AuditRow { no: _, at, org, by, act, subject, detail } = row;
        self.run(
            "INSERT INTO audit (at, org, principal, act, subject, detail, reached) VALUES (?1, ?2, ?3, ?4, ?5, ?6,
             max(?1, coalesce((SELECT reached FROM audit ORDER BY no DESC LIMIT 1), 0)))",
            params![count(at.0), id(org.to_u128()), by.to_string(), act, subject, detail],
        )?;
        Ok(())
    }
}

fn read_audit(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        no: read_count(row, 0)?,
        at: Millis(read_count(row, 1)?),
        org: OrgId::from_u128(read_id(row, 2)?),
        by: read_parsed(row, 3)?,
        act: row.get(4)?,
        subject: row.get(5)?,
        detail: row.get(6)?,
    })
}
