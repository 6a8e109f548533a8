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
const LOOK: Duration = Duration::from_millis(500);

/// If an answer takes longer than this, its key is checked again.
pub(crate) const LASTS: Duration = Duration::from_secs(1);

/// Passes the API key of a request from the extractor to the middleware.
#[derive(Clone, Default)]
pub(crate) struct Pass(Arc<OnceLock<ApiKey>>);

impl Pass {
    /// Stores the key of the request.
    pub(crate) fn with(&self, key: ApiKey) {
        // A request has only one key, so a second call would store the same one.
        let _ = self.0.set(key);
    }

    /// Returns the key of the request.
    pub(crate) fn key(&self) -> Option<&ApiKey> {
        self.0.get()
    }
}

/// The keys with open streams.
#[derive(Default)]
pub(crate) struct Keys(Mutex<HashMap<KeyId, Watched>>);

struct Watched {
    key: ApiKey,
    over: watch::Sender<bool>,
}

impl Keys {
    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a future that completes when an admitted key becomes invalid.
    pub(crate) fn over(&self, key: &ApiKey) -> impl Future<Output = ()> + Send + use<> {
        let watched = || Watched { key: key.clone(), over: watch::Sender::new(false) };
        let mut over = self.lock().entry(key.id).or_insert_with(watched).over.subscribe();
        async move {
            // An error means that the server has stopped, and its streams with it.
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Checks the keys with open streams, until the future is dropped.
    pub(crate) async fn look(&self, runtime: &Runtime) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            let keys: Vec<ApiKey> = {
                let mut watched = self.lock();
                watched.retain(|_, watched| watched.over.receiver_count() > 0);
                watched.values().map(|watched| watched.key.clone()).collect()
            };
            for key in keys {
                if !counts(runtime, &key).await
                    && let Some(gone) = self.lock().remove(&key.id)
                {
                    gone.over.send_replace(true);
                }
            }
        }
    }
}

/// Returns whether a key is still valid. If the store fails, the key counts as valid.
pub(crate) async fn counts(runtime: &Runtime, key: &ApiKey) -> bool {
    let admitted = runtime.store().admit(key.clone(), runtime.now()).await;
    !admitted.is_err_and(|error| error.kind() == Kind::KeyInvalid)
}
