//! The port for concurrent tasks of a worker.
use crate::BoxFuture;

/// Spawns tasks. The implementation is tokio in production, and a seeded scheduler in the simulator.
pub trait Spawner: Send + Sync {
    /// Runs a task concurrently until it completes or the process ends.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}
