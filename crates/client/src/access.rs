//! API keys, organisations, the audit log, and the caller's identity.
use crate::Client;
use outlast_api::about::CallerIdentity;
use outlast_api::access::{ApiKeyResource, AuditEntryResource, AuditParams, IssuedApiKey, NewApiKey};
use outlast_api::access::{NewOrgRequest, OrgResource};
use outlast_views::{AuditRange, AuditRow, KeyView, Org};
use outlast_vocab::Error;
use outlast_vocab::id::KeyId;
use outlast_vocab::message::Name;

impl Client {
    /// Returns the owner and the scopes of the key.
    pub async fn whoami(&self) -> Result<CallerIdentity, Error> {
        self.get(&["v1", "whoami"], &()).await
    }

    /// Lists the API keys of the organisation, by age.
    pub async fn keys(&self) -> Result<Vec<KeyView>, Error> {
        let keys: Vec<ApiKeyResource> = self.list(&["v1", "keys"], &(), usize::MAX).await?;
        keys.into_iter().map(KeyView::try_from).collect()
    }

    /// Creates a key. Returns its id and its secret.
    pub async fn create_key(&self, new: &NewApiKey) -> Result<(KeyId, String), Error> {
        let IssuedApiKey { id, key } = self.post(&["v1", "keys"], new).await?;
        Ok((id, key))
    }

    /// Revokes a key.
    pub async fn revoke_key(&self, key: KeyId) -> Result<KeyView, Error> {
        let key: ApiKeyResource = self.delete(&["v1", "keys", &key.to_string()]).await?;
        key.try_into()
    }

    /// Lists all organisations, by name.
    pub async fn orgs(&self) -> Result<Vec<Org>, Error> {
        let orgs: Vec<OrgResource> = self.list(&["v1", "orgs"], &(), usize::MAX).await?;
        orgs.into_iter().map(Org::try_from).collect()
    }

    /// Creates an organisation.
    pub async fn create_org(&self, name: Name) -> Result<Org, Error> {
        let org: OrgResource = self.post(&["v1", "orgs"], &NewOrgRequest { name }).await?;
        org.try_into()
    }

    /// Returns the audit log, up to the limit of the range.
    pub async fn audit(&self, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let AuditRange { after, since, limit } = range;
        let params = AuditParams { after: Some(after), since: Some(since.0), ..AuditParams::default() };
        let entries: Vec<AuditEntryResource> = self.list(&["v1", "audit"], &params, limit).await?;
        entries.into_iter().map(AuditRow::try_from).collect()
    }
}
