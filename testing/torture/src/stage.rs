//! The state of a round: the binary, the users, the messages and the statistics. Starts, observes and kills workers.
use crate::Plan;
use crate::client::Client;
use crate::dice::{Dice, Purpose};
use crate::figures::{Figures, Kind};
use crate::judge::{Broken, Promise};
use crate::witness::Serving;
use crate::worker::{Binary, Death, News, Said, Worker};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The log of faults in the directory of a round.
const DEEDS: &str = "nemesis.log";

/// The timeout until a worker accepts inputs. A stopped process may hold the database meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// One database and everything around it.
pub(crate) struct Stage {
    pub(crate) binary: Binary,
    pub(crate) dice: Dice,
    pub(crate) client: Client,
    pub(crate) figures: Figures,
    /// Whether the log may be grown.
    pub(crate) ballast: bool,
    news: Receiver<News>,
    to_us: Sender<News>,
    /// A message that ended a wait before it was processed.
    held: Option<News>,
    /// Workers that accept inputs.
    ready: BTreeSet<u32>,
    /// Workers that will send nothing more.
    silent: BTreeSet<u32>,
    deeds: File,
    begun: Instant,
    _witness: Serving,
}

impl Stage {
    /// Creates the state in an empty directory, with a witness.
    pub(crate) fn set(plan: &Plan, round: u64, binary: Binary) -> io::Result<Self> {
        let dir: &Path = &binary.dir;
        let (to_us, news) = mpsc::channel();
        let from_witness = to_us.clone();
        // After the end of a round, messages are dropped.
        let witness =
            Serving::start(&plan.seat, dir, move |execution| drop(from_witness.send(News::Saw(execution))))?;
        Ok(Self {
            client: Client::new(dir, Dice::of(plan.seed, round, Purpose::Client))?,
            deeds: File::create_new(dir.join(DEEDS))?,
            binary,
            dice: Dice::of(plan.seed, round, Purpose::Scene(0)),
            figures: Figures::default(),
            ballast: plan.ballast,
            news,
            to_us,
            held: None,
            ready: BTreeSet::new(),
            silent: BTreeSet::new(),
            begun: Instant::now(),
            _witness: witness,
        })
    }

    /// Logs an action.
    pub(crate) fn note(&mut self, deed: &str) -> io::Result<()> {
        writeln!(self.deeds, "{:10.3} ms  {deed}", self.begun.elapsed().as_secs_f64() * 1e3)
    }

    /// Starts a worker without inputs.
    pub(crate) fn start_idle(&mut self) -> io::Result<Worker> {
        self.figures.starts += 1;
        self.binary.worker(self.to_us.clone())
    }

    /// Starts a worker and sends it the inputs of the users.
    pub(crate) fn start(&mut self) -> io::Result<Worker> {
        let mut worker = self.start_idle()?;
        let orders = self.client.wants_sent();
        self.note(&format!("started {} with {} inputs", worker.pid, orders.len()))?;
        for order in &orders {
            worker.order(order);
        }
        Ok(worker)
    }

    /// Processes messages until the time is over or `enough` returns true. Returns whether it did. The last message is
    /// processed later, so that the caller can act immediately.
    pub(crate) fn listen(
        &mut self,
        time: Duration,
        mut enough: impl FnMut(&News) -> bool,
    ) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            self.take_in_held()?;
            match self.news.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(news) => {
                    let enough = enough(&news);
                    self.held = Some(news);
                    if enough {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    fn take_in_held(&mut self) -> io::Result<()> {
        let Some(news) = self.held.take() else { return Ok(()) };
        match &news {
            News::Said { pid, said: Said::Ready {} } => {
                self.ready.insert(*pid);
            }
            News::Silent { pid } => {
                self.silent.insert(*pid);
            }
            News::Said { .. } | News::Saw(_) => {}
        }
        self.client.hear(&news)
    }

    /// Processes messages for this time.
    pub(crate) fn listen_for(&mut self, time: Duration) -> io::Result<()> {
        self.listen(time, |_| false).map(drop)
    }

    /// Waits until a worker accepts inputs or is gone.
    pub(crate) fn until_ready(&mut self, worker: &Worker) -> io::Result<()> {
        let pid = worker.pid;
        self.take_in_held()?;
        if self.ready.contains(&pid) || self.silent.contains(&pid) {
            return Ok(());
        }
        self.listen(READY_WITHIN, |news| match news {
            News::Said { pid: who, said: Said::Ready {} } | News::Silent { pid: who } => *who == pid,
            _ => false,
        })?;
        self.take_in_held()
    }

    /// Kills a worker. A worker that never accepted inputs is counted as killed while starting.
    pub(crate) fn kill(&mut self, mut worker: Worker, kind: Kind) -> io::Result<()> {
        let death = worker.kill()?;
        self.hush(worker.pid)?;
        let kind = match self.ready.contains(&worker.pid) {
            true => kind,
            false if self.ready.is_empty() => Kind::Creating,
            false => Kind::Starting,
        };
        if death == Death::Killed {
            self.killed(kind, &worker.pid.to_string())?;
        }
        self.examine(&worker, &death)
    }

    /// Counts a kill.
    pub(crate) fn killed(&mut self, kind: Kind, who: &str) -> io::Result<()> {
        *self.figures.kills.entry(kind).or_default() += 1;
        self.note(&format!("killed {who} ({})", kind.name()))
    }

    /// Shuts a worker down.
    pub(crate) fn end(&mut self, mut worker: Worker) -> io::Result<()> {
        let death = worker.end()?;
        self.hush(worker.pid)?;
        self.note(&format!("ended {}", worker.pid))?;
        self.examine(&worker, &death)
    }

    /// Processes all remaining messages of a dead worker, because they count.
    fn hush(&mut self, pid: u32) -> io::Result<()> {
        self.take_in_held()?;
        if !self.silent.contains(&pid) {
            self.listen(READY_WITHIN, |news| matches!(news, News::Silent { pid: who } if *who == pid))?;
        }
        self.take_in_held()
    }

    /// Checks that a worker only ended because it was killed or asked to.
    fn examine(&mut self, worker: &Worker, death: &Death) -> io::Result<()> {
        let why = match death {
            Death::InOrder if !worker.was_asked_to_end() => "it ended without being asked to",
            Death::Itself(why) => why,
            Death::Killed | Death::InOrder => return Ok(()),
        };
        let how = format!("worker {}: {why}; {}", worker.pid, self.binary.complaints());
        self.note(&how)?;
        self.client.broken.push(Broken { promise: Promise::Corrupted, how });
        Ok(())
    }
}
