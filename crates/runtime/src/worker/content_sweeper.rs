//! Deletes contents outside the database that nothing refers to, on request and periodically.
use crate::attachments::SweepReport;
use crate::turn::journal_writer::WorkerJournal;
use outlast_vocab::{Error, WorkerId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// Deletes unreferenced contents on behalf of a worker.
pub(super) struct ContentSweeper {
    journal: Arc<WorkerJournal>,
    worker: WorkerId,
    /// Locked during a sweep, because a worker must not run two at the same time.
    alone: Mutex<()>,
}

impl ContentSweeper {
    /// Creates a sweeper of the attachments of this journal.
    pub(super) fn new(journal: Arc<WorkerJournal>, worker: WorkerId) -> Self {
        Self { journal, worker, alone: Mutex::default() }
    }

    /// Deletes unreferenced contents once.
    pub(super) async fn sweep(&self) -> Result<SweepReport, Error> {
        let _alone = self.alone.lock().await;
        let WorkerJournal { store, clock, attachments, .. } = &*self.journal;
        attachments.in_store(store).sweep(self.worker, clock.now()).await
    }

    /// Deletes unreferenced contents periodically until the worker stops.
    pub(super) async fn run(self: Arc<Self>, every: Duration, mut stopping: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = self.journal.clock.sleep(every) => {}
            }
            match self.sweep().await {
                Ok(SweepReport { looked_at, deleted }) => {
                    tracing::info!(looked_at, deleted, "unused content was deleted");
                }
                Err(error) => {
                    tracing::warn!(%error, "unused content could not be deleted; retrying");
                }
            }
        }
    }
}
