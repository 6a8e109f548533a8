//! API keys as they are made: random bits that only their holder gets (S28).
use outlast_ports::clock::Entropy;
use outlast_ports::orgs::NewKey;
use outlast_ports::store::Store;
use outlast_vocab::access::{ApiKey, Principal, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::{Error, Millis};

/// What an API key is to give.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The organisation it is to open.
    pub org: OrgId,
    /// In whose name it acts.
    pub by: Principal,
    /// What it may do.
    pub scopes: Scopes,
    /// From when on it counts no more.
    pub expires: Option<Millis>,
}

/// Makes an API key. What comes back is shown once: the store keeps the seal of it, under the secret of its database.
pub async fn issue(
    store: &dyn Store,
    secret: &[u8; 32],
    grant: Grant,
    now: Millis,
    entropy: &dyn Entropy,
) -> Result<ApiKey, Error> {
    let Grant { org, by, scopes, expires } = grant;
    let mut random = [0; 32];
    random[..16].copy_from_slice(&entropy.random());
    random[16..].copy_from_slice(&entropy.random());
    let key = ApiKey::new(KeyId::fresh(now, entropy.for_id()), random);
    store.create_key(NewKey { id: key.id, org, by, scopes, seal: key.seal(secret), expires }, now).await?;
    Ok(key)
}
