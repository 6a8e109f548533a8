//! Shares what a provider's key allows between all sessions of this process (R5.8).
//!
//! A key has a gate. It is closed for as long as the provider asks when it turns somebody away, and opens for one session after
//! the other, in the order they came; a rate that is known is kept to before anybody is turned away. Who must wait is told for
//! how long, and the turn waits without holding anything.
use outlast_ports::model::Rate;
use outlast_vocab::{Millis, SessionId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a rate is measured over.
const MINUTE: Duration = Duration::from_mins(1);
/// The distance of those who wait at a gate: the first finds out whether it is open before all others follow.
const APART: Duration = Duration::from_millis(100);
/// The longest that a gate is closed at once, whatever a provider asks for.
const CLOSED_MOST: Duration = Duration::from_hours(24);
/// How long a place in the line is kept for a session that does not come back.
const PLACE_KEPT: Duration = Duration::from_mins(10);

/// The gates of all keys.
#[derive(Debug, Default)]
pub struct Governor {
    gates: Mutex<HashMap<String, Gate>>,
}

#[derive(Debug, Default)]
struct Gate {
    /// When it opens after somebody was turned away.
    opens: Millis,
    /// Those who wait, each with the time of its turn.
    line: HashMap<SessionId, Millis>,
    /// The last turn that was given out.
    last: Millis,
    /// Tokens that were used within the last minute, oldest first.
    used: VecDeque<(Millis, u64)>,
}

impl Governor {
    /// Whether a session may ask now; otherwise how long it has to wait. `tokens` is about what the question takes.
    pub(crate) fn admit(
        &self,
        session: SessionId,
        rate: &Rate,
        tokens: u64,
        now: Millis,
    ) -> Result<(), Duration> {
        let mut gates = self.lock();
        let gate = gates.entry(rate.key.clone()).or_default();
        gate.line.retain(|_, turn| turn.after(PLACE_KEPT) > now);
        let turn = match gate.line.get(&session) {
            Some(turn) => *turn,
            None => gate.next_turn(rate, now),
        };
        let turn = turn.max(gate.room_for(rate, tokens, now)).max(gate.opens);
        if turn > now {
            gate.line.insert(session, turn);
            gate.last = gate.last.max(turn);
            return Err(now.until(turn));
        }
        gate.line.remove(&session);
        gate.last = gate.last.max(turn);
        if rate.tokens_per_minute.is_some() {
            gate.used.push_back((now, tokens));
        }
        Ok(())
    }

    /// A provider turned a session away and asks to be left alone for this long.
    pub(crate) fn turned_away(&self, rate: &Rate, pause: Duration, now: Millis) {
        let mut gates = self.lock();
        let gate = gates.entry(rate.key.clone()).or_default();
        gate.opens = gate.opens.max(now.after(pause.min(CLOSED_MOST)));
    }

    /// Whether the provider asked to be left alone until later than now.
    pub(crate) fn is_closed(&self, rate: &Rate, now: Millis) -> bool {
        self.lock().get(&rate.key).is_some_and(|gate| gate.opens > now)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// The turn of somebody who comes now: behind everybody who waits, and as far from the last one as the rate says.
    fn next_turn(&self, rate: &Rate, now: Millis) -> Millis {
        let apart = rate.requests_per_minute.map_or(Duration::ZERO, |most| MINUTE / most.max(1));
        let behind = self.line.values().max().map_or(now, |last| last.after(APART.max(apart)));
        let paced = if apart.is_zero() { now } else { self.last.after(apart) };
        // A clock that was set back must not make everybody wait for it.
        if paced > now.after(MINUTE) { behind } else { behind.max(paced) }
    }

    /// When so many tokens fit into the minute before.
    fn room_for(&mut self, rate: &Rate, tokens: u64, now: Millis) -> Millis {
        let Some(most) = rate.tokens_per_minute else { return now };
        self.used.retain(|(at, _)| at.after(MINUTE) > now && *at <= now);
        let mut sum: u64 = self.used.iter().map(|(_, used)| used).sum();
        let mut free = now;
        for (at, used) in &self.used {
            if sum.saturating_add(tokens) <= most {
                break;
            }
            (sum, free) = (sum - used, at.after(MINUTE));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(requests: Option<u32>, tokens: Option<u64>) -> Rate {
        Rate { key: "openai".to_owned(), requests_per_minute: requests, tokens_per_minute: tokens }
    }

    fn who(number: u128) -> SessionId {
        SessionId::from_u128(number)
    }

    fn ask(governor: &Governor, number: u128, rate: &Rate, now: u64) -> Option<u128> {
        governor.admit(who(number), rate, 10, Millis(now)).err().map(|wait| wait.as_millis())
    }

    #[test]
    fn without_a_rate_and_without_refusals_nobody_waits() {
        let (governor, rate) = (Governor::default(), rate(None, None));
        assert!((0..100).all(|number| ask(&governor, number, &rate, 1_000).is_none()));
    }

    #[test]
    fn a_refusal_closes_the_gate_for_all_and_they_come_back_one_by_one_in_their_order() {
        let (governor, rate) = (Governor::default(), rate(None, None));
        governor.turned_away(&rate, Duration::from_secs(5), Millis(1_000));
        let waits: Vec<_> = (1..=3).map(|number| ask(&governor, number, &rate, 1_000)).collect();
        assert_eq!(waits, [Some(5_000), Some(5_100), Some(5_200)]);
        // Whoever comes early is told the same; whoever comes when it is their turn is let in.
        assert_eq!(ask(&governor, 2, &rate, 3_000), Some(3_100));
        assert_eq!(ask(&governor, 1, &rate, 6_000), None);
        assert_eq!(ask(&governor, 2, &rate, 6_050), Some(50));
        // The first one was turned away again: all wait again, and nobody has lost their place.
        governor.turned_away(&rate, Duration::from_secs(2), Millis(6_060));
        assert_eq!(ask(&governor, 2, &rate, 6_100), Some(1_960));
        assert_eq!(ask(&governor, 2, &rate, 8_060), None);
    }

    #[test]
    fn a_known_rate_is_shared_so_that_a_busy_session_does_not_starve_the_others() {
        let (governor, rate) = (Governor::default(), rate(Some(60), None));
        assert_eq!(ask(&governor, 1, &rate, 100_000), None);
        // The same session again and again gets one place in the line, the others theirs behind it.
        assert_eq!(ask(&governor, 1, &rate, 100_000), Some(1_000));
        assert_eq!(ask(&governor, 1, &rate, 100_000), Some(1_000));
        assert_eq!(ask(&governor, 2, &rate, 100_000), Some(2_000));
        assert_eq!(ask(&governor, 3, &rate, 100_000), Some(3_000));
        assert_eq!(ask(&governor, 1, &rate, 101_000), None);
        assert_eq!(ask(&governor, 1, &rate, 101_000), Some(3_000));
    }

    #[test]
    fn tokens_of_the_last_minute_are_counted() {
        let (governor, rate) = (Governor::default(), rate(None, Some(25)));
        assert_eq!(ask(&governor, 1, &rate, 10_000), None);
        assert_eq!(ask(&governor, 2, &rate, 20_000), None);
        assert_eq!(ask(&governor, 3, &rate, 30_000), Some(40_000));
        assert_eq!(ask(&governor, 3, &rate, 70_000), None);
    }

    #[test]
    fn keys_do_not_wait_for_each_other_and_a_clock_that_was_set_back_holds_nobody_up() {
        let governor = Governor::default();
        let (one, two) = (rate(Some(1), None), Rate { key: "other".to_owned(), ..rate(Some(1), None) });
        assert_eq!(ask(&governor, 1, &one, 900_000), None);
        assert_eq!(ask(&governor, 1, &two, 900_000), None);
        assert_eq!(ask(&governor, 2, &one, 100_000), None);
    }
}
