//! The state that all requests share.
use crate::admission_control::AdmissionControl;
use crate::caller_limits::{CallerRequestLimiter, StreamLimiter};
use crate::cost_cache::CostCache;
use crate::key_watch::WatchedKeys;
use crate::metrics::HttpMetrics;
use crate::rate_limit::{InvalidKeyLimiter, RequestRateLimiter};
use crate::request_auth::OriginPolicy;
use crate::rerun::RerunLimiter;
use crate::session_broadcast::SessionBroadcasts;
use outlast_mcp_server::McpEndpoint;
use outlast_ports::metrics::MetricsSnapshot;
use outlast_runtime::Runtime;
use outlast_vocab::OrgId;
use outlast_vocab::limits::ServerLimits;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ServerState(Arc<ServerStateInner>);

pub(crate) struct ServerStateInner {
    /// The worker, with access to every organisation. Handlers get a handle that is limited to their caller.
    pub(crate) runtime: Runtime,
    /// The organisation that the server runs for. Agents are loaded from its configurations.
    pub(crate) home: OrgId,
    pub(crate) origin_policy: OriginPolicy,
    pub(crate) limits: ServerLimits,
    /// The key that signs cursors.
    pub(crate) secret: [u8; 32],
    pub(crate) metrics: HttpMetrics,
    pub(crate) streams: StreamLimiter,
    /// The shared readers behind the streams.
    pub(crate) broadcasts: SessionBroadcasts,
    pub(crate) caller_requests: CallerRequestLimiter,
    pub(crate) admission: AdmissionControl,
    pub(crate) keys: WatchedKeys,
    pub(crate) invalid_keys: InvalidKeyLimiter,
    /// The MCP endpoint.
    pub(crate) mcp: McpEndpoint,
    pub(crate) quotas: RequestRateLimiter,
    pub(crate) reruns: RerunLimiter,
    /// Limits concurrent verifications of hash chains.
    pub(crate) verifications: Semaphore,
    pub(crate) cost_cache: CostCache,
    /// Formats the metrics of the worker.
    pub(crate) worker_metrics: Option<fn(&MetricsSnapshot) -> String>,
    /// Whether the server is shutting down.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl ServerState {
    pub(crate) fn new(inner: ServerStateInner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Deref for ServerState {
    type Target = ServerStateInner;

    fn deref(&self) -> &ServerStateInner {
        &self.0
    }
}
