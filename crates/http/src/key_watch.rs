//! Rechecks API keys while their requests are still running.
//!
//! A key is checked when its request arrives, but a stream may outlive its key. Therefore, keys with open
//! streams are checked periodically, once for all streams of a key.
use outlast_runtime::Runtime;
use outlast_vocab::Kind;
use outlast_vocab::access::ApiKey;
use outlast_vocab::id::KeyId;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often keys are checked. A revoked key has no streams one second later.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// If an answer takes longer than this, its key is checked again.
pub const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// Passes the API key of a request from the extractor to the middleware.
#[derive(Clone, Default)]
pub struct RequestKey(Arc<OnceLock<ApiKey>>);

impl RequestKey {
    /// Stores the key of the request.
    pub fn record(&self, key: ApiKey) {
        // A request has only one key, so a second call would store the same one.
        let _ = self.0.set(key);
    }

    /// Returns the key of the request.
    pub fn key(&self) -> Option<&ApiKey> {
        self.0.get()
    }
}

/// The keys with open streams.
#[derive(Default)]
pub struct WatchedKeys(Mutex<HashMap<KeyId, WatchedKey>>);

struct WatchedKey {
    key: ApiKey,
    invalidated: watch::Sender<bool>,
}

impl WatchedKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, WatchedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a future that completes when an admitted key becomes invalid.
    pub fn invalidated(&self, key: &ApiKey) -> impl Future<Output = ()> + Send + use<> {
        let watched = || WatchedKey { key: key.clone(), invalidated: watch::Sender::new(false) };
        let mut over = self.lock().entry(key.id).or_insert_with(watched).invalidated.subscribe();
        async move {
            // An error means that the server has stopped, and its streams with it.
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Checks the keys with open streams, until the future is dropped.
    pub async fn run_checks(&self, runtime: &Runtime) -> Infallible {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let keys: Vec<ApiKey> = {
                let mut watched = self.lock();
                watched.retain(|_, watched| watched.invalidated.receiver_count() > 0);
                watched.values().map(|watched| watched.key.clone()).collect()
            };
            for key in keys {
                if !is_still_valid(runtime, &key).await
                    && let Some(gone) = self.lock().remove(&key.id)
                {
                    gone.invalidated.send_replace(true);
                }
            }
        }
    }
}

/// Returns whether a key is still valid. If the store fails, the key counts as valid.
pub async fn is_still_valid(runtime: &Runtime, key: &ApiKey) -> bool {
    let admitted = runtime.store().authenticate(key.clone(), runtime.now()).await;
    !admitted.is_err_and(|error| error.kind() == Kind::KeyInvalid)
}
