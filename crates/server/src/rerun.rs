//! Runs recorded sessions again. The program provides the function that does so, because the server knows no
//! agents.
use outlast_ports::BoxFuture;
use outlast_views::Org;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A recorded session, and what to change in the new run.
#[derive(Clone, Debug)]
pub struct RerunRequest {
    /// The organisation of the session, whose rules apply.
    pub org: Org,
    /// The time limit.
    pub within: Duration,
    /// The session in its export format.
    pub archive: Vec<u8>,
    /// The turn or effect to start from.
    pub from: Option<String>,
    /// The agent to use instead.
    pub agent: Option<String>,
    /// The model to use instead.
    pub model: Option<String>,
    /// The system prompt to use instead of the agent's.
    pub prompt: Option<String>,
    /// Whether to repeat calls that are safe to repeat.
    pub live: bool,
    /// Whether to make calls that must happen at most once.
    pub run_at_most_once: bool,
}

/// Runs a session again and returns the comparison as JSON.
pub type Rerunner = Arc<dyn Fn(RerunRequest) -> BoxFuture<'static, Result<Value, Error>> + Send + Sync>;

/// The rerun function, and a limit on concurrent runs.
pub(crate) struct RerunLimiter {
    rerunner: Option<Rerunner>,
    permits: Arc<Semaphore>,
}

/// A permit for one run.
pub(crate) struct RerunPermit {
    rerunner: Rerunner,
    permit: OwnedSemaphorePermit,
}

impl RerunLimiter {
    pub(crate) fn new(rerunner: Option<Rerunner>, most: usize) -> Self {
        Self { rerunner, permits: Arc::new(Semaphore::new(most)) }
    }

    /// Returns a permit, if one is free.
    pub(crate) fn acquire(&self) -> Result<RerunPermit, Error> {
        let by = self.rerunner.clone().ok_or_else(|| {
            Error::new(Kind::RouteNotFound, "this server does not support reruns; `outlast serve` does")
        })?;
        let slot = self.permits.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                Kind::ServerBusy,
                "the maximum number of reruns (`reruns`) is in progress; retry later",
            )
        })?;
        Ok(RerunPermit { rerunner: by, permit: slot })
    }
}

impl RerunPermit {
    /// Runs the session. The run completes even if the client disconnects, because an aborted one would leave
    /// a half-stopped worker.
    pub(crate) async fn run(self, again: RerunRequest) -> Result<Value, Error> {
        let Self { rerunner: by, permit: slot } = self;
        let task = tokio::spawn(async move {
            let compared = by(again).await;
            drop(slot);
            compared
        });
        task.await.map_err(|cause| Error::new(Kind::Internal, "a re-run panicked").because(cause))?
    }
}
