//! The lease loop of a worker: renews leases, claims work, sends approval reminders, and passes on cancellations.
use super::active_drives::ActiveDrives;
use super::session_driver::SessionDriver;
use super::watchdog::Watchdog;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::turn::journal_writer::WorkerJournal;
use outlast_ports::votes::SentNotice;
use outlast_vocab::{Error, Millis};
use std::sync::Arc;
use std::time::Duration;

/// How often an idle worker checks for changes by other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The shortest pause between two checks, however short the lease is.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// The most that one write claims or sends.
const AT_ONCE: usize = 64;

/// Renews leases, claims work that is ready or due, and passes on cancellations from other processes.
pub(super) struct LeaseLoop {
    pub(super) journal: Arc<WorkerJournal>,
    pub(super) drives: Arc<ActiveDrives>,
    pub(super) sessions: Arc<SessionDriver>,
    pub(super) operator_budgets: Arc<OperatorBudgets>,
    pub(super) watchdog: Watchdog,
    /// When this worker started, on the monotonic clock.
    pub(super) started: Duration,
}

/// What the loop did last.
struct LastChecks {
    /// The store's change number at the last check.
    changes: Option<u64>,
    renewed: Millis,
    /// When work was last looked for. `None` looks immediately.
    looked: Option<Millis>,
    next_wake: Option<Millis>,
}

/// Returns whether this much time has passed. If the clock was set back, it counts as passed.
fn has_passed(since: Millis, time: Duration, now: Millis) -> bool {
    now < since || since.after(time) <= now
}

impl LeaseLoop {
    /// Runs until the worker stops.
    pub(super) async fn run(mut self) {
        let mut stopping = self.drives.stopping();
        let mut last =
            LastChecks { changes: None, renewed: self.journal.clock.now(), looked: None, next_wake: None };
        loop {
            self.watchdog.look().await;
            if let Err(error) = self.tend(&mut last).await {
                tracing::warn!(%error, "the worker could not maintain its sessions; retrying");
            }
            let now = self.journal.clock.now();
            // With a short lease, renewing it needs shorter pauses than anything else.
            let mut pause = (self.journal.limits.lease / 3).clamp(SHORTEST_LOOK, LOOK_AGAIN);
            if let Some(wake) = last.next_wake.filter(|wake| *wake > now) {
                pause = pause.min(now.until(wake));
            }
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = self.drives.woken() => last.looked = None,
                () = self.journal.clock.sleep(pause) => {}
            }
        }
    }

    async fn tend(&self, last: &mut LastChecks) -> Result<(), Error> {
        let now = self.journal.clock.now();
        let third = self.journal.limits.lease / 3;
        if has_passed(last.renewed, third, now) {
            // If leases cannot be renewed, claim nothing, because it might be a session that is driven here.
            self.renew(now).await?;
            last.renewed = now;
        }
        if !self.must_look(last, now, third).await? {
            return Ok(());
        }
        last.looked = Some(now);
        loop {
            let agenda = self.journal.store.agenda(self.drives.worker(), now).await?;
            last.next_wake = [agenda.next_wake, agenda.next_notice].into_iter().flatten().min();
            if agenda.next_notice.is_some_and(|due| due <= now) {
                self.send_reminders(now).await?;
                continue;
            }
            if !agenda.has_work || !self.claim(now).await? {
                if agenda.has_suspect {
                    self.claim_suspect(now).await?;
                }
                return Ok(());
            }
        }
    }

    /// Returns whether there may be work. An idle worker finds out with one cheap query.
    async fn must_look(&self, last: &mut LastChecks, now: Millis, third: Duration) -> Result<bool, Error> {
        // The death of a worker changes nothing in the store, so abandoned leases are checked periodically.
        let long_ago = last.looked.is_none_or(|looked| has_passed(looked, third, now));
        let alone = self.drives.is_on_trial();
        if long_ago || alone || last.next_wake.is_some_and(|wake| wake <= now) {
            return Ok(true);
        }
        let changes = self.journal.store.changes().await?;
        if last.changes.replace(changes) == Some(changes) {
            return Ok(false);
        }
        self.sessions.deliveries.wake_sinks();
        self.operator_budgets.refresh(self.journal.store.as_ref()).await?;
        self.pass_on_cancels().await?;
        Ok(true)
    }

    /// Extends the leases of driven sessions. A lost lease is detected by its next write.
    async fn renew(&self, now: Millis) -> Result<(), Error> {
        if self.drives.count() == 0 {
            return Ok(());
        }
        self.journal.store.renew(self.drives.lease_until(now)).await.map(drop)
    }

    async fn pass_on_cancels(&self) -> Result<(), Error> {
        for (turn, canceller) in self.drives.cancellers() {
            if let Some(reason) = self.journal.store.cancel_reason(turn).await? {
                canceller.cancel(&reason);
            }
        }
        Ok(())
    }
}

/// Reminders for approvals, and claims.
impl LeaseLoop {
    /// Sends the reminders that are due.
    async fn send_reminders(&self, now: Millis) -> Result<(), Error> {
        let WorkerJournal { store, hub, limits, .. } = &*self.journal;
        let most = limits.reminders_per_question;
        for SentNotice { session, last } in store.send_due_notices(now, most, AT_ONCE).await? {
            tracing::info!(%session, "a reminder of an approval was sent");
            hub.committed(session, last);
            self.sessions.deliveries.wake_sinks();
        }
        Ok(())
    }

    /// Claims as much work as this worker has room for. Returns whether it claimed any.
    async fn claim(&self, now: Millis) -> Result<bool, Error> {
        let Some(lease_request) = self.drives.lease_request(now) else { return Ok(false) };
        let _claim = self.drives.claim();
        let work =
            self.journal.store.claim(lease_request, now, self.drives.free_slots().min(AT_ONCE)).await?;
        let claimed = !work.is_empty();
        for work in work {
            self.sessions.spawn(work);
        }
        Ok(claimed)
    }

    /// Claims a suspect to run it alone, if one is due and this worker has run long enough. A busy worker waits before
    /// it pauses its turns, because turns that are not suspects go first.
    async fn claim_suspect(&self, now: Millis) -> Result<(), Error> {
        if self.drives.is_stopping() || self.drives.is_on_trial() {
            return Ok(());
        }
        let lived = self.journal.clock.elapsed().saturating_sub(self.started);
        let wait = if self.drives.count() > 0 { self.journal.limits.suspect_wait } else { Duration::ZERO };
        let due = Millis(now.0.saturating_sub(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
        let _claim = self.drives.claim();
        if let Some(work) = self.journal.store.claim_suspect(self.drives.lease_until(now), lived, due).await?
        {
            self.sessions.spawn(work);
        }
        Ok(())
    }
}
