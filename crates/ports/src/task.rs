//! Tasks as a port: who runs what a worker does side by side.
use crate::BoxFuture;

/// Runs tasks. On a machine that is tokio; in the simulator it is a scheduler that a seed decides for.
pub trait Spawner: Send + Sync {
    /// Runs a task beside the others until it ends, or the process does.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}
