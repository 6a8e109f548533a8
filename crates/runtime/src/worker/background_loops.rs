//! The background loops of a worker: renews leases, claims work, sends approval reminders, passes on cancellations,
//! deletes unused contents, and loads agents that other processes stored.
use super::active_drives::ClaimGuard;
use super::watchdog::Watchdog;
use super::{Runtime, WorkerState, lock};
use crate::attachments::SweepReport;
use crate::turn::cancel::Canceller;
use outlast_ports::turns::LeaseRequest;
use outlast_ports::votes::SentNotice;
use outlast_vocab::{Error, Millis, TurnId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often an idle worker checks for changes by other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The shortest pause between two checks, however short the lease is.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// Renews leases, claims work that is ready or due, and passes on cancellations from other processes.
pub(super) async fn keep(inner: Arc<WorkerState>) {
    let mut stopping = inner.stopping.subscribe();
    let mut keeper = LeaseLoop {
        changes: None,
        renewed: inner.clock.now(),
        looked: None,
        next_wake: None,
        watchdog: Watchdog::new(inner.clock.elapsed()),
    };
    loop {
        keeper.watchdog.look(&inner).await;
        if let Err(error) = keeper.tend(&inner).await {
            tracing::warn!(%error, "the worker could not look after its sessions; it tries again");
        }
        let now = inner.clock.now();
        // With a short lease, renewing it needs shorter pauses than anything else.
        let mut pause = (inner.limits.lease / 3).clamp(SHORTEST_LOOK, LOOK_AGAIN);
        if let Some(wake) = keeper.next_wake.filter(|wake| *wake > now) {
            pause = pause.min(now.until(wake));
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = inner.wake.notified() => keeper.looked = None,
            () = inner.clock.sleep(pause) => {}
        }
    }
}

/// Deletes unreferenced contents periodically.
pub(super) async fn sweep(inner: Arc<WorkerState>) {
    let mut stopping = inner.stopping.subscribe();
    let runtime = Runtime::of_operator(inner);
    loop {
        let WorkerState { clock, limits, .. } = &*runtime.inner;
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = clock.sleep(limits.sweep_every) => {}
        }
        match runtime.sweep().await {
            Ok(SweepReport { looked_at, deleted }) => {
                tracing::info!(looked_at, deleted, "unused contents were deleted");
            }
            Err(error) => tracing::warn!(%error, "unused contents could not be deleted; it is tried again"),
        }
    }
}

/// Loads agents that other processes store in the database.
pub(super) async fn reload_agents(inner: Arc<WorkerState>) {
    let mut stopping = inner.stopping.subscribe();
    let mut seen = None;
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = inner.clock.sleep(LOOK_AGAIN) => {}
        }
        if let Err(error) = look_for_agents(&inner, &mut seen).await {
            tracing::warn!(%error, "agents in the database could not be looked at; it is tried again");
        }
    }
}

/// Checks the database if another process changed something, or if a change made here was not installed.
async fn look_for_agents(inner: &WorkerState, seen: &mut Option<u64>) -> Result<(), Error> {
    let Some(agent_reloader) = &inner.agent_reloader else { return Ok(()) };
    let changes = inner.store.changes().await?;
    if *seen != Some(changes) || agent_reloader.is_behind().await {
        agent_reloader.look().await?;
        *seen = Some(changes);
    }
    Ok(())
}

/// Returns whether this much time has passed. If the clock was set back, it counts as passed.
fn has_passed(since: Millis, time: Duration, now: Millis) -> bool {
    now < since || since.after(time) <= now
}

struct LeaseLoop {
    /// The store's change number at the last check.
    changes: Option<u64>,
    renewed: Millis,
    /// When work was last looked for. `None` looks immediately.
    looked: Option<Millis>,
    next_wake: Option<Millis>,
    watchdog: Watchdog,
}

impl LeaseLoop {
    async fn tend(&mut self, inner: &Arc<WorkerState>) -> Result<(), Error> {
        let now = inner.clock.now();
        let third = inner.limits.lease / 3;
        if has_passed(self.renewed, third, now) {
            // If leases cannot be renewed, claim nothing, because it might be a session that is driven here.
            self.renew(inner, now).await?;
            self.renewed = now;
        }
        if !self.must_look(inner, now, third).await? {
            return Ok(());
        }
        self.looked = Some(now);
        loop {
            let agenda = inner.store.agenda(inner.worker, now).await?;
            self.next_wake = [agenda.next_wake, agenda.next_notice].into_iter().flatten().min();
            if agenda.next_notice.is_some_and(|due| due <= now) {
                notify(inner, now).await?;
                continue;
            }
            if !agenda.has_work || !take_work(inner, now).await? {
                if agenda.has_suspect {
                    take_suspect(inner, now).await?;
                }
                return Ok(());
            }
        }
    }

    /// Returns whether there may be work. An idle worker finds out with one cheap query.
    async fn must_look(&mut self, inner: &WorkerState, now: Millis, third: Duration) -> Result<bool, Error> {
        // The death of a worker changes nothing in the store, so abandoned leases are checked periodically.
        let long_ago = self.looked.is_none_or(|looked| has_passed(looked, third, now));
        let alone = inner.on_trial.load(Ordering::SeqCst);
        if long_ago || alone || self.next_wake.is_some_and(|wake| wake <= now) {
            return Ok(true);
        }
        let changes = inner.store.changes().await?;
        if self.changes.replace(changes) == Some(changes) {
            return Ok(false);
        }
        inner.deliveries.wake_sinks();
        inner.operator_budgets.refresh(inner.store.as_ref()).await?;
        pass_on_cancels(inner).await?;
        Ok(true)
    }

    /// Extends the leases of driven sessions. A lost lease is detected by its next write.
    async fn renew(&self, inner: &WorkerState, now: Millis) -> Result<(), Error> {
        if lock(&inner.driving).is_empty() {
            return Ok(());
        }
        let until = now.after(inner.limits.lease);
        inner.store.renew(LeaseRequest { worker: inner.worker, until }).await.map(drop)
    }
}

/// Sends the reminders for approvals that are due.
async fn notify(inner: &WorkerState, now: Millis) -> Result<(), Error> {
    const AT_ONCE: usize = 64;
    let most = inner.limits.reminders_per_question;
    for SentNotice { session, last } in inner.store.send_due_notices(now, most, AT_ONCE).await? {
        tracing::info!(%session, "somebody was told again that a call waits for an approval");
        inner.hub.committed(session, last);
        inner.deliveries.wake_sinks();
    }
    Ok(())
}

async fn pass_on_cancels(inner: &WorkerState) -> Result<(), Error> {
    let driving: Vec<(TurnId, Arc<Canceller>)> =
        lock(&inner.driving).values().map(|driving| (driving.turn, driving.canceller.clone())).collect();
    for (turn, canceller) in driving {
        if let Some(reason) = inner.store.cancel_reason(turn).await? {
            canceller.cancel(&reason);
        }
    }
    Ok(())
}

/// Claims as much work as this worker has room for. Returns whether it claimed any.
async fn take_work(inner: &Arc<WorkerState>, now: Millis) -> Result<bool, Error> {
    const AT_ONCE: usize = 64;
    let Some(lease_request) = inner.lease_request(now) else { return Ok(false) };
    let _taking = ClaimGuard::new(&inner.taking);
    let work = inner.store.claim(lease_request, now, inner.free_slots().min(AT_ONCE)).await?;
    let took = !work.is_empty();
    for work in work {
        inner.spawn(work);
    }
    Ok(took)
}

/// Claims a suspect to run it alone, if one is due and this worker has run long enough. A busy worker waits before it
/// pauses its turns, because turns that are not suspects go first.
async fn take_suspect(inner: &Arc<WorkerState>, now: Millis) -> Result<(), Error> {
    if *inner.stopping.borrow() || inner.on_trial.load(Ordering::SeqCst) {
        return Ok(());
    }
    let lived = inner.clock.elapsed().saturating_sub(inner.started);
    let busy = !lock(&inner.driving).is_empty();
    let wait = if busy { inner.limits.suspect_wait } else { Duration::ZERO };
    let due = Millis(now.0.saturating_sub(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
    let lease_request = LeaseRequest { worker: inner.worker, until: now.after(inner.limits.lease) };
    let _taking = ClaimGuard::new(&inner.taking);
    if let Some(work) = inner.store.claim_suspect(lease_request, lived, due).await? {
        inner.spawn(work);
    }
    Ok(())
}
