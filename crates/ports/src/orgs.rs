//! Organisations, API keys, and the audit log.
//!
//! An audit entry is written in the transaction of the action, so neither exists without the other. What a worker
//! writes while it drives a turn is not audited: the journal records that.
use crate::ResultFuture;
use crate::page::Page;
use outlast_views::{AuditRange, AuditRow, KeyView, Org};
use outlast_vocab::access::{Access, ApiKey, Principal, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::{Error, Hash, Millis};

/// A new API key. It contains only the seal of the secret, not the secret.
#[derive(Clone, Debug)]
pub struct SealedApiKey {
    /// Its id.
    pub id: KeyId,
    /// The organisation that it gives access to.
    pub org: OrgId,
    /// The principal in whose name it acts.
    pub by: Principal,
    /// Its scopes, at most those of its creator.
    pub scopes: Scopes,
    /// The hash with which the holder's secret is verified.
    pub seal: Hash,
    /// When it expires.
    pub expires: Option<Millis>,
}

/// Organisations, API keys and the audit log.
pub trait OrgStore: Send + Sync {
    /// Creates an organisation.
    fn create_org(&self, org: Org) -> ResultFuture<'_, ()>;

    /// Returns the organisation with this id. A store that serves one organisation finds only that one.
    fn org(&self, id: OrgId) -> ResultFuture<'_, Org>;

    /// Returns the organisation with this name.
    fn org_by_name(&self, name: String) -> ResultFuture<'_, Org>;

    /// Returns all visible organisations, ordered by name.
    fn orgs(&self) -> ResultFuture<'_, Vec<Org>>;

    /// Returns a page of the organisations after this name.
    fn orgs_after(&self, after: Option<String>, limit: usize) -> ResultFuture<'_, Page<Org, String>>;

    /// Creates an API key.
    fn create_key(&self, key: SealedApiKey, now: Millis) -> ResultFuture<'_, ()>;

    /// Revokes an API key. Requests with it are refused after this.
    fn revoke_key(&self, id: KeyId, now: Millis) -> ResultFuture<'_, KeyView>;

    /// Returns all visible API keys, ordered by age.
    fn keys(&self) -> ResultFuture<'_, Vec<KeyView>>;

    /// Returns a page of the API keys after this one.
    fn keys_after(&self, after: Option<KeyId>, limit: usize) -> ResultFuture<'_, Page<KeyView, KeyId>>;

    /// Returns the access that an API key grants. Unknown, expired and revoked keys get the same error.
    fn authenticate(&self, key: ApiKey, now: Millis) -> ResultFuture<'_, Access>;

    /// Returns the audit entries of a range, in order.
    fn audit(&self, range: AuditRange) -> ResultFuture<'_, Vec<AuditRow>>;
}

/// Finds an organisation by id or name. Text with the form of an id is an id; all other text is a name.
pub async fn find_org(orgs: &(impl OrgStore + ?Sized), named: &str) -> Result<OrgId, Error> {
    if named.strip_prefix(OrgId::NOUN.prefix).is_some_and(|rest| rest.starts_with('_')) {
        return Ok(orgs.org(named.parse()?).await?.id);
    }
    Ok(orgs.org_by_name(named.to_owned()).await?.id)
}
