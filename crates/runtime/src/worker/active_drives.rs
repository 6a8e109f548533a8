//! The sessions that a worker drives now, how many more it may claim, and the signals to their turns.
use super::watchdog::PollTimer;
use super::worker_queries::RunningTurn;
use crate::turn::cancel::{CancelSignal, Canceller, cancel};
use outlast_ports::turns::{ClaimedTurn, Fence, Lease, LeaseRequest};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::{Limits, Millis, OrgId, SessionId, TurnId, WorkerId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The sessions that a worker drives, its claims, and the signals to its turns and its lease loop.
pub(super) struct ActiveDrives {
    worker: WorkerId,
    /// How long a lease lasts.
    lease: Duration,
    sessions_at_once: usize,
    by_session: Mutex<BTreeMap<SessionId, ActiveDrive>>,
    /// The number of claims in progress: sessions that may be claimed but are not driven yet.
    claiming: AtomicUsize,
    /// Whether this worker runs a suspect, or waits to.
    on_trial: AtomicBool,
    /// Whether turns hand back their sessions at the end of their step, because the worker stops or wants to run a
    /// suspect alone.
    yielding: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
    wake: Notify,
}

/// A session that this worker drives.
struct ActiveDrive {
    turn: TurnId,
    fence: Fence,
    canceller: Arc<Canceller>,
    org: OrgId,
    since: Millis,
    /// The agent that answers, once it is known.
    agent: Option<String>,
    /// Measures how long its task blocks its thread.
    poll: Arc<PollTimer>,
}

/// The cancellation handles and the poll timer of one drive.
pub(super) struct DriveHandles {
    pub(super) canceller: Arc<Canceller>,
    pub(super) cancel: CancelSignal,
    pub(super) poll: Arc<PollTimer>,
}

impl ActiveDrives {
    /// Creates the state of a worker that drives nothing.
    pub(super) fn new(worker: WorkerId, limits: &Limits) -> Self {
        Self {
            worker,
            lease: limits.lease,
            sessions_at_once: limits.sessions_at_once,
            by_session: Mutex::default(),
            claiming: AtomicUsize::new(0),
            on_trial: AtomicBool::new(false),
            yielding: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
            wake: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, ActiveDrive>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the worker that drives the sessions.
    pub(super) fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Returns the lease that this worker asks for now.
    pub(super) fn lease_until(&self, now: Millis) -> LeaseRequest {
        LeaseRequest { worker: self.worker, until: now.after(self.lease) }
    }

    /// Returns the claim of this worker on a session, unless it is full or stopping.
    pub(super) fn lease_request(&self, now: Millis) -> Option<LeaseRequest> {
        let free = self.free_slots() > 0 && !self.is_stopping();
        free.then(|| self.lease_until(now))
    }

    /// Returns how many more sessions this worker may drive.
    pub(super) fn free_slots(&self) -> usize {
        self.sessions_at_once.saturating_sub(self.count())
    }

    /// Returns how many sessions are driven here.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Counts a claim as in progress until the guard is dropped.
    pub(super) fn claim(&self) -> ClaimGuard<'_> {
        self.claiming.fetch_add(1, Ordering::SeqCst);
        ClaimGuard(&self.claiming)
    }

    /// Whether a claim is in progress.
    pub(super) fn is_claiming(&self) -> bool {
        self.claiming.load(Ordering::SeqCst) > 0
    }

    /// Registers a turn as driven here.
    pub(super) fn register(&self, work: &ClaimedTurn, since: Millis) -> DriveHandles {
        let (canceller, cancel_signal) = cancel();
        let canceller = Arc::new(canceller);
        let Lease { session, turn, fence, .. } = work.lease;
        let poll = Arc::new(PollTimer::default());
        let drive = ActiveDrive {
            turn,
            fence,
            canceller: canceller.clone(),
            org: work.org,
            since,
            agent: None,
            poll: poll.clone(),
        };
        self.lock().insert(session, drive);
        DriveHandles { canceller, cancel: cancel_signal, poll }
    }

    /// Records which agent answers under this lease.
    pub(super) fn is_answered_by(&self, lease: &Lease, agent: &str) {
        if let Some(drive) = self.lock().get_mut(&lease.session)
            && drive.fence == lease.fence
        {
            drive.agent = Some(agent.to_owned());
        }
    }

    /// Returns whether a session is still driven under this lease. A worker that lost a session may have claimed it
    /// again before the first drive has noticed.
    pub(super) fn drives(&self, lease: &Lease) -> bool {
        self.lock().get(&lease.session).is_some_and(|drive| drive.fence == lease.fence)
    }

    /// Removes a session that is no longer driven under this lease.
    pub(super) fn remove(&self, lease: &Lease) {
        if let Entry::Occupied(drive) = self.lock().entry(lease.session)
            && drive.get().fence == lease.fence
        {
            drive.remove();
        }
    }

    /// Returns the leases of all sessions that are driven here.
    pub(super) fn leases(&self) -> Vec<Lease> {
        self.lock().iter().map(|(session, drive)| drive.lease(*session, self.worker)).collect()
    }

    /// Returns the leases of the turns whose tasks are being polled, and when the polls began. After all tasks were
    /// dropped, these turns block their threads.
    pub(super) fn polled(&self) -> Vec<(Lease, Duration)> {
        let drives = self.lock();
        let polled = |(session, drive): (&SessionId, &ActiveDrive)| {
            Some((drive.lease(*session, self.worker), drive.poll.since()?))
        };
        drives.iter().filter_map(polled).collect()
    }

    /// Returns the turns that are driven here, with the handles that cancel them.
    pub(super) fn cancellers(&self) -> Vec<(TurnId, Arc<Canceller>)> {
        self.lock().values().map(|drive| (drive.turn, drive.canceller.clone())).collect()
    }

    /// Cancels a turn if it is driven here.
    pub(super) fn cancel(&self, turn: TurnId, reason: &str) {
        for drive in self.lock().values().filter(|drive| drive.turn == turn) {
            drive.canceller.cancel(reason);
        }
    }

    /// Returns the turns of these organisations that are driven here, by session.
    pub(super) fn running(&self, visibility: OrgVisibility) -> Vec<RunningTurn> {
        let drives = self.lock();
        let shown = drives.iter().filter(|(_, drive)| visibility.covers(drive.org));
        let running = |(session, drive): (&SessionId, &ActiveDrive)| {
            let ActiveDrive { turn, since, agent, .. } = drive;
            RunningTurn { session: *session, turn: *turn, agent: agent.clone(), since: *since }
        };
        shown.map(running).collect()
    }
}

/// The signals.
impl ActiveDrives {
    /// Lets the lease loop look for work now.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for [`wake`](Self::wake).
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Asks everything that this worker runs to stop.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
        self.yielding.send_replace(true);
    }

    /// Whether the worker stops.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns the signal that the worker stops.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Returns the signal for turns to hand back their sessions: the worker stops, or wants to run a suspect alone.
    pub(super) fn yielding(&self) -> watch::Receiver<bool> {
        self.yielding.subscribe()
    }

    /// Asks turns to hand back their sessions until the guard is dropped.
    pub(super) fn pause(&self) -> PauseGuard<'_> {
        self.yielding.send_replace(true);
        PauseGuard(self)
    }

    /// Marks the worker as having a suspect until the guard is dropped.
    pub(super) fn begin_trial(&self) -> TrialGuard<'_> {
        self.on_trial.store(true, Ordering::SeqCst);
        TrialGuard(self)
    }

    /// Whether this worker runs a suspect, or waits to.
    pub(super) fn is_on_trial(&self) -> bool {
        self.on_trial.load(Ordering::SeqCst)
    }

    /// Lets other turns run again. They may have waited for the suspect.
    pub(super) fn end_trial(&self) {
        self.on_trial.store(false, Ordering::SeqCst);
        self.wake();
    }
}

impl ActiveDrive {
    fn lease(&self, session: SessionId, worker: WorkerId) -> Lease {
        Lease { session, turn: self.turn, worker, fence: self.fence }
    }
}

/// A claim in progress.
pub(super) struct ClaimGuard<'a>(&'a AtomicUsize);

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Asks turns to pause until it is dropped.
pub(super) struct PauseGuard<'a>(&'a ActiveDrives);

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        // A stopping worker keeps asking.
        self.0.yielding.send_replace(self.0.is_stopping());
    }
}

/// Marks the worker as having a suspect until it is dropped.
pub(super) struct TrialGuard<'a>(&'a ActiveDrives);

impl Drop for TrialGuard<'_> {
    fn drop(&mut self) {
        self.0.end_trial();
    }
}
