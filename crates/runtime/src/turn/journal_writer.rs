//! Writes the commits of one turn under one lease.
//!
//! Around the commit of the store, this adds: the upload of attachments, retries while the store cannot write, the
//! measured time, and the notification of subscribers.
use crate::attachments::attachment_access::AttachmentAccess;
use crate::calls::catalogue::Caller;
use crate::delivery::live::LiveHub;
use crate::turn::model_request::backoff;
use crate::views::metrics::WorkerMetrics;
use crate::views::unreported_write_time::UnreportedWriteTime;
use outlast_ports::clock::Clock;
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, CommitReceipt, Lease};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::{Error, Failure, Kind, Limits};
use std::sync::Arc;
use tokio::sync::watch;

/// Writes commits until they succeed.
pub(crate) struct JournalWriter {
    pub(crate) store: Arc<dyn Store>,
    /// The lease that permits writes.
    pub(crate) lease: Lease,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) hub: Arc<LiveHub>,
    pub(crate) attachments: AttachmentAccess,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) unreported_writes: Arc<UnreportedWriteTime>,
    /// Whether the worker shuts down.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl JournalWriter {
    /// Returns the session and the turn.
    pub(crate) fn caller(&self) -> Caller {
        Caller { session: self.lease.session, turn: self.lease.turn }
    }

    /// Writes a commit. If the disk is full, the database is locked or the content store is unavailable, it
    /// retries.
    ///
    /// It retries until the write succeeds or the worker shuts down. Driving the turn again would be wrong
    /// here: the model would be asked twice, and a finished call would get an unknown outcome.
    pub(crate) async fn write(&mut self, mut commit: Commit) -> Result<CommitReceipt, Error> {
        let since = self.clock.elapsed();
        commit.waited = self.unreported_writes.take(self.lease.turn);
        let attachments = self.attachments.in_store(&self.store);
        let files = std::mem::take(&mut commit.files);
        let mut tries = 0;
        let receipt = loop {
            tries += 1;
            commit.now = self.clock.now();
            // Each try uploads again, because a sweep may have deleted contents that no commit refers to yet.
            let mut written = match attachments.place(files.clone()).await {
                Ok(files) => self.store.commit(Commit { files, ..commit.clone() }).await,
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
            tracing::warn!(%error, tries, "the turn cannot be written now; it holds what it knows");
            self.hub.publish(self.caller(), || LiveEventKind::Held { failure: Failure::from(&error) });
            let pause = backoff(self.limits.backoff_first, self.limits.backoff_most, tries);
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(error),
                () = self.clock.sleep(pause) => {}
            }
        };
        let waited = self.clock.elapsed().saturating_sub(since);
        self.unreported_writes.waited(self.lease.turn, waited);
        self.metrics.committed(waited);
        self.hub.committed(self.lease.session, receipt.last.seq);
        Ok(receipt)
    }
}

fn may_be_written_later(error: &Error) -> bool {
    use Kind::{AttachmentSwept, AttachmentUnavailable, StoreBusy, StoreFull};
    matches!(error.kind(), StoreFull | StoreBusy | AttachmentUnavailable | AttachmentSwept)
}
