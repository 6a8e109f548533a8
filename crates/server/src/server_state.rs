//! The state that all requests share.
use crate::cost_cache::CostCache;
use crate::metrics::HttpMetrics;
use crate::rerun::RerunLimiter;
use crate::session_broadcast::SessionBroadcasts;
use axum::extract::FromRef;
use outlast_http::HttpState;
use outlast_http::admission_control::AdmissionControl;
use outlast_http::key_watch::WatchedKeys;
use outlast_mcp_server::McpEndpoint;
use outlast_ports::metrics::MetricsSnapshot;
use outlast_vocab::OrgId;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ServerState(Arc<ServerStateInner>);

pub(crate) struct ServerStateInner {
    /// The state that the compatible endpoints need, too.
    pub(crate) http: HttpState,
    /// The organisation that the server runs for. Agents are loaded from its configurations.
    pub(crate) home: OrgId,
    /// The key that signs cursors.
    pub(crate) secret: [u8; 32],
    pub(crate) metrics: HttpMetrics,
    /// The shared readers behind the streams.
    pub(crate) broadcasts: SessionBroadcasts,
    pub(crate) admission: AdmissionControl,
    pub(crate) keys: WatchedKeys,
    /// The MCP endpoint.
    pub(crate) mcp: McpEndpoint,
    pub(crate) reruns: RerunLimiter,
    /// Limits concurrent verifications of hash chains.
    pub(crate) verifications: Semaphore,
    pub(crate) cost_cache: CostCache,
    /// Formats the metrics of the worker.
    pub(crate) worker_metrics: Option<fn(&MetricsSnapshot) -> String>,
}

impl ServerState {
    pub(crate) fn new(inner: ServerStateInner) -> Self {
        Self(Arc::new(inner))
    }
}

impl FromRef<ServerState> for HttpState {
    fn from_ref(state: &ServerState) -> Self {
        state.http.clone()
    }
}

impl Deref for ServerState {
    type Target = ServerStateInner;

    fn deref(&self) -> &ServerStateInner {
        &self.0
    }
}
