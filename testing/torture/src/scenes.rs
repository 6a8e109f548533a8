//! The faults. Each scene starts workers, harms them in its own way, and leaves none running.
use crate::client::Fate;
use crate::dice::Dice;
use crate::figures::Kind;
use crate::journal;
use crate::stage::Stage;
use crate::worker::{Death, News, Said, Worker, trace};
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
const BALLAST: u64 = 6;

/// The timeout for a checkpoint. The inputs must be answered first.
const MOVED_WITHIN: Duration = Duration::from_secs(5);

/// How often to check whether the database file has changed.
const GLANCE: Duration = Duration::from_micros(200);

impl Stage {
    /// Plays the first scene, without a database.
    pub(crate) fn creation(&mut self) -> io::Result<()> {
        self.client.order();
        for _ in 0..=self.dice.below(3) {
            self.dies_starting()?;
        }
        Ok(())
    }

    /// Plays one scene.
    pub(crate) fn scene(&mut self, dice: Dice) -> io::Result<()> {
        self.dice = dice;
        for _ in 0..=self.dice.below(2) {
            self.client.order();
        }
        if self.dice.percent(15) {
            // While no worker runs.
            self.client.act(&self.binary, &Fate::Lives)?;
        }
        match self.dice.below(100) {
            0..12 => self.dies_starting(),
            12..28 => self.dies_running(),
            28..41 => self.dies_acknowledging(),
            41..63 => self.dies_executing(),
            63..74 => self.dies_closing(),
            74..78 if self.ballast => self.dies_checkpointing(),
            74..88 => self.dies_beside_another(),
            88..94 => self.is_stopped(),
            _ => self.command_dies(),
        }
    }

    fn dies_starting(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        let time = self.dice.within(START);
        self.listen_for(time)?;
        self.kill(worker, Kind::Running)
    }

    fn dies_running(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        self.until_ready(&worker)?;
        if self.dice.percent(30) {
            self.client.act(&self.binary, &Fate::Lives)?;
        }
        let time = self.dice.soon();
        self.listen_for(time)?;
        self.kill(worker, Kind::Running)
    }

    fn dies_acknowledging(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        let times = 1 + self.dice.below(3);
        let accepted = self.accepts(times, PATIENCE)?;
        self.pause();
        self.kill(worker, if accepted { Kind::Acknowledging } else { Kind::Running })
    }

    fn dies_executing(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        let times = 1 + self.dice.below(8);
        let acted = self.acts(&worker, times, PATIENCE)?;
        self.pause();
        self.kill(worker, if acted { Kind::Executing } else { Kind::Running })
    }

    /// Waits until this many inputs were acknowledged.
    fn accepts(&mut self, times: u64, patience: Duration) -> io::Result<bool> {
        let mut left = times;
        self.listen(patience, |news| {
            left -= u64::from(matches!(news, News::Said { said: Said::Accepted(_), .. }));
            left == 0
        })
    }

    /// Waits until tools of this worker were executed this often.
    fn acts(&mut self, worker: &Worker, times: u64, patience: Duration) -> io::Result<bool> {
        let mut left = times;
        self.listen(patience, |news| {
            left -= u64::from(matches!(news, News::Saw(execution) if execution.pid == worker.pid));
            left == 0
        })
    }

    /// Sometimes pauses for up to two milliseconds.
    fn pause(&mut self) {
        if self.dice.percent(60) {
            std::thread::sleep(self.dice.within(Duration::from_millis(2)));
        }
    }

    fn dies_closing(&mut self) -> io::Result<()> {
        let mut worker = self.start()?;
        self.until_ready(&worker)?;
        let time = self.dice.soon();
        self.listen_for(time)?;
        if self.dice.percent(50) {
            worker.end_input();
        } else {
            worker.terminate()?;
        }
        if self.dice.percent(30) {
            let time = self.dice.soon();
            self.listen_for(time)?;
            return self.kill(worker, Kind::Closing);
        }
        let pid = worker.pid;
        let closes = |news: &News| match news {
            News::Said { pid: who, said: Said::Closing {} } | News::Silent { pid: who } => *who == pid,
            _ => false,
        };
        self.listen(PATIENCE, closes)?;
        let kind =
            if self.moves_within(Duration::from_millis(30)) { Kind::Checkpointing } else { Kind::Closing };
        self.kill(worker, kind)
    }

    /// Grows the log, waits for the checkpoint, and kills the worker during it.
    fn dies_checkpointing(&mut self) -> io::Result<()> {
        for _ in 0..BALLAST {
            self.client.ballast();
        }
        let worker = self.start()?;
        self.until_ready(&worker)?;
        self.accepts(BALLAST, MOVED_WITHIN)?;
        let kind = if self.moves_within(MOVED_WITHIN) { Kind::Checkpointing } else { Kind::Running };
        self.kill(worker, kind)
    }

    /// Returns whether the database file changes within this time. With a log beside it, only a checkpoint changes it.
    /// Returns at once or slightly later, while the checkpoint still runs.
    fn moves_within(&mut self, time: Duration) -> bool {
        let database = self.binary.database();
        let (before, begun) = (trace(&database), Instant::now());
        while begun.elapsed() < time {
            if trace(&database) != before {
                self.pause();
                return true;
            }
            std::thread::sleep(GLANCE);
        }
        false
    }

    fn dies_beside_another(&mut self) -> io::Result<()> {
        let first = self.start()?;
        if self.dice.percent(50) {
            self.until_ready(&first)?;
        }
        self.client.order();
        let second = self.start()?;
        let time = self.dice.within(TOGETHER);
        self.listen_for(time)?;
        let (victim, other) = if self.dice.percent(50) { (first, second) } else { (second, first) };
        self.kill(victim, Kind::Paired)?;
        // The other worker notices and resumes the work.
        self.until_ready(&other)?;
        let time = self.binary.lease / 3 + self.dice.within(TOGETHER);
        self.listen_for(time)?;
        self.leave(other, Kind::Paired)
    }

    /// Stops a worker for longer than its lease, so that another takes over, and continues it.
    fn is_stopped(&mut self) -> io::Result<()> {
        let heir = self.start_idle()?;
        self.until_ready(&heir)?;
        let before = self.binary.workers();
        self.client.order();
        let first = self.start()?;
        let times = 1 + self.dice.below(4);
        self.acts(&first, times, PATIENCE)?;
        self.pause();
        first.signal(Signal::STOP)?;
        let held = self.driven_by_others(&before);
        self.note(&format!("stopped {}, which drives {held} sessions", first.pid))?;
        self.figures.stops += 1;
        self.listen_for(self.binary.lease)?;
        // Continue it while the other worker handles the same turn, because a stale lease does the most harm then.
        let times = 1 + self.dice.below(3);
        self.acts(&heir, times, self.binary.lease)?;
        self.pause();
        if self.dice.percent(20) {
            self.kill(first, Kind::Stopped)?;
            return self.leave(heir, Kind::Paired);
        }
        first.signal(Signal::CONT)?;
        let kept = self.driven_by_others(&before);
        self.figures.taken_over += held.saturating_sub(kept);
        self.note(&format!("let {} go on, which still has {kept} sessions", first.pid))?;
        let time = self.dice.soon();
        self.listen_for(time)?;
        if self.dice.percent(50) {
            self.kill(first, Kind::Stopped)?;
            self.leave(heir, Kind::Paired)
        } else {
            self.kill(heir, Kind::Paired)?;
            self.listen_for(time)?;
            self.leave(first, Kind::Stopped)
        }
    }

    /// Returns the number of sessions that workers outside this set drive. If a stopped worker holds the database, they
    /// are not visible.
    fn driven_by_others(&self, among: &BTreeSet<String>) -> u64 {
        let others = self.binary.workers();
        let driven = |worker| journal::driven_by(&self.binary.database(), worker).unwrap_or(0) as u64;
        others.difference(among).map(|worker| driven(worker)).sum()
    }

    fn command_dies(&mut self) -> io::Result<()> {
        let worker = self.start()?;
        self.until_ready(&worker)?;
        let time = self.dice.soon();
        self.listen_for(time)?;
        for _ in 0..=self.dice.below(2) {
            let fate = Fate::Dies(self.dice.within(START));
            if self.client.act(&self.binary, &fate)? == Some(Death::Killed) {
                self.killed(Kind::Commanding, "a command")?;
            }
        }
        self.leave(worker, Kind::Running)
    }

    /// Finishes with a worker: most are killed, some are shut down.
    fn leave(&mut self, worker: Worker, kind: Kind) -> io::Result<()> {
        if self.dice.percent(80) { self.kill(worker, kind) } else { self.end(worker) }
    }
}
