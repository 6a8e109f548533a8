//! API keys, the audit log and organisations.
use outlast_views::{AuditRow, KeyView, Org};
use outlast_vocab::access::{Principal, Scopes};
use outlast_vocab::id::KeyId;
use outlast_vocab::message::Name;
use outlast_vocab::{Error, Millis, OrgId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// An API key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ApiKey)]
pub struct ApiKeyResource {
    /// The id of the key.
    #[schema(value_type = String)]
    pub id: KeyId,
    /// The id of the organisation that the key gives access to.
    #[schema(value_type = String)]
    pub org: OrgId,
    /// The person or service that the key acts for.
    pub by: String,
    /// The scopes of the key, separated by commas.
    pub scopes: String,
    /// When the key was created, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub created: Millis,
    /// When the key expires, as a Unix timestamp in milliseconds. Absent if it never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub expires: Option<Millis>,
    /// When the key was revoked, as a Unix timestamp in milliseconds. Absent if it is not revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub revoked: Option<Millis>,
}

impl From<KeyView> for ApiKeyResource {
    fn from(KeyView { id, org, by, scopes, created, expires, revoked }: KeyView) -> Self {
        Self { id, org, by: by.to_string(), scopes: scopes.to_string(), created, expires, revoked }
    }
}

impl TryFrom<ApiKeyResource> for KeyView {
    type Error = Error;

    fn try_from(key: ApiKeyResource) -> Result<Self, Error> {
        let ApiKeyResource { id, org, by, scopes, created, expires, revoked } = key;
        Ok(Self { id, org, by: by.parse()?, scopes: scopes.parse()?, created, expires, revoked })
    }
}

/// An API key to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// The person or service that the key acts for, such as `service:ci` or `person:ann`.
    #[schema(value_type = String, example = "service:ci")]
    pub by: Principal,
    /// The scopes of the key, separated by commas: `read`, `run`, `approve`, `operate` or `admin`.
    #[schema(value_type = String, example = "run,approve")]
    pub scopes: Scopes,
    /// The lifetime of the key in seconds. If absent, the key never expires.
    pub expires_in_s: Option<u64>,
    /// The name or id of the organisation that the key gives access to. Defaults to the caller's
    /// organisation. Naming another one requires a key of the default organisation.
    #[schema(example = "acme")]
    pub org: Option<String>,
}

// Not `Debug`, because it contains the secret.
/// A new API key.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct IssuedApiKey {
    /// The id of the key.
    #[schema(value_type = String)]
    pub id: KeyId,
    /// The secret key. This response is the only place where it is shown.
    pub key: String,
}

/// Parameters that select a part of the audit log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Return entries after the entry with this number.
    pub after: Option<u64>,
    /// Return entries from this time, as a Unix timestamp in milliseconds.
    pub since: Option<u64>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `after`.
    pub cursor: Option<String>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntryResource {
    /// The number of the entry, for `after`.
    pub no: u64,
    /// When the action happened, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// The id of the organisation.
    #[schema(value_type = String)]
    pub org: OrgId,
    /// The person or service that acted.
    pub by: String,
    /// The action: `turn.cancel`, `approval.approve`, `session.delete`, …
    pub act: String,
    /// The object of the action.
    pub subject: String,
    /// Details of the action.
    pub detail: String,
}

impl From<AuditRow> for AuditEntryResource {
    fn from(AuditRow { no, at, org, by, act, subject, detail }: AuditRow) -> Self {
        Self { no, at, org, by: by.to_string(), act, subject, detail }
    }
}

impl TryFrom<AuditEntryResource> for AuditRow {
    type Error = Error;

    fn try_from(entry: AuditEntryResource) -> Result<Self, Error> {
        let AuditEntryResource { no, at, org, by, act, subject, detail } = entry;
        Ok(Self { no, at, org, by: by.parse()?, act, subject, detail })
    }
}

/// An organisation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Org)]
pub struct OrgResource {
    /// The id of the organisation.
    #[schema(value_type = String)]
    pub id: OrgId,
    /// The name of the organisation. Names are unique.
    pub name: String,
    /// When the organisation was created, as a Unix timestamp in milliseconds. The default organisation
    /// always exists.
    #[schema(value_type = u64)]
    pub created: Millis,
}

impl From<Org> for OrgResource {
    fn from(Org { id, name, created }: Org) -> Self {
        Self { id, name: name.to_string(), created }
    }
}

impl TryFrom<OrgResource> for Org {
    type Error = Error;

    fn try_from(OrgResource { id, name, created }: OrgResource) -> Result<Self, Error> {
        Ok(Self { id, name: name.parse()?, created })
    }
}

/// An organisation to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOrgRequest {
    /// The name of the organisation. Names are unique.
    #[schema(value_type = String, example = "acme")]
    pub name: Name,
}
