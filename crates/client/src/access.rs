//! API keys, organisations, the audit log, and the caller's identity.
use crate::Client;
use outlast_views::{AuditRange, AuditRow, KeyView, Org};
use outlast_vocab::access::{Principal, Scopes};
use outlast_vocab::id::KeyId;
use outlast_vocab::message::Name;
use outlast_vocab::{Error, Millis, OrgId};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// The caller's identity.
#[derive(Clone, Debug, Deserialize)]
pub struct Whoami {
    /// The organisation.
    pub org: OrgId,
    /// The name of the organisation.
    pub name: String,
    /// The principal.
    pub by: String,
    /// The scopes, separated by commas.
    pub scopes: String,
}

/// The settings of a new key.
#[derive(Clone, Debug)]
pub struct ApiKeyRequest<'a> {
    /// The principal that it acts for.
    pub by: &'a Principal,
    /// Its scopes.
    pub scopes: Scopes,
    /// Its lifetime; unlimited if absent.
    pub expires: Option<Duration>,
    /// Its organisation, by name or id; that of the caller's key if absent.
    pub org: Option<&'a str>,
}

#[derive(Deserialize)]
struct ApiKeyJson {
    id: KeyId,
    org: OrgId,
    by: String,
    scopes: String,
    created: Millis,
    expires: Option<Millis>,
    revoked: Option<Millis>,
}

#[derive(Deserialize)]
struct OrgJson {
    id: OrgId,
    name: Name,
    created: Millis,
}

impl From<OrgJson> for Org {
    fn from(OrgJson { id, name, created }: OrgJson) -> Self {
        Self { id, name, created }
    }
}

#[derive(Deserialize)]
struct CreatedKeyJson {
    id: KeyId,
    key: String,
}

#[derive(Deserialize)]
struct AuditEntryJson {
    no: u64,
    at: Millis,
    org: OrgId,
    by: String,
    act: String,
    subject: String,
    detail: String,
}

impl TryFrom<ApiKeyJson> for KeyView {
    type Error = Error;

    fn try_from(
        ApiKeyJson { id, org, by, scopes, created, expires, revoked }: ApiKeyJson,
    ) -> Result<Self, Error> {
        Ok(Self { id, org, by: by.parse()?, scopes: scopes.parse()?, created, expires, revoked })
    }
}

impl Client {
    /// Returns the owner and the scopes of the key.
    pub async fn whoami(&self) -> Result<Whoami, Error> {
        self.get(&["v1", "whoami"], &[]).await
    }

    /// Lists the API keys of the organisation, by age.
    pub async fn keys(&self) -> Result<Vec<KeyView>, Error> {
        let keys: Vec<ApiKeyJson> = self.list(&["v1", "keys"], &[], usize::MAX).await?;
        keys.into_iter().map(KeyView::try_from).collect()
    }

    /// Creates a key. Returns its id and its secret.
    pub async fn create_key(&self, new: ApiKeyRequest<'_>) -> Result<(KeyId, String), Error> {
        let ApiKeyRequest { by, scopes, expires, org } = new;
        let mut body = json!({ "by": by.to_string(), "scopes": scopes.to_string() });
        if let Some(span) = expires {
            body["expires_in_s"] = json!(span.as_secs());
        }
        if let Some(org) = org {
            body["org"] = json!(org);
        }
        let CreatedKeyJson { id, key } = self.post(&["v1", "keys"], &body).await?;
        Ok((id, key))
    }

    /// Revokes a key.
    pub async fn revoke_key(&self, key: KeyId) -> Result<KeyView, Error> {
        let key: ApiKeyJson = self.delete(&["v1", "keys", &key.to_string()]).await?;
        key.try_into()
    }

    /// Lists all organisations, by name.
    pub async fn orgs(&self) -> Result<Vec<Org>, Error> {
        let orgs: Vec<OrgJson> = self.list(&["v1", "orgs"], &[], usize::MAX).await?;
        Ok(orgs.into_iter().map(Org::from).collect())
    }

    /// Creates an organisation.
    pub async fn create_org(&self, name: &Name) -> Result<Org, Error> {
        let made: OrgJson = self.post(&["v1", "orgs"], &json!({ "name": name })).await?;
        Ok(made.into())
    }

    /// Returns the audit log, up to the limit of the range.
    pub async fn audit(&self, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let AuditRange { after, since, limit } = range;
        let query = [("after", after.to_string()), ("since", since.0.to_string())];
        let deeds: Vec<AuditEntryJson> = self.list(&["v1", "audit"], &query, limit).await?;
        let row = |AuditEntryJson { no, at, org, by, act, subject, detail }: AuditEntryJson| {
            Ok(AuditRow { no, at, org, by: by.parse()?, act, subject, detail })
        };
        deeds.into_iter().map(row).collect()
    }
}
