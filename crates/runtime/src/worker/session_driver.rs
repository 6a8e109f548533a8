//! Drives the sessions that a worker has claimed: turn after turn, until none is left or the lease is lost.
use super::active_drives::DriveHandles;
use super::suspect_trial::SuspectTrials;
use super::turn_drive::LeasedTurnDriver;
use crate::delivery::sink_delivery::SinkDeliveries;
use crate::turn::host::DriveOutcome;
use crate::turn::journal_writer::WorkerJournal;
use crate::worker::tasks::Tasks;
use outlast_ports::turns::ClaimedTurn;
use outlast_vocab::{Error, Kind};
use std::future::poll_fn;
use std::sync::Arc;
use tracing::Instrument;

/// Drives each session that its worker has claimed in a separate task.
pub(super) struct SessionDriver {
    /// The tasks of the worker.
    pub(super) tasks: Arc<Tasks>,
    pub(super) deliveries: Arc<SinkDeliveries>,
    pub(super) turns: LeasedTurnDriver,
}

impl SessionDriver {
    /// Drives a session in a separate task.
    pub(super) fn spawn(self: &Arc<Self>, work: ClaimedTurn) {
        let handles = self.begin(&work);
        let driver = self.clone();
        self.tasks.spawn(async move { driver.drive_session(work, handles).await });
    }

    /// Registers a turn as driven here.
    fn begin(&self, work: &ClaimedTurn) -> DriveHandles {
        let WorkerJournal { hub, clock, .. } = self.turns.journal();
        hub.begins(work.lease.turn, work.org);
        self.turns.drives.register(work, clock.now())
    }

    /// Drives the turns of a session until none is left or the lease is lost.
    async fn drive_session(&self, mut work: ClaimedTurn, mut handles: DriveHandles) {
        let (active, WorkerJournal { hub, metrics, .. }) = (&self.turns.drives, self.turns.journal());
        loop {
            let lease = work.lease;
            let span = tracing::info_span!("turn", session = %lease.session, turn = %lease.turn);
            let driven = Box::pin(self.drive_turn(work, handles)).instrument(span.clone()).await;
            if active.drives(&lease) {
                hub.unregister_turn(lease.turn);
            }
            self.deliveries.wake_sinks();
            if let Ok(DriveOutcome::Ended(end) | DriveOutcome::Next(end, _)) = &driven {
                metrics.ended(end);
                tracing::info!(parent: &span, outcome = end.name(), "the turn ended");
            }
            match driven {
                Ok(DriveOutcome::Next(_, next)) => {
                    work = *next;
                    handles = self.begin(&work);
                    continue;
                }
                // Its deadline may be the next one that the lease loop has to wake for.
                Ok(DriveOutcome::Parked) => active.wake(),
                Ok(DriveOutcome::Ended(_) | DriveOutcome::HandedBack | DriveOutcome::Again) => {}
                Err(error) if error.kind() == Kind::LeaseLost => {
                    tracing::info!(parent: &span, %error, "another worker took the session over");
                }
                Err(error) => {
                    tracing::error!(parent: &span, %error, "the turn cannot run now; the session is handed back");
                    self.turns.hand_back(lease).await;
                }
            }
            let full = active.free_slots() == 0;
            active.remove(&lease);
            if full {
                // Sessions may wait for the free slot.
                active.wake();
            }
            return;
        }
    }

    /// Drives a turn, alone if it is a suspect.
    async fn drive_turn(&self, work: ClaimedTurn, handles: DriveHandles) -> Result<DriveOutcome, Error> {
        let (lease, trial, deaths) = (work.lease, work.trial, work.guard.deaths);
        let driven = self.watched(work, handles);
        let Some(window) = trial else { return driven.await };
        tracing::warn!(
            deaths,
            "the turn is a suspect: its workers died; it runs alone once the other turns have paused"
        );
        let trials = SuspectTrials { journal: self.turns.journal(), drives: &self.turns.drives };
        trials.run(lease, window, driven).await
    }

    /// Drives a turn and records for the watchdog when it is polled.
    async fn watched(&self, work: ClaimedTurn, handles: DriveHandles) -> Result<DriveOutcome, Error> {
        let (poll, clock) = (handles.poll.clone(), &self.turns.journal().clock);
        let mut driving = Box::pin(self.turns.drive(work, handles));
        poll_fn(move |task| {
            let _polled = poll.begin(clock.elapsed());
            driving.as_mut().poll(task)
        })
        .await
    }
}
