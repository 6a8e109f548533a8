//! Runs a suspect as the only turn of its worker.
//!
//! Waits until the other turns have paused and durably records the start of the trial. The other turns continue once
//! the suspect has made progress, ended, or run for its whole window. The store decides which turns are suspects
//! (`outlast-ledger`).
use super::WorkerState;
use super::active_drives::DriveHandles;
use super::turn_drive::LeasedDrive;
use crate::turn::host::DriveOutcome;
use futures_util::future::{Either, select};
use outlast_ports::turns::{ClaimedTurn, Lease};
use outlast_vocab::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a worker checks whether its other turns have paused.
const LOOK_FOR_PAUSE: Duration = Duration::from_millis(100);

/// Drives a turn, alone if it is a suspect.
pub(super) async fn run(
    inner: &Arc<WorkerState>,
    work: ClaimedTurn,
    handles: DriveHandles,
) -> Result<DriveOutcome, Error> {
    let (lease, trial) = (work.lease.clone(), work.trial);
    let Some(window) = trial else { return watched(inner, work, handles).await };
    let _on_trial = TrialGuard::new(inner);
    let deaths = work.guard.deaths;
    tracing::warn!(
        deaths,
        "the turn is a suspect: its workers died; it runs alone once the other turns have paused"
    );
    if !pause_others(inner, &lease).await? {
        tracing::warn!("the other turns of this worker did not pause; the suspect is tried later");
        inner.store.release_lease(lease, inner.clock.now()).await?;
        return Ok(DriveOutcome::HandedBack);
    }
    tracing::warn!(?window, "the suspect runs alone now");
    // In the same task as the turn, so that the window does not end while the turn blocks its thread.
    let driving = pin!(watched(inner, work, handles));
    match select(driving, inner.clock.sleep(window)).await {
        Either::Left((driven, _)) => driven,
        Either::Right(((), driving)) => {
            inner.store.end_trial(lease).await?;
            tracing::warn!("the suspect ran alone and its worker lives; it goes on beside other turns");
            inner.on_trial.store(false, Ordering::SeqCst);
            inner.wake.notify_one();
            driving.await
        }
    }
}

/// Drives a turn and records for the watchdog when it is polled.
async fn watched(
    inner: &Arc<WorkerState>,
    work: ClaimedTurn,
    handles: DriveHandles,
) -> Result<DriveOutcome, Error> {
    let (poll, clock) = (handles.poll.clone(), inner.clock.clone());
    let drive = LeasedDrive { inner, handles };
    let mut driving = Box::pin(drive.turn(work));
    poll_fn(move |task| {
        let _polled = poll.begin(clock.elapsed());
        driving.as_mut().poll(task)
    })
    .await
}

/// Asks the other turns of this worker to pause and waits for them. Returns whether they have paused.
async fn pause_others(inner: &WorkerState, lease: &Lease) -> Result<bool, Error> {
    let _yielding = PauseGuard::new(inner);
    let begun = inner.clock.elapsed();
    loop {
        if inner.store.begin_trial(lease.clone()).await? {
            return Ok(true);
        }
        let waited = inner.clock.elapsed().saturating_sub(begun);
        if *inner.stopping.borrow() || waited >= inner.limits.suspect_drain {
            return Ok(false);
        }
        inner.clock.sleep(LOOK_FOR_PAUSE).await;
    }
}

/// Asks turns to pause until it is dropped.
struct PauseGuard<'a>(&'a WorkerState);

impl<'a> PauseGuard<'a> {
    fn new(inner: &'a WorkerState) -> Self {
        inner.yielding.send_replace(true);
        Self(inner)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        // A stopping worker keeps asking.
        self.0.yielding.send_replace(*self.0.stopping.borrow());
    }
}

/// Marks the worker as having a suspect until it is dropped.
struct TrialGuard<'a>(&'a WorkerState);

impl<'a> TrialGuard<'a> {
    fn new(inner: &'a WorkerState) -> Self {
        inner.on_trial.store(true, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for TrialGuard<'_> {
    fn drop(&mut self) {
        self.0.on_trial.store(false, Ordering::SeqCst);
        // Other turns may have waited for it.
        self.0.wake.notify_one();
    }
}
