//! Organisations, API keys and the audit log.
use outlast_vocab::Millis;
use outlast_vocab::access::{Principal, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::message::Name;

/// An organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Org {
    /// Its id.
    pub id: OrgId,
    /// Its unique name.
    pub name: Name,
    /// When it was created.
    pub created: Millis,
}

impl Default for Org {
    /// The organisation that every database has from the start.
    fn default() -> Self {
        Self { id: OrgId::DEFAULT, name: "default".parse().expect("it is a name"), created: Millis(0) }
    }
}

/// An API key as shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Its id.
    pub id: KeyId,
    /// The organisation that it gives access to.
    pub org: OrgId,
    /// The principal in whose name it acts.
    pub by: Principal,
    /// Its scopes.
    pub scopes: Scopes,
    /// When it was created.
    pub created: Millis,
    /// When it expires.
    pub expires: Option<Millis>,
    /// When it was revoked.
    pub revoked: Option<Millis>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number. Numbers are assigned in the order of the entries.
    pub no: u64,
    /// When the action was done.
    pub at: Millis,
    /// The organisation in which it was done.
    pub org: OrgId,
    /// The principal that did it.
    pub by: Principal,
    /// The name of the action ([`outlast_vocab::access::AuditAction::name`]).
    pub act: String,
    /// The object of the action, usually an id.
    pub subject: String,
    /// Further details for people. Contains neither arguments nor results.
    pub detail: String,
}

/// A range of the audit log.
#[derive(Clone, Copy, Debug)]
pub struct AuditRange {
    /// Only entries after this number.
    pub after: u64,
    /// Only entries at or after this time.
    pub since: Millis,
    /// The maximum number of entries.
    pub limit: usize,
}
