//! Runs a suspect as the only turn of its worker.
//!
//! Waits until the other turns have paused and durably records the start of the trial. The other turns continue once
//! the suspect has made progress, ended, or run for its whole window. The store decides which turns are suspects
//! (`outlast-ledger`).
use super::active_drives::ActiveDrives;
use crate::turn::host::DriveOutcome;
use crate::turn::journal_writer::WorkerJournal;
use futures_util::future::{Either, select};
use outlast_ports::turns::Lease;
use outlast_vocab::Error;
use std::pin::pin;
use std::time::Duration;

/// How often a worker checks whether its other turns have paused.
const LOOK_FOR_PAUSE: Duration = Duration::from_millis(100);

/// Runs the suspects of a worker, one at a time.
pub(super) struct SuspectTrials<'a> {
    pub(super) journal: &'a WorkerJournal,
    pub(super) drives: &'a ActiveDrives,
}

impl SuspectTrials<'_> {
    /// Drives a suspect alone for this long, and then beside the other turns. `drive` drives it in this task, so that the
    /// window does not end while the turn blocks its thread.
    pub(super) async fn run(
        &self,
        lease: Lease,
        window: Duration,
        drive: impl Future<Output = Result<DriveOutcome, Error>>,
    ) -> Result<DriveOutcome, Error> {
        let WorkerJournal { store, clock, .. } = self.journal;
        let _on_trial = self.drives.begin_trial();
        if !self.pause_others(lease).await? {
            tracing::warn!("the other turns of this worker did not pause; the suspect is tried later");
            store.release_lease(lease, clock.now()).await?;
            return Ok(DriveOutcome::HandedBack);
        }
        tracing::warn!(?window, "the suspect runs alone now");
        match select(pin!(drive), clock.sleep(window)).await {
            Either::Left((driven, _)) => driven,
            Either::Right(((), drive)) => {
                store.end_trial(lease).await?;
                tracing::warn!(
                    "the suspect ran alone and its worker survived; it continues beside other turns"
                );
                self.drives.end_trial();
                drive.await
            }
        }
    }

    /// Asks the other turns of this worker to pause and waits for them. Returns whether they have paused.
    async fn pause_others(&self, lease: Lease) -> Result<bool, Error> {
        let WorkerJournal { store, clock, limits, .. } = self.journal;
        let _yielding = self.drives.pause();
        let begun = clock.elapsed();
        loop {
            if store.begin_trial(lease).await? {
                return Ok(true);
            }
            let waited = clock.elapsed().saturating_sub(begun);
            if self.drives.is_stopping() || waited >= limits.suspect_drain {
                return Ok(false);
            }
            clock.sleep(LOOK_FOR_PAUSE).await;
        }
    }
}
