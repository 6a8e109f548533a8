//! API keys, the audit, and who asks.
use crate::Client;
use outlast_ports::orgs::{AuditRange, KeyView, Org};
use outlast_ports::rows::AuditRow;
use outlast_vocab::access::{Principal, Scopes};
use outlast_vocab::id::KeyId;
use outlast_vocab::message::Name;
use outlast_vocab::{Error, Millis, OrgId};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// Who asks.
#[derive(Clone, Debug, Deserialize)]
pub struct Whoami {
    /// The organisation.
    pub org: OrgId,
    /// What that is called.
    pub name: String,
    /// In whose name things are done.
    pub by: String,
    /// What may be done, with commas between.
    pub scopes: String,
}

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// In whose name it acts.
    pub by: &'a Principal,
    /// What it may do.
    pub scopes: Scopes,
    /// For how long it counts; for ever without it.
    pub expires: Option<Duration>,
    /// The organisation it opens, by name or id; that of the caller's own key without it.
    pub org: Option<&'a str>,
}

#[derive(Deserialize)]
struct Key {
    id: KeyId,
    org: OrgId,
    by: String,
    scopes: String,
    created: Millis,
    expires: Option<Millis>,
    revoked: Option<Millis>,
}

#[derive(Deserialize)]
struct Organisation {
    id: OrgId,
    name: Name,
    created: Millis,
}

impl From<Organisation> for Org {
    fn from(Organisation { id, name, created }: Organisation) -> Self {
        Self { id, name, created }
    }
}

#[derive(Deserialize)]
struct Made {
    id: KeyId,
    key: String,
}

#[derive(Deserialize)]
struct Deed {
    no: u64,
    at: Millis,
    org: OrgId,
    by: String,
    act: String,
    subject: String,
    detail: String,
}

impl TryFrom<Key> for KeyView {
    type Error = Error;

    fn try_from(Key { id, org, by, scopes, created, expires, revoked }: Key) -> Result<Self, Error> {
        Ok(Self { id, org, by: by.parse()?, scopes: scopes.parse()?, created, expires, revoked })
    }
}

impl Client {
    /// Whose key it is, and what it may do.
    pub async fn whoami(&self) -> Result<Whoami, Error> {
        self.get(&["v1", "whoami"], &[]).await
    }

    /// The API keys of the organisation, by age.
    pub async fn keys(&self) -> Result<Vec<KeyView>, Error> {
        let keys: Vec<Key> = self.list(&["v1", "keys"], &[], usize::MAX).await?;
        keys.into_iter().map(KeyView::try_from).collect()
    }

    /// Makes a key; gives its id and itself.
    pub async fn create_key(&self, new: NewKey<'_>) -> Result<(KeyId, String), Error> {
        let NewKey { by, scopes, expires, org } = new;
        let mut body = json!({ "by": by.to_string(), "scopes": scopes.to_string() });
        if let Some(span) = expires {
            body["expires_in_s"] = json!(span.as_secs());
        }
        if let Some(org) = org {
            body["org"] = json!(org);
        }
        let Made { id, key } = self.post(&["v1", "keys"], &body).await?;
        Ok((id, key))
    }

    /// Ends the life of a key.
    pub async fn revoke_key(&self, key: KeyId) -> Result<KeyView, Error> {
        let key: Key = self.delete(&["v1", "keys", &key.to_string()]).await?;
        key.try_into()
    }

    /// All organisations, by name.
    pub async fn orgs(&self) -> Result<Vec<Org>, Error> {
        let orgs: Vec<Organisation> = self.list(&["v1", "orgs"], &[], usize::MAX).await?;
        Ok(orgs.into_iter().map(Org::from).collect())
    }

    /// Makes an organisation.
    pub async fn create_org(&self, name: &Name) -> Result<Org, Error> {
        let made: Organisation = self.post(&["v1", "orgs"], &json!({ "name": name })).await?;
        Ok(made.into())
    }

    /// Who did what, up to the limit of the range.
    pub async fn audit(&self, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let AuditRange { after, since, limit } = range;
        let query = [("after", after.to_string()), ("since", since.0.to_string())];
        let deeds: Vec<Deed> = self.list(&["v1", "audit"], &query, limit).await?;
        let row = |Deed { no, at, org, by, act, subject, detail }: Deed| {
            Ok(AuditRow { no, at, org, by: by.parse()?, act, subject, detail })
        };
        deeds.into_iter().map(row).collect()
    }
}
