//! The watchdog: detects turns that block their threads.
//!
//! Such a turn cannot be cancelled, and its process has to be killed. The watchdog durably records which turn it was,
//! so that the next worker runs it alone.
use super::active_drives::ActiveDrives;
use crate::turn::journal_writer::WorkerJournal;
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
    pub(super) journal: Arc<WorkerJournal>,
    pub(super) drives: Arc<ActiveDrives>,
    pub(super) seen: ObservedPolls,
}

/// The polls that the watchdog saw at its last check.
pub(super) struct ObservedPolls {
    looked: Duration,
    polls: BTreeMap<(SessionId, Fence), ObservedPoll>,
}

impl ObservedPolls {
    pub(super) fn since(now: Duration) -> Self {
        Self { looked: now, polls: BTreeMap::new() }
    }
}

impl Watchdog {
    /// Reports turns whose polls have lasted too long.
    pub(super) async fn look(&mut self) {
        let now = self.journal.clock.elapsed();
        let ObservedPolls { looked, polls: seen } = &mut self.seen;
        let passed = now.saturating_sub(std::mem::replace(looked, now)).min(MOST_PER_LOOK);
        let polled = self.drives.polled().into_iter();
        let polls: BTreeMap<(SessionId, Fence), (Lease, Duration)> =
            polled.map(|(lease, since)| ((lease.session, lease.fence), (lease, since))).collect();
        seen.retain(|key, seen| polls.get(key).is_some_and(|(_, since)| *since == seen.since));
        let mut hung = Vec::new();
        for (key, (lease, since)) in polls {
            let seen = seen.entry(key).and_modify(|seen| seen.blocked += passed);
            let seen = seen.or_insert(ObservedPoll { since, blocked: Duration::ZERO, reported: false });
            if seen.blocked >= self.journal.limits.turn_hang && !seen.reported {
                hung.push((key, lease, seen.blocked));
            }
        }
        for (key, lease, blocked) in hung {
            // A failed write is repeated at the next check.
            if self.report(lease, blocked).await
                && let Some(seen) = self.seen.polls.get_mut(&key)
            {
                seen.reported = true;
            }
        }
    }

    /// Records durably that a turn blocks its thread. Returns whether it need not be tried again.
    async fn report(&self, lease: Lease, blocked: Duration) -> bool {
        let (session, turn) = (lease.session, lease.turn);
        let seconds = blocked.as_secs();
        match self.journal.store.report_hang(lease).await {
            Ok(true) => {
                tracing::error!(%session, %turn, seconds, "the turn ran alone and blocks its thread; it is sealed");
                self.journal.metrics.hung();
                self.drives.remove(&lease);
                self.drives.end_trial();
                true
            }
            Ok(false) => {
                tracing::error!(%session, %turn, seconds, "the turn blocks its thread; restart this process, and the turn will run alone");
                self.journal.metrics.hung();
                true
            }
            Err(error) => {
                tracing::warn!(%session, %turn, %error, "a turn that blocks its thread could not be recorded");
                error.kind() == outlast_vocab::Kind::LeaseLost
            }
        }
    }
}
