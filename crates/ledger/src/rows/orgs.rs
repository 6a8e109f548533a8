//! Organisations and their API keys.
use super::RowAccess;
use outlast_views::{KeyView, Org};
use outlast_vocab::access::{OrgVisibility, Principal, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::{Error, Hash, Millis};

/// The stored part of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// The organisation that the key gives access to.
    pub org: OrgId,
    /// The principal in whose name the key acts.
    pub by: Principal,
    /// What the key permits.
    pub scopes: Scopes,
    /// The hash that the holder's secret is verified against ([`outlast_vocab::access::ApiKey::seal`]).
    pub seal: Hash,
    /// When the key was created.
    pub created: Millis,
    /// When the key expires.
    pub expires: Option<Millis>,
    /// When the key was revoked.
    pub revoked: Option<Millis>,
}

impl From<KeyRow> for KeyView {
    fn from(row: KeyRow) -> Self {
        let KeyRow { id, org, by, scopes, created, expires, revoked, seal: _ } = row;
        Self { id, org, by, scopes, created, expires, revoked }
    }
}

/// Reads organisations and API keys.
pub trait OrgRows: RowAccess {
    /// Returns the organisation with this id.
    fn org(&self, id: OrgId) -> Result<Option<Org>, Error>;
    /// Returns the organisation with this name.
    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error>;
    /// Returns one API key.
    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error>;
}

/// Lists organisations and API keys.
pub trait OrgQueries: OrgRows {
    /// Returns organisations after a given one, by ascending name.
    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error>;
    /// Returns API keys after a given one, by ascending id.
    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error>;
}

/// Writes organisations and API keys.
pub trait OrgWrites: OrgRows {
    /// Inserts an organisation.
    fn insert_org(&mut self, org: &Org) -> Result<(), Error>;
    /// Inserts or replaces an API key.
    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error>;
}
