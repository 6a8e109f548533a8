//! Schedules the calls of a batch: decides which of them may run now.
//!
//! Knows the scheduling of each call and which calls have finished, and nothing about what the calls do.
use outlast_vocab::tool::CallScheduling;

/// A batch of calls in progress.
#[derive(Debug)]
pub struct CallBatch<'a> {
    calls: Vec<(&'a CallScheduling, CallProgress)>,
    parallel: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallProgress {
    Waiting,
    Running,
    Finished,
}

impl<'a> CallBatch<'a> {
    /// Creates a batch of calls in the order the model asked for them. At most `parallel` of them run at a
    /// time.
    pub fn new(calls: impl IntoIterator<Item = &'a CallScheduling>, parallel: usize) -> Self {
        let calls = calls.into_iter().map(|scheduling| (scheduling, CallProgress::Waiting)).collect();
        Self { calls, parallel: parallel.max(1) }
    }

    /// Returns the next call that may start, and marks it as running.
    pub fn start(&mut self) -> Option<usize> {
        let running = self.calls.iter().filter(|(_, state)| *state == CallProgress::Running).count();
        if running >= self.parallel {
            return None;
        }
        let next =
            (0..self.calls.len()).find(|&i| self.calls[i].1 == CallProgress::Waiting && self.may_start(i))?;
        self.calls[next].1 = CallProgress::Running;
        Some(next)
    }

    /// Marks a call as finished, whether it ran or was answered from the journal.
    pub fn finish(&mut self, index: usize) {
        self.calls[index].1 = CallProgress::Finished;
    }

    /// Returns whether a call has started and not finished.
    pub fn is_running(&self, index: usize) -> bool {
        self.calls[index].1 == CallProgress::Running
    }

    fn may_start(&self, index: usize) -> bool {
        let open_before = self.calls[..index].iter().filter(|(_, state)| *state != CallProgress::Finished);
        let mut blocked = open_before.map(|(before, _)| match (before, self.calls[index].0) {
            (CallScheduling::Serial, _) | (_, CallScheduling::Serial) => true,
            (CallScheduling::Keyed(a), CallScheduling::Keyed(b)) => a == b,
            _ => false,
        });
        !blocked.any(|blocked| blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts every call that may start, finishes them all, and repeats. `p` is parallel, `s` serial; any
    /// other letter is a key.
    fn waves(calls: &str, parallel: usize) -> Vec<Vec<usize>> {
        let calls: Vec<CallScheduling> = calls
            .chars()
            .map(|c| match c {
                'p' => CallScheduling::Parallel,
                's' => CallScheduling::Serial,
                key => CallScheduling::Keyed(key.to_string()),
            })
            .collect();
        let mut batch = CallBatch::new(&calls, parallel);
        let mut waves = Vec::new();
        loop {
            let wave: Vec<usize> = std::iter::from_fn(|| batch.start()).collect();
            if wave.is_empty() {
                return waves;
            }
            for &index in &wave {
                batch.finish(index);
            }
            waves.push(wave);
        }
    }

    #[test]
    fn parallel_calls_start_together_up_to_the_limit() {
        assert_eq!(waves("ppp", 8), [vec![0, 1, 2]]);
        assert_eq!(waves("ppp", 2), [vec![0, 1], vec![2]]);
        assert_eq!(waves("pp", 0), [vec![0], vec![1]]);
    }

    #[test]
    fn calls_with_same_key_run_in_order() {
        assert_eq!(waves("abapa", 8), [vec![0, 1, 3], vec![2], vec![4]]);
    }

    #[test]
    fn a_serial_call_runs_alone() {
        assert_eq!(waves("pspp", 8), [vec![0], vec![1], vec![2, 3]]);
    }
}
