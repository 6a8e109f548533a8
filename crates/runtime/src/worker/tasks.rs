//! The background tasks of a worker: counted while they run, and dropped together.
use outlast_ports::spawner::Spawner;
use std::sync::Arc;
use tokio::sync::watch;

/// The tasks of one worker.
pub(crate) struct Tasks {
    spawner: Arc<dyn Spawner>,
    running: watch::Sender<usize>,
    dropped: watch::Sender<bool>,
}

impl Tasks {
    /// Creates an empty set of tasks.
    pub(crate) fn new(spawner: Arc<dyn Spawner>) -> Arc<Self> {
        Arc::new(Self { spawner, running: watch::Sender::new(0), dropped: watch::Sender::new(false) })
    }

    /// Spawns a task.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let running = TaskGuard::new(self.clone());
        // Boxed, because inside the async block it would be stored twice: captured and polled.
        let task = Box::pin(task);
        self.spawner.spawn(Box::pin(async move {
            let mut dropped = running.0.dropped.subscribe();
            tokio::select! {
                biased;
                _ = dropped.wait_for(|dropped| *dropped) => {}
                () = task => {}
            }
        }));
    }

    /// Waits until no task is running.
    pub(crate) async fn ended(&self) {
        let mut running = self.running.subscribe();
        // This value owns the sender, so the channel cannot be closed.
        let _none = running.wait_for(|running| *running == 0).await;
    }

    /// Drops all tasks at their current await point, and every task that is spawned later.
    pub(crate) async fn drop_all(&self) {
        self.dropped.send_replace(true);
        self.ended().await;
    }
}

/// A running task. It is counted until it is dropped, however it ends.
struct TaskGuard(Arc<Tasks>);

impl TaskGuard {
    fn new(tasks: Arc<Tasks>) -> Self {
        tasks.running.send_modify(|running| *running += 1);
        Self(tasks)
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}
