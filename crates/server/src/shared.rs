//! What every request shares.
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

/// What every request shares. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

pub(crate) struct Inner {
    /// The worker, over every organisation. Handlers get a handle that is narrowed to their caller.
    pub(crate) runtime: Runtime,
    /// The organisation that the server is started for: its configurations are those that agents here are made of.
    pub(crate) home: OrgId,
    pub(crate) door: Door,
    pub(crate) limits: ServerLimits,
    /// Signs cursors.
    pub(crate) secret: [u8; 32],
    pub(crate) metrics: Metrics,
    pub(crate) streams: Streams,
    /// Who reads for those streams.
    pub(crate) relays: Relays,
    pub(crate) asking: Asking,
    pub(crate) rooms: Rooms,
    pub(crate) keys: Keys,
    pub(crate) strangers: Strangers,
    /// Answers MCP clients.
    pub(crate) mcp: Endpoint,
    pub(crate) quotas: Quotas,
    pub(crate) reruns: Reruns,
    /// Room for sessions whose chain is recomputed.
    pub(crate) verifications: Semaphore,
    pub(crate) accounts: Accounts,
    /// Who writes what the worker counts.
    pub(crate) exposition: Option<fn(&Snapshot) -> String>,
    /// Whether the server shuts down.
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
