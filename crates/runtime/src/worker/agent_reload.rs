//! Loads agents that other processes store in the database.
use crate::agents::agent_factory::AgentReloader;
use crate::turn::journal_writer::WorkerJournal;
use outlast_vocab::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the database is checked for changes by other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Reloads the agents of a worker when their configuration changes.
pub(super) struct AgentReloadLoop {
    pub(super) reloader: Arc<AgentReloader>,
    pub(super) journal: Arc<WorkerJournal>,
}

impl AgentReloadLoop {
    /// Reloads agents until the worker stops.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut seen = None;
        loop {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = self.journal.clock.sleep(LOOK_AGAIN) => {}
            }
            if let Err(error) = self.look(&mut seen).await {
                tracing::warn!(%error, "agents in the database could not be read; retrying");
            }
        }
    }

    /// Checks the database if another process changed something, or if a change made here was not installed.
    async fn look(&self, seen: &mut Option<u64>) -> Result<(), Error> {
        let changes = self.journal.store.changes().await?;
        if *seen != Some(changes) || self.reloader.is_behind().await {
            self.reloader.look().await?;
            *seen = Some(changes);
        }
        Ok(())
    }
}
