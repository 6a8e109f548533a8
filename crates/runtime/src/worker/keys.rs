//! Issues API keys: random bits that only the holder receives.
use outlast_ports::clock::Entropy;
use outlast_ports::orgs::SealedApiKey;
use outlast_ports::store::Store;
use outlast_vocab::access::{ApiKey, Principal, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::{Error, Millis};

/// What an API key grants.
#[derive(Clone, Debug)]
pub struct ApiKeyGrant {
    /// The organisation it gives access to.
    pub org: OrgId,
    /// The principal it acts as.
    pub by: Principal,
    /// What it may do.
    pub scopes: Scopes,
    /// When it expires.
    pub expires: Option<Millis>,
}

/// Issues an API key. It can be shown only once: the store keeps a seal of it, made with the database's
/// secret.
pub async fn issue(
    store: &dyn Store,
    secret: &[u8; 32],
    grant: ApiKeyGrant,
    now: Millis,
    entropy: &dyn Entropy,
) -> Result<ApiKey, Error> {
    let ApiKeyGrant { org, by, scopes, expires } = grant;
    let mut random = [0; 32];
    random[..16].copy_from_slice(&entropy.random());
    random[16..].copy_from_slice(&entropy.random());
    let key = ApiKey::new(KeyId::fresh(now, entropy.random_id_bytes()), random);
    store
        .create_key(SealedApiKey { id: key.id, org, by, scopes, seal: key.seal(secret), expires }, now)
        .await?;
    Ok(key)
}
