//! The state that extractors and handlers of all APIs need.
use crate::caller_limits::{CallerRequestLimiter, StreamLimiter};
use crate::open_requests::OpenRequests;
use crate::rate_limit::{InvalidKeyLimiter, RequestRateLimiter};
use crate::request_auth::OriginPolicy;
use outlast_runtime::Runtime;
use outlast_vocab::limits::ServerLimits;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::watch;

/// The state that extractors and handlers of all APIs need. Cheap to clone.
#[derive(Clone)]
pub struct HttpState(Arc<HttpStateInner>);

/// The fields of [`HttpState`].
pub struct HttpStateInner {
    /// The worker, with access to every organisation. Handlers get a handle that is limited to their caller.
    pub runtime: Runtime,
    /// Which requests the server lets in.
    pub origin_policy: OriginPolicy,
    /// The limits of the server.
    pub limits: ServerLimits,
    /// The open event streams.
    pub streams: StreamLimiter,
    /// The concurrent requests of each caller.
    pub caller_requests: CallerRequestLimiter,
    /// The requests whose turns a repeated request may join.
    pub open_requests: OpenRequests,
    /// Requests with invalid keys, per network.
    pub invalid_keys: InvalidKeyLimiter,
    /// Requests per minute of each API key.
    pub quotas: RequestRateLimiter,
    /// Whether the server is shutting down.
    pub stopping: watch::Receiver<bool>,
}

impl HttpState {
    /// Shares the state.
    pub fn new(inner: HttpStateInner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Deref for HttpState {
    type Target = HttpStateInner;

    fn deref(&self) -> &HttpStateInner {
        &self.0
    }
}
