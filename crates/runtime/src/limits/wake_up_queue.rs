//! Spaces the calls of turns that have waited for a provider.
//!
//! A call that comes too early gets a time. Its session keeps this time until it makes the call. A call that comes
//! after its time still waits until the previous one is long enough ago, because many sessions may come late together.
use outlast_vocab::SessionId;
use std::collections::HashMap;
use std::time::Duration;

/// How long the time of a session that does not return is kept.
const TIME_KEPT: Duration = Duration::from_mins(10);

/// The times of calls to one provider. All times are those of the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct WakeUpQueue {
    /// When the last call was made.
    called: Option<Duration>,
    /// The times of sessions that have to wait.
    times: HashMap<SessionId, Duration>,
    /// The last of these times.
    last: Option<Duration>,
}

impl WakeUpQueue {
    /// Returns how long a session has to wait before its call. If this is zero, the call counts as made.
    pub(super) fn wait(&mut self, session: SessionId, apart: Duration, now: Duration) -> Duration {
        let after = |other: Option<Duration>| other.map_or(now, |other| now.max(other.saturating_add(apart)));
        self.times.retain(|_, time| time.saturating_add(TIME_KEPT) > now);
        let own = self.times.remove(&session).unwrap_or_else(|| after(self.last));
        let time = own.max(after(self.called));
        self.last = self.last.max(Some(time));
        if time > now {
            self.times.insert(session, time);
        } else {
            self.called = Some(now);
        }
        time.saturating_sub(now)
    }

    /// Puts a session before all others.
    pub(super) fn put_first(&mut self, session: SessionId, now: Duration) {
        self.times.insert(session, now);
    }

    /// Forgets the times of all sessions, because they have to wait for their provider again.
    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.last = self.called;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: Duration = Duration::from_millis(100);

    fn wait(queue: &mut WakeUpQueue, session: u128, now: u64) -> u128 {
        queue.wait(SessionId::from_u128(session), APART, Duration::from_millis(now)).as_millis()
    }

    #[test]
    fn sessions_call_in_order_of_arrival() {
        let mut queue = WakeUpQueue::default();
        assert_eq!([1, 2, 3].map(|session| wait(&mut queue, session, 50)), [0, 100, 200]);
        // A session that comes early keeps its time.
        assert_eq!(wait(&mut queue, 3, 150), 100);
        assert_eq!(wait(&mut queue, 2, 150), 0);
        assert_eq!(wait(&mut queue, 4, 150), 200);
        assert_eq!(
            [(3, 250), (4, 350), (5, 1_000)].map(|(session, now)| wait(&mut queue, session, now)),
            [0; 3]
        );
    }

    #[test]
    fn late_sessions_call_one_after_another() {
        let mut queue = WakeUpQueue::default();
        assert_eq!([1, 2, 3, 4].map(|session| wait(&mut queue, session, 0)), [0, 100, 200, 300]);
        assert_eq!([2, 3, 4].map(|session| wait(&mut queue, session, 5_000)), [0, 100, 100]);
        assert_eq!([3, 4].map(|session| wait(&mut queue, session, 5_100)), [0, 100]);
        assert_eq!(wait(&mut queue, 4, 5_200), 0);
    }

    #[test]
    fn first_session_overtakes_the_others() {
        let mut queue = WakeUpQueue::default();
        assert_eq!([1, 2, 3].map(|session| wait(&mut queue, session, 0)), [0, 100, 200]);
        queue.put_first(SessionId::from_u128(3), Duration::from_millis(10));
        assert_eq!(wait(&mut queue, 3, 10), 90);
    }

    #[test]
    fn missing_sessions_delay_no_other() {
        let mut queue = WakeUpQueue::default();
        assert_eq!([1, 2, 3].map(|session| wait(&mut queue, session, 0)), [0, 100, 200]);
        queue.clear();
        assert_eq!(wait(&mut queue, 4, 0), 100);
        assert_eq!(wait(&mut queue, 5, 700_000), 0);
        assert!(queue.times.is_empty());
    }
}
