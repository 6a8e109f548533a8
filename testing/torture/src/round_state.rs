//! The state of a round: the binary, the users, the messages and the statistics. Starts, observes and kills workers.
use crate::TorturePlan;
use crate::journal_checker::{PromiseViolation, PromiseViolationKind};
use crate::random_stream::RandomPurpose;
use crate::torture_stats::{KillKind, TortureStats};
use crate::torture_users::TortureUsers;
use crate::witness::WitnessServer;
use crate::worker::{OutlastBinary, ProcessExit, RoundMessage, Worker, WorkerMessage};
use outlast_random::SeededRandom;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The log of faults in the directory of a round.
const FAULT_LOG_FILE: &str = "nemesis.log";

/// The timeout until a worker accepts inputs. A stopped process may hold the database meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// One database and everything around it.
pub(crate) struct RoundState {
    pub(crate) binary: OutlastBinary,
    pub(crate) random: SeededRandom,
    pub(crate) client: TortureUsers,
    pub(crate) figures: TortureStats,
    /// Whether the log may be grown.
    pub(crate) ballast: bool,
    news: Receiver<RoundMessage>,
    message_sender: Sender<RoundMessage>,
    /// A message that ended a wait before it was processed.
    unprocessed_message: Option<RoundMessage>,
    /// Workers that accept inputs.
    ready: BTreeSet<u32>,
    /// Workers that will send nothing more.
    silent: BTreeSet<u32>,
    fault_log: File,
    begun: Instant,
    _witness: WitnessServer,
}

impl RoundState {
    /// Creates the state in an empty directory, with a witness.
    pub(crate) fn create_in(plan: &TorturePlan, round: u64, binary: OutlastBinary) -> io::Result<Self> {
        let dir: &Path = &binary.dir;
        let (to_us, news) = mpsc::channel();
        let from_witness = to_us.clone();
        // After the end of a round, messages are dropped.
        let witness = WitnessServer::start(&plan.witness_placement, dir, move |execution| {
            drop(from_witness.send(RoundMessage::WitnessSaw(execution)));
        })?;
        Ok(Self {
            client: TortureUsers::new(dir, RandomPurpose::Client.stream(plan.seed, round))?,
            fault_log: File::create_new(dir.join(FAULT_LOG_FILE))?,
            binary,
            random: RandomPurpose::Scene(0).stream(plan.seed, round),
            figures: TortureStats::default(),
            ballast: plan.ballast,
            news,
            message_sender: to_us,
            unprocessed_message: None,
            ready: BTreeSet::new(),
            silent: BTreeSet::new(),
            begun: Instant::now(),
            _witness: witness,
        })
    }

    /// Logs an action.
    pub(crate) fn note(&mut self, fault: &str) -> io::Result<()> {
        writeln!(self.fault_log, "{:10.3} ms  {fault}", self.begun.elapsed().as_secs_f64() * 1e3)
    }

    /// Starts a worker without inputs.
    pub(crate) fn start_idle(&mut self) -> io::Result<Worker> {
        self.figures.starts += 1;
        self.binary.worker(self.message_sender.clone())
    }

    /// Starts a worker and sends it the inputs of the users.
    pub(crate) fn start(&mut self) -> io::Result<Worker> {
        let mut worker = self.start_idle()?;
        let orders = self.client.inputs_to_send();
        self.note(&format!("started {} with {} inputs", worker.pid, orders.len()))?;
        for order in &orders {
            worker.write_input_line(order);
        }
        Ok(worker)
    }

    /// Processes messages until the time is over or `enough` returns true. Returns whether it did. The last message is
    /// processed later, so that the caller can act immediately.
    pub(crate) fn listen(
        &mut self,
        time: Duration,
        mut enough: impl FnMut(&RoundMessage) -> bool,
    ) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            self.process_held_message()?;
            match self.news.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(news) => {
                    let enough = enough(&news);
                    self.unprocessed_message = Some(news);
                    if enough {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    fn process_held_message(&mut self) -> io::Result<()> {
        let Some(news) = self.unprocessed_message.take() else { return Ok(()) };
        match &news {
            RoundMessage::FromWorker { pid, said: WorkerMessage::Ready {} } => {
                self.ready.insert(*pid);
            }
            RoundMessage::WorkerGone { pid } => {
                self.silent.insert(*pid);
            }
            RoundMessage::FromWorker { .. } | RoundMessage::WitnessSaw(_) => {}
        }
        self.client.process_message(&news)
    }

    /// Processes messages for this time.
    pub(crate) fn listen_for(&mut self, time: Duration) -> io::Result<()> {
        self.listen(time, |_| false).map(drop)
    }

    /// Waits until a worker accepts inputs or is gone.
    pub(crate) fn wait_until_ready(&mut self, worker: &Worker) -> io::Result<()> {
        let pid = worker.pid;
        self.process_held_message()?;
        if self.ready.contains(&pid) || self.silent.contains(&pid) {
            return Ok(());
        }
        self.listen(READY_WITHIN, |news| match news {
            RoundMessage::FromWorker { pid: who, said: WorkerMessage::Ready {} }
            | RoundMessage::WorkerGone { pid: who } => *who == pid,
            _ => false,
        })?;
        self.process_held_message()
    }

    /// Kills a worker. A worker that never accepted inputs is counted as killed while starting.
    pub(crate) fn kill(&mut self, mut worker: Worker, kind: KillKind) -> io::Result<()> {
        let death = worker.kill()?;
        self.drain_messages(worker.pid)?;
        let kind = match self.ready.contains(&worker.pid) {
            true => kind,
            false if self.ready.is_empty() => KillKind::Creating,
            false => KillKind::Starting,
        };
        if death == ProcessExit::Killed {
            self.killed(kind, &worker.pid.to_string())?;
        }
        self.examine(&worker, &death)
    }

    /// Counts a kill.
    pub(crate) fn killed(&mut self, kind: KillKind, who: &str) -> io::Result<()> {
        *self.figures.kills.entry(kind).or_default() += 1;
        self.note(&format!("killed {who} ({})", kind.name()))
    }

    /// Shuts a worker down.
    pub(crate) fn end(&mut self, mut worker: Worker) -> io::Result<()> {
        let death = worker.end()?;
        self.drain_messages(worker.pid)?;
        self.note(&format!("ended {}", worker.pid))?;
        self.examine(&worker, &death)
    }

    /// Processes all remaining messages of a dead worker, because they count.
    fn drain_messages(&mut self, pid: u32) -> io::Result<()> {
        self.process_held_message()?;
        if !self.silent.contains(&pid) {
            self.listen(
                READY_WITHIN,
                |news| matches!(news, RoundMessage::WorkerGone { pid: who } if *who == pid),
            )?;
        }
        self.process_held_message()
    }

    /// Checks that a worker only ended because it was killed or asked to.
    fn examine(&mut self, worker: &Worker, death: &ProcessExit) -> io::Result<()> {
        let why = match death {
            ProcessExit::ExitedCleanly if !worker.was_asked_to_end() => "it ended without being asked to",
            ProcessExit::EndedItself(why) => why,
            ProcessExit::Killed | ProcessExit::ExitedCleanly => return Ok(()),
        };
        let how = format!("worker {}: {why}; {}", worker.pid, self.binary.worker_stderr());
        self.note(&how)?;
        self.client
            .broken
            .push(PromiseViolation { promise: PromiseViolationKind::Corrupted, violation_text: how });
        Ok(())
    }
}
