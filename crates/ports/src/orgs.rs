//! Organisations, API keys, and the audit: whose everything is, who may reach it, and what they did.
//!
//! An act is noted in the transaction that does it, so there is never the one without the other (S55). What a worker
//! writes while it drives a turn is not noted: the journal is the record of that.
use crate::Answer;
use crate::ledger;
use crate::page::Page;
use crate::rows::{AuditRow, KeyRow};
use crate::store::Backend;
use outlast_vocab::access::{Access, ApiKey, Principal, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::message::Name;
use outlast_vocab::{Error, Hash, Millis};

/// An organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Org {
    /// Its id.
    pub id: OrgId,
    /// What it is called; unique.
    pub name: Name,
    /// When it was made.
    pub created: Millis,
}

impl Default for Org {
    /// The one that every database has from its beginning.
    fn default() -> Self {
        Self { id: OrgId::DEFAULT, name: "default".parse().expect("it is a name"), created: Millis(0) }
    }
}

/// An API key to be made. Its secret is not in it, only the seal of it.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its id.
    pub id: KeyId,
    /// The organisation it opens.
    pub org: OrgId,
    /// In whose name it acts.
    pub by: Principal,
    /// What it may do; no more than whoever makes it.
    pub scopes: Scopes,
    /// What its holder's secret is held against.
    pub seal: Hash,
    /// From when on it counts no more.
    pub expires: Option<Millis>,
}

/// An API key as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Its id.
    pub id: KeyId,
    /// The organisation it opens.
    pub org: OrgId,
    /// In whose name it acts.
    pub by: Principal,
    /// What it may do.
    pub scopes: Scopes,
    /// When it was made.
    pub created: Millis,
    /// From when on it counts no more.
    pub expires: Option<Millis>,
    /// Since when it counts no more because somebody said so.
    pub revoked: Option<Millis>,
}

impl From<KeyRow> for KeyView {
    fn from(row: KeyRow) -> Self {
        let KeyRow { id, org, by, scopes, created, expires, revoked, seal: _ } = row;
        Self { id, org, by, scopes, created, expires, revoked }
    }
}

/// Which part of the audit to read.
#[derive(Clone, Copy, Debug)]
pub struct AuditRange {
    /// After this number.
    pub after: u64,
    /// Not before this time.
    pub since: Millis,
    /// How many at most.
    pub limit: usize,
}

/// Whose everything is, who may reach it, and what they did.
pub trait Orgs: Send + Sync {
    /// Makes an organisation.
    fn create_org(&self, org: Org) -> Answer<'_, ()>;

    /// The organisation with this id. Who serves one organisation finds only that.
    fn org(&self, id: OrgId) -> Answer<'_, Org>;

    /// The organisation with this name.
    fn org_by_name(&self, name: String) -> Answer<'_, Org>;

    /// All organisations that are shown, by name.
    fn orgs(&self) -> Answer<'_, Vec<Org>>;

    /// A page of them, behind the one with this name.
    fn orgs_after(&self, after: Option<String>, limit: usize) -> Answer<'_, Page<Org, String>>;

    /// Makes an API key.
    fn create_key(&self, key: NewKey, now: Millis) -> Answer<'_, ()>;

    /// Ends the life of an API key. Who comes with it from now on is refused.
    fn revoke_key(&self, id: KeyId, now: Millis) -> Answer<'_, KeyView>;

    /// The API keys that are shown, by age.
    fn keys(&self) -> Answer<'_, Vec<KeyView>>;

    /// A page of them, behind one.
    fn keys_after(&self, after: Option<KeyId>, limit: usize) -> Answer<'_, Page<KeyView, KeyId>>;

    /// What an API key gives access to. A key that was never made, has expired or was revoked gets one answer.
    fn admit(&self, key: ApiKey, now: Millis) -> Answer<'_, Access>;

    /// What was done, in order.
    fn audit(&self, range: AuditRange) -> Answer<'_, Vec<AuditRow>>;
}

/// The organisation that a person names: what looks like an id is one, everything else is a name.
pub async fn find(orgs: &(impl Orgs + ?Sized), named: &str) -> Result<OrgId, Error> {
    if named.strip_prefix(OrgId::NOUN.prefix).is_some_and(|rest| rest.starts_with('_')) {
        return Ok(orgs.org(named.parse()?).await?.id);
    }
    Ok(orgs.org_by_name(named.to_owned()).await?.id)
}

impl<B: Backend> Orgs for B {
    fn create_org(&self, org: Org) -> Answer<'_, ()> {
        self.write(move |rows| ledger::create_org(rows, &org))
    }

    fn org(&self, id: OrgId) -> Answer<'_, Org> {
        self.read(move |rows| ledger::org(rows, id))
    }

    fn org_by_name(&self, name: String) -> Answer<'_, Org> {
        self.read(move |rows| ledger::org_by_name(rows, &name))
    }

    fn orgs(&self) -> Answer<'_, Vec<Org>> {
        self.read(|rows| rows.orgs(None, usize::MAX))
    }

    fn orgs_after(&self, after: Option<String>, limit: usize) -> Answer<'_, Page<Org, String>> {
        self.read(move |rows| ledger::orgs_after(rows, after.as_deref(), limit))
    }

    fn create_key(&self, key: NewKey, now: Millis) -> Answer<'_, ()> {
        self.write(move |rows| ledger::create_key(rows, key, now))
    }

    fn revoke_key(&self, id: KeyId, now: Millis) -> Answer<'_, KeyView> {
        self.write(move |rows| ledger::revoke_key(rows, id, now))
    }

    fn keys(&self) -> Answer<'_, Vec<KeyView>> {
        self.read(|rows| Ok(ledger::keys(rows, None, usize::MAX)?.items))
    }

    fn keys_after(&self, after: Option<KeyId>, limit: usize) -> Answer<'_, Page<KeyView, KeyId>> {
        self.read(move |rows| ledger::keys(rows, after, limit))
    }

    fn admit(&self, key: ApiKey, now: Millis) -> Answer<'_, Access> {
        self.read(move |rows| ledger::admit(rows, &key, now))
    }

    fn audit(&self, range: AuditRange) -> Answer<'_, Vec<AuditRow>> {
        self.read(move |rows| ledger::audit(rows, range))
    }
}
