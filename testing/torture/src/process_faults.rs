//! The faults. Each scene starts workers, harms them in its own way, and leaves none running.
use crate::journal;
use crate::random_stream::log_uniform_delay;
use crate::round_state::RoundState;
use crate::torture_stats::KillKind;
use crate::torture_users::CommandKill;
use crate::worker::{ProcessExit, RoundMessage, Worker, WorkerMessage, file_size_and_mtime};
use outlast_random::SeededRandom;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// A worker that is to die while it starts is killed within this time.
const START: Duration = Duration::from_millis(20);

/// A worker that does not do what we wait for within this time is killed anyway.
const PATIENCE: Duration = Duration::from_millis(800);

/// How long two workers run together.
const TOGETHER: Duration = Duration::from_millis(80);

/// The number of inputs that make the log long enough to be checkpointed without a write.
const LARGE_INPUT_COUNT: u64 = 6;

/// The timeout for a checkpoint. The inputs must be answered first.
const MOVED_WITHIN: Duration = Duration::from_secs(5);

/// How often to check whether the database file has changed.
const GLANCE: Duration = Duration::from_micros(200);

impl RoundState {
    /// Plays the first scene, without a database.
    pub(crate) fn kill_during_creation(&mut self) -> io::Result<()> {
        self.client.add_random_input();
        for _ in 0..=self.random.below(3) {
            self.kill_while_starting()?;
        }
        Ok(())
    }

    /// Plays one scene.
    pub(crate) fn inject_random_fault(&mut self, random: SeededRandom) -> io::Result<()> {
        self.random = random;
        for _ in 0..=self.random.below(2) {
            self.client.add_random_input();
        }
        if self.random.percent(15) {
            // While no worker runs.
            self.client.run_random_command(&self.binary, &CommandKill::NotKilled)?;
        }
        match self.random.below(100) {
            0..12 => self.kill_while_starting(),
            12..28 => self.kill_while_running(),
            28..41 => self.kill_after_acknowledgement(),
            41..63 => self.kill_after_execution(),
            63..74 => self.kill_while_closing(),
            74..78 if self.ballast => self.kill_while_checkpointing(),
            74..88 => self.kill_one_of_two_workers(),
            88..94 => self.stop_beyond_lease(),
            _ => self.kill_commands(),
        }
    }

    fn kill_while_starting(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        let time = self.random.time_below(START);
        self.listen_for(time)?;
        self.kill(worker, KillKind::Running)
    }

    fn kill_while_running(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        self.wait_until_ready(&worker)?;
        if self.random.percent(30) {
            self.client.run_random_command(&self.binary, &CommandKill::NotKilled)?;
        }
        let time = log_uniform_delay(&mut self.random);
        self.listen_for(time)?;
        self.kill(worker, KillKind::Running)
    }

    fn kill_after_acknowledgement(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        let times = 1 + self.random.below(3);
        let accepted = self.wait_for_acknowledgements(times, PATIENCE)?;
        self.pause();
        self.kill(worker, if accepted { KillKind::Acknowledging } else { KillKind::Running })
    }

    fn kill_after_execution(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        let times = 1 + self.random.below(8);
        let acted = self.wait_for_executions(&worker, times, PATIENCE)?;
        self.pause();
        self.kill(worker, if acted { KillKind::Executing } else { KillKind::Running })
    }

    /// Waits until this many inputs were acknowledged.
    fn wait_for_acknowledgements(&mut self, times: u64, patience: Duration) -> io::Result<bool> {
        let mut left = times;
        self.listen(patience, |news| {
            left -=
                u64::from(matches!(news, RoundMessage::FromWorker { said: WorkerMessage::Accepted(_), .. }));
            left == 0
        })
    }

    /// Waits until tools of this worker were executed this often.
    fn wait_for_executions(&mut self, worker: &Worker, times: u64, patience: Duration) -> io::Result<bool> {
        let mut left = times;
        self.listen(patience, |news| {
            left -=
                u64::from(matches!(news, RoundMessage::WitnessSaw(execution) if execution.pid == worker.pid));
            left == 0
        })
    }

    /// Sometimes pauses for up to two milliseconds.
    fn pause(&mut self) {
        if self.random.percent(60) {
            std::thread::sleep(self.random.time_below(Duration::from_millis(2)));
        }
    }

    fn kill_while_closing(&mut self) -> io::Result<()> {
        let mut worker = self.start()?;
        self.wait_until_ready(&worker)?;
        let time = log_uniform_delay(&mut self.random);
        self.listen_for(time)?;
        if self.random.percent(50) {
            worker.end_input();
        } else {
            worker.terminate()?;
        }
        if self.random.percent(30) {
            let time = log_uniform_delay(&mut self.random);
            self.listen_for(time)?;
            return self.kill(worker, KillKind::Closing);
        }
        let pid = worker.pid;
        let closes = |news: &RoundMessage| match news {
            RoundMessage::FromWorker { pid: who, said: WorkerMessage::Closing {} }
            | RoundMessage::WorkerGone { pid: who } => *who == pid,
            _ => false,
        };
        self.listen(PATIENCE, closes)?;
        let kind = if self.file_changes_within(Duration::from_millis(30)) {
            KillKind::Checkpointing
        } else {
            KillKind::Closing
        };
        self.kill(worker, kind)
    }

    /// Grows the log, waits for the checkpoint, and kills the worker during it.
    fn kill_while_checkpointing(&mut self) -> io::Result<()> {
        for _ in 0..LARGE_INPUT_COUNT {
            self.client.add_large_input();
        }
        let worker = self.start()?;
        self.wait_until_ready(&worker)?;
        self.wait_for_acknowledgements(LARGE_INPUT_COUNT, MOVED_WITHIN)?;
        let kind =
            if self.file_changes_within(MOVED_WITHIN) { KillKind::Checkpointing } else { KillKind::Running };
        self.kill(worker, kind)
    }

    /// Returns whether the database file changes within this time. With a log beside it, only a checkpoint changes it.
    /// Returns at once or slightly later, while the checkpoint still runs.
    fn file_changes_within(&mut self, time: Duration) -> bool {
        let database = self.binary.database();
        let (before, begun) = (file_size_and_mtime(&database), Instant::now());
        while begun.elapsed() < time {
            if file_size_and_mtime(&database) != before {
                self.pause();
                return true;
            }
            std::thread::sleep(GLANCE);
        }
        false
    }

    fn kill_one_of_two_workers(&mut self) -> io::Result<()> {
        let first = self.start()?;
        if self.random.percent(50) {
            self.wait_until_ready(&first)?;
        }
        self.client.add_random_input();
        let second = self.start()?;
        let time = self.random.time_below(TOGETHER);
        self.listen_for(time)?;
        let (victim, other) = if self.random.percent(50) { (first, second) } else { (second, first) };
        self.kill(victim, KillKind::Paired)?;
        // The other worker notices and resumes the work.
        self.wait_until_ready(&other)?;
        let time = self.binary.lease / 3 + self.random.time_below(TOGETHER);
        self.listen_for(time)?;
        self.kill_or_shut_down(other, KillKind::Paired)
    }

    /// Stops a worker for longer than its lease, so that another takes over, and continues it.
    fn stop_beyond_lease(&mut self) -> io::Result<()> {
        let heir = self.start_idle()?;
        self.wait_until_ready(&heir)?;
        let before = self.binary.workers();
        self.client.add_random_input();
        let first = self.start()?;
        let times = 1 + self.random.below(4);
        self.wait_for_executions(&first, times, PATIENCE)?;
        self.pause();
        first.signal(Signal::STOP)?;
        let held = self.driven_by_others(&before);
        self.note(&format!("stopped {}, which drives {held} sessions", first.pid))?;
        self.figures.stops += 1;
        self.listen_for(self.binary.lease)?;
        // Continue it while the other worker handles the same turn, because a stale lease does the most harm then.
        let times = 1 + self.random.below(3);
        self.wait_for_executions(&heir, times, self.binary.lease)?;
        self.pause();
        if self.random.percent(20) {
            self.kill(first, KillKind::Stopped)?;
            return self.kill_or_shut_down(heir, KillKind::Paired);
        }
        first.signal(Signal::CONT)?;
        let remaining = self.driven_by_others(&before);
        self.figures.taken_over += held.saturating_sub(remaining);
        self.note(&format!("let {} go on, which still has {remaining} sessions", first.pid))?;
        let time = log_uniform_delay(&mut self.random);
        self.listen_for(time)?;
        if self.random.percent(50) {
            self.kill(first, KillKind::Stopped)?;
            self.kill_or_shut_down(heir, KillKind::Paired)
        } else {
            self.kill(heir, KillKind::Paired)?;
            self.listen_for(time)?;
            self.kill_or_shut_down(first, KillKind::Stopped)
        }
    }

    /// Returns the number of sessions that workers outside this set drive. If a stopped worker holds the database, they
    /// are not visible.
    fn driven_by_others(&self, among: &BTreeSet<String>) -> u64 {
        let others = self.binary.workers();
        let driven = |worker| journal::driven_by(&self.binary.database(), worker).unwrap_or(0) as u64;
        others.difference(among).map(|worker| driven(worker)).sum()
    }

    fn kill_commands(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        self.wait_until_ready(&worker)?;
        let time = log_uniform_delay(&mut self.random);
        self.listen_for(time)?;
        for _ in 0..=self.random.below(2) {
            let fate = CommandKill::KilledAfter(self.random.time_below(START));
            if self.client.run_random_command(&self.binary, &fate)? == Some(ProcessExit::Killed) {
                self.killed(KillKind::Commanding, "a command")?;
            }
        }
        self.kill_or_shut_down(worker, KillKind::Running)
    }

    /// Finishes with a worker: most are killed, some are shut down.
    fn kill_or_shut_down(&mut self, worker: Worker, kind: KillKind) -> io::Result<()> {
        if self.random.percent(80) { self.kill(worker, kind) } else { self.end(worker) }
    }
}
