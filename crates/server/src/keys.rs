//! Keys of requests that last: whether they still count (S28).
//!
//! A key is looked at when a request comes. A stream may outlive its key, so keys that have streams are looked at again and
//! again, each of them once for all its streams.
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

/// How often keys are looked at; a key that was revoked has no streams a second later.
const LOOK: Duration = Duration::from_millis(500);

/// How long an answer may take before its key is looked at again.
pub(crate) const LASTS: Duration = Duration::from_secs(1);

/// Where the key of a request is left for whoever sends the answer.
#[derive(Clone, Default)]
pub(crate) struct Pass(Arc<OnceLock<ApiKey>>);

impl Pass {
    /// The request came in with this key.
    pub(crate) fn with(&self, key: ApiKey) {
        // A request has one key; a second look finds the same one.
        let _ = self.0.set(key);
    }

    /// The key it came in with.
    pub(crate) fn key(&self) -> Option<&ApiKey> {
        self.0.get()
    }
}

/// The keys that have streams.
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

    /// Comes back once a key that was let in counts no more.
    pub(crate) fn over(&self, key: &ApiKey) -> impl Future<Output = ()> + Send + use<> {
        let watched = || Watched { key: key.clone(), over: watch::Sender::new(false) };
        let mut over = self.lock().entry(key.id).or_insert_with(watched).over.subscribe();
        async move {
            // Nobody tells any more: the server has ended, and its streams with it.
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Looks at the keys that have streams, for as long as it is asked to.
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

/// Whether a key still lets somebody in. A store that does not answer says nothing against it.
pub(crate) async fn counts(runtime: &Runtime, key: &ApiKey) -> bool {
    let admitted = runtime.store().admit(key.clone(), runtime.now()).await;
    !admitted.is_err_and(|error| error.kind() == Kind::KeyInvalid)
}
