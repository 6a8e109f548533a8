//! The watchdog: detects turns that block their threads.
//!
//! Such a turn cannot be cancelled, and its process has to be killed. The watchdog durably records which turn it was,
//! so that the next worker runs it alone.
use super::{WorkerState, lock};
use outlast_ports::turns::{Fence, Lease};
use outlast_vocab::SessionId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most time that one check adds. A process that was suspended for an hour has not seen its turns block for an
/// hour.
const MOST_PER_LOOK: Duration = Duration::from_secs(1);

/// Measures how long the current poll of a task lasts.
#[derive(Debug, Default)]
pub(super) struct PollTimer {
    /// When the poll began, in microseconds plus one. 0 between polls.
    since: AtomicU64,
}

impl PollTimer {
    /// Starts a poll, which ends when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, now: Duration) -> PollGuard<'_> {
        let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX - 1);
        self.since.store(micros + 1, Ordering::Relaxed);
        PollGuard(self)
    }

    /// Returns when the current poll began.
    pub(super) fn since(&self) -> Option<Duration> {
        self.since.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_micros)
    }
}

/// A running poll.
pub(super) struct PollGuard<'a>(&'a PollTimer);

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Relaxed);
    }
}

/// What the watchdog knows about one poll.
struct ObservedPoll {
    since: Duration,
    blocked: Duration,
    reported: bool,
}

/// Checks all turns of a worker periodically.
pub(super) struct Watchdog {
    looked: Duration,
    seen: BTreeMap<(SessionId, Fence), ObservedPoll>,
}

impl Watchdog {
    pub(super) fn new(now: Duration) -> Self {
        Self { looked: now, seen: BTreeMap::new() }
    }

    /// Reports turns whose polls have lasted too long.
    pub(super) async fn look(&mut self, inner: &WorkerState) {
        let now = inner.clock.elapsed();
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now)).min(MOST_PER_LOOK);
        let polls: BTreeMap<(SessionId, Fence), (Lease, Duration)> = {
            let driving = lock(&inner.driving);
            let polls = driving.iter().filter_map(|(session, driving)| {
                let (turn, fence) = (driving.turn, driving.fence);
                let lease = Lease { session: *session, turn, worker: inner.worker, fence };
                Some(((*session, fence), (lease, driving.poll.since()?)))
            });
            polls.collect()
        };
        self.seen.retain(|key, seen| polls.get(key).is_some_and(|(_, since)| *since == seen.since));
        for (key, (lease, since)) in polls {
            let seen = self.seen.entry(key);
            let seen = seen.and_modify(|seen| seen.blocked += passed).or_insert(ObservedPoll {
                since,
                blocked: Duration::ZERO,
                reported: false,
            });
            if seen.blocked >= inner.limits.turn_hang && !seen.reported {
                // A failed write is repeated at the next check.
                seen.reported = report(inner, lease, seen.blocked).await;
            }
        }
    }
}

async fn report(inner: &WorkerState, lease: Lease, blocked: Duration) -> bool {
    let (session, turn) = (lease.session, lease.turn);
    let seconds = blocked.as_secs();
    match inner.store.report_hang(lease.clone()).await {
        Ok(true) => {
            tracing::error!(%session, %turn, seconds, "the turn ran alone and blocks its thread; it is sealed");
            inner.metrics.hung();
            inner.stop_driving(&lease);
            inner.on_trial.store(false, Ordering::SeqCst);
            inner.wake.notify_one();
            true
        }
        Ok(false) => {
            tracing::error!(%session, %turn, seconds, "the turn blocks its thread; restart this process, and the turn will run alone");
            inner.metrics.hung();
            true
        }
        Err(error) => {
            tracing::warn!(%session, %turn, %error, "a turn that blocks its thread could not be noted");
            error.kind() == outlast_vocab::Kind::LeaseLost
        }
    }
}
