//! Writes the commits of a worker.
//!
//! Around the commit of the store, this adds: the upload of attachments, retries while the store cannot write, the
//! measured time, and the notification of subscribers.
use crate::attachments::attachment_access::AttachmentAccess;
use crate::calls::catalogue::CallingTurn;
use crate::delivery::live::LiveHub;
use crate::turn::model_request::backoff;
use crate::views::metrics::WorkerMetrics;
use crate::views::unreported_write_time::UnreportedWriteTime;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::clock::Clock;
use outlast_ports::inbox::{AcceptReceipt, AcceptRequest};
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, CommitReceipt, Lease};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::{Error, Failure, Kind, Limits, Millis, WorkerId};
use std::sync::Arc;
use tokio::sync::watch;

/// How often the attachments of one input are uploaded, if they may have been deleted in between.
const PLACED_AT_MOST: u32 = 5;

/// Writes the journals of all turns of a worker.
pub(crate) struct WorkerJournal {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) hub: Arc<LiveHub>,
    pub(crate) attachments: AttachmentAccess,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Waits for writes that no later write has stored yet.
    pub(crate) unreported_writes: UnreportedWriteTime,
}

/// Writes commits of one turn until they succeed.
pub(crate) struct JournalWriter {
    pub(crate) journal: Arc<WorkerJournal>,
    /// The lease that permits writes.
    pub(crate) lease: Lease,
    /// Whether the worker shuts down.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl WorkerJournal {
    /// Writes an input after its attachments are uploaded. If some of them may have been deleted meanwhile, they are
    /// checked and uploaded again. `store` has the access of the sender, on whose behalf `worker` writes.
    pub(crate) async fn accept(
        &self,
        store: &Arc<dyn Store>,
        worker: WorkerId,
        accept: AcceptRequest,
        files: Vec<AttachmentUpload>,
    ) -> Result<AcceptReceipt, Error> {
        let began = self.clock.elapsed();
        let accepted = self.upload_and_accept(store, worker, accept, files).await?;
        let waited = self.clock.elapsed().saturating_sub(began);
        self.metrics.committed(waited);
        if !accepted.duplicate {
            self.metrics.accepted();
            self.unreported_writes.waited(accepted.turn, waited);
        }
        Ok(accepted)
    }

    async fn upload_and_accept(
        &self,
        store: &Arc<dyn Store>,
        worker: WorkerId,
        accept: AcceptRequest,
        mut files: Vec<AttachmentUpload>,
    ) -> Result<AcceptReceipt, Error> {
        if files.is_empty() {
            return store.accept(accept).await;
        }
        // Use the worker's store, because where contents are stored does not depend on the access of the sender.
        let attachments = self.attachments.in_store(&self.store);
        for tries in 1.. {
            let placed = attachments.place(files.clone()).await?;
            match store.accept(AcceptRequest { files: placed, ..accept.clone() }).await {
                Err(error) if error.kind() == Kind::AttachmentSwept && tries < PLACED_AT_MOST => {
                    tracing::info!(%error, "reading unused content again");
                    let Limits { backoff_first, backoff_most, .. } = *self.limits;
                    self.clock.sleep(backoff(backoff_first, backoff_most, tries)).await;
                    files = attachments.confirm(files, worker, self.clock.now()).await?;
                }
                written => return written,
            }
        }
        unreachable!("the last try returns")
    }
}

impl JournalWriter {
    /// Returns the session and the turn.
    pub(crate) fn caller(&self) -> CallingTurn {
        CallingTurn { session: self.lease.session, turn: self.lease.turn }
    }

    /// Returns the store that is written to.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.journal.store
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Millis {
        self.journal.clock.now()
    }

    /// Publishes a live event of the turn.
    pub(crate) fn publish(&self, event: impl FnOnce() -> LiveEventKind) {
        self.journal.hub.publish(self.caller(), event);
    }

    /// Writes a commit. If the disk is full, the database is locked or the content store is unavailable, it
    /// retries.
    ///
    /// It retries until the write succeeds or the worker shuts down. Driving the turn again would be wrong
    /// here: the model would be asked twice, and a finished call would get an unknown outcome.
    pub(crate) async fn write(&mut self, mut commit: Commit) -> Result<CommitReceipt, Error> {
        let journal = &self.journal;
        let since = journal.clock.elapsed();
        commit.waited = journal.unreported_writes.take(self.lease.turn);
        let attachments = journal.attachments.in_store(&journal.store);
        let files = std::mem::take(&mut commit.files);
        let mut tries = 0;
        let receipt = loop {
            tries += 1;
            commit.now = journal.clock.now();
            // Each try uploads again, because a sweep may have deleted contents that no commit refers to yet.
            let mut written = match attachments.place(files.clone()).await {
                Ok(files) => journal.store.commit(Commit { files, ..commit.clone() }).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &written
                && error.kind() == Kind::AttachmentSwept
                && let Err(error) = attachments.confirm(files.clone(), self.lease.worker, commit.now).await
            {
                written = Err(error);
            }
            let error = match written {
                Err(error) if may_be_written_later(&error) => error,
                written => break written?,
            };
            tracing::warn!(%error, tries, "the turn cannot be written now; retrying, with its records in memory");
            self.publish(|| LiveEventKind::Held { failure: Failure::from(&error) });
            let pause = backoff(journal.limits.backoff_first, journal.limits.backoff_most, tries);
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(error),
                () = journal.clock.sleep(pause) => {}
            }
        };
        let waited = journal.clock.elapsed().saturating_sub(since);
        journal.unreported_writes.waited(self.lease.turn, waited);
        journal.metrics.committed(waited);
        journal.hub.committed(self.lease.session, receipt.last.seq);
        Ok(receipt)
    }
}

fn may_be_written_later(error: &Error) -> bool {
    use Kind::{AttachmentSwept, AttachmentUnavailable, StoreBusy, StoreFull};
    matches!(error.kind(), StoreFull | StoreBusy | AttachmentUnavailable | AttachmentSwept)
}
