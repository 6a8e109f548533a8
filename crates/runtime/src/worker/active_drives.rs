//! The sessions that a worker drives now, and how many more it may claim.
use super::{WorkerState, lock, turn_drive, watchdog};
use crate::turn::cancel::{CancelSignal, Canceller, cancel};
use outlast_ports::turns::{ClaimedTurn, Fence, Lease, LeaseRequest};
use outlast_vocab::{Millis, OrgId, SessionId, TurnId};
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A session that this worker drives.
pub(super) struct ActiveDrive {
    pub(super) turn: TurnId,
    pub(super) fence: Fence,
    pub(super) canceller: Arc<Canceller>,
    pub(super) org: OrgId,
    pub(super) since: Millis,
    /// The agent that answers, once it is known.
    pub(super) agent: Option<String>,
    /// Measures how long its task blocks its thread.
    pub(super) poll: Arc<watchdog::PollTimer>,
}

/// The cancellation handles and the poll timer of one drive.
pub(super) struct DriveHandles {
    pub(super) canceller: Arc<Canceller>,
    pub(super) cancel: CancelSignal,
    pub(super) poll: Arc<watchdog::PollTimer>,
}

impl WorkerState {
    /// Returns the claim of this worker on a session, unless it is full or stopping.
    pub(super) fn lease_request(&self, now: Millis) -> Option<LeaseRequest> {
        let free = self.free_slots() > 0 && !*self.stopping.borrow();
        free.then(|| LeaseRequest { worker: self.worker, until: now.after(self.limits.lease) })
    }

    pub(super) fn free_slots(&self) -> usize {
        self.limits.sessions_at_once.saturating_sub(lock(&self.driving).len())
    }

    /// Drives a session in a separate task.
    pub(super) fn spawn(self: &Arc<Self>, work: ClaimedTurn) {
        let driven = self.begin(&work);
        self.tasks.spawn(turn_drive::drive_session(self.clone(), work, driven));
    }

    /// Registers a turn as driven here.
    pub(super) fn begin(&self, work: &ClaimedTurn) -> DriveHandles {
        let ClaimedTurn { lease, org, .. } = work;
        let (canceller, cancel_signal) = cancel();
        let canceller = Arc::new(canceller);
        self.hub.begins(lease.turn, *org);
        let Lease { turn, fence, .. } = *lease;
        let since = self.clock.now();
        let poll = Arc::new(watchdog::PollTimer::default());
        let driving = ActiveDrive {
            turn,
            fence,
            canceller: canceller.clone(),
            org: *org,
            since,
            agent: None,
            poll: poll.clone(),
        };
        lock(&self.driving).insert(lease.session, driving);
        DriveHandles { canceller, cancel: cancel_signal, poll }
    }

    /// Returns whether a session is still driven under this lease. A worker that lost a session may have claimed it
    /// again before the first drive has noticed.
    pub(super) fn drives(&self, lease: &Lease) -> bool {
        lock(&self.driving).get(&lease.session).is_some_and(|driving| driving.fence == lease.fence)
    }

    /// Returns the leases of all sessions that are driven here.
    pub(super) fn leases(&self) -> Vec<Lease> {
        let lease = |(session, driving): (&SessionId, &ActiveDrive)| Lease {
            session: *session,
            turn: driving.turn,
            worker: self.worker,
            fence: driving.fence,
        };
        lock(&self.driving).iter().map(lease).collect()
    }

    /// Returns the sessions whose tasks are being polled. After all tasks were dropped, those block their threads.
    pub(super) fn blocked(&self) -> Vec<SessionId> {
        let driving = lock(&self.driving);
        let polled = driving.iter().filter(|(_, driving)| driving.poll.since().is_some());
        polled.map(|(session, _)| *session).collect()
    }

    /// Records which agent answers under this lease.
    pub(super) fn is_answered_by(&self, lease: &Lease, agent: &str) {
        if let Some(driving) = lock(&self.driving).get_mut(&lease.session)
            && driving.fence == lease.fence
        {
            driving.agent = Some(agent.to_owned());
        }
    }

    /// Removes a session that is no longer driven under this lease.
    pub(super) fn stop_driving(&self, lease: &Lease) {
        if let Entry::Occupied(driving) = lock(&self.driving).entry(lease.session)
            && driving.get().fence == lease.fence
        {
            driving.remove();
        }
    }
}

/// Counts a claim in progress until it is dropped.
pub(super) struct ClaimGuard<'a>(&'a AtomicUsize);

impl<'a> ClaimGuard<'a> {
    pub(super) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
