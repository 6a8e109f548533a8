//! The state that all requests share.
use crate::accounts::Accounts;
use crate::door::Door;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::quota::{Quotas, Strangers};
use crate::relay::Relays;
use crate::rerun::Reruns;
use crate::room::Rooms;
use crate::streams::{Asking, Streams};
use outlast_mcp_server::Endpoint;
use outlast_ports::metrics::Snapshot;
use outlast_runtime::Runtime;
use outlast_vocab::OrgId;
use outlast_vocab::limits::ServerLimits;
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

pub(crate) struct Inner {
    /// The worker, with access to every organisation. Handlers get a handle that is limited to their caller.
    pub(crate) runtime: Runtime,
    /// The organisation that the server runs for. Agents are loaded from its configurations.
    pub(crate) home: OrgId,
    pub(crate) door: Door,
    pub(crate) limits: ServerLimits,
    /// The key that signs cursors.
    pub(crate) secret: [u8; 32],
    pub(crate) metrics: Metrics,
    pub(crate) streams: Streams,
    /// The shared readers behind the streams.
    pub(crate) relays: Relays,
    pub(crate) asking: Asking,
    pub(crate) rooms: Rooms,
    pub(crate) keys: Keys,
    pub(crate) strangers: Strangers,
    /// The MCP endpoint.
    pub(crate) mcp: Endpoint,
    pub(crate) quotas: Quotas,
    pub(crate) reruns: Reruns,
    /// Limits concurrent verifications of hash chains.
    pub(crate) verifications: Semaphore,
    pub(crate) accounts: Accounts,
    /// Formats the metrics of the worker.
    pub(crate) exposition: Option<fn(&Snapshot) -> String>,
    /// Whether the server is shutting down.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Shared {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }
}

impl Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}
