//! One life of the agent's process: its own thread, tokio runtime and store. A crash drops all three.
use super::Play;
use super::calls::{Calls, Watched};
use super::client::{Aim, Client};
use super::clock::Ahead;
use super::left::Left;
use super::point::Point;
use super::promise::{Broken, Promise};
use crate::Outlast;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::mortal::{Death, Mortal, Pulse};
use outlast_ports::tool::ToolProvider;
use outlast_providers::Rehearsal;
use outlast_runtime::system::SystemEntropy;
use outlast_runtime::{Config, Runtime};
use outlast_store::{Options, Sqlite};
use outlast_vocab::record::Record;
use outlast_vocab::{Error, Kind, WorkerId};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long to wait for work that a dead life left on other threads.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// Longer than any run, even after its clock was moved forward.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 1_000);

/// The timeout for shutting down an idle life.
const DRAIN: Duration = Duration::from_secs(2);

/// The parts that all lives of a run share.
pub(super) struct Stage<W> {
    pub(super) world: Arc<W>,
    pub(super) database: PathBuf,
    pub(super) clock: Arc<Ahead>,
    pub(super) calls: Arc<Calls>,
    /// The targets of the steps in the run without a crash.
    pub(super) aims: Option<Arc<[Aim]>>,
}

/// One life.
pub(super) struct Life<W> {
    pub(super) play: Arc<Play<W>>,
    pub(super) stage: Arc<Stage<W>>,
    /// The index of this life in the run, counted from 0.
    pub(super) number: usize,
    pub(super) dies: Option<Point>,
}

/// The record of a finished life.
pub(super) struct Lived {
    /// The records of each of its writes.
    pub(super) written: Vec<Vec<Record>>,
    pub(super) end: Ended,
}

/// How a life ended.
pub(super) enum Ended {
    /// It died at its point.
    Died,
    /// Everything is idle.
    Rested { left: Box<Left>, aims: Vec<Aim> },
    /// A promise was broken.
    Broken(Broken),
}

impl<W: Send + Sync + 'static> Life<W> {
    /// Runs the life to its end.
    pub(super) async fn live(self) -> Result<Lived, Error> {
        let patience = self.play.patience + LAST_BREATH + DRAIN;
        let (tell, told) = oneshot::channel();
        // A thread that a tool blocks cannot be stopped. This thread notices and leaves it behind.
        let watch = move || {
            let (to_us, from_life) = mpsc::channel();
            thread::spawn(move || to_us.send(self.on_this_thread()));
            let lived = from_life.recv_timeout(patience).unwrap_or_else(|lost| match lost {
                RecvTimeoutError::Timeout => Ok(broken("a tool blocked its thread and could not be stopped")),
                RecvTimeoutError::Disconnected => {
                    Err(Error::new(Kind::Internal, "what the trial was given panicked; its message is above"))
                }
            });
            // The receiver is gone if the trial was dropped.
            let _heard = tell.send(lived);
        };
        thread::spawn(watch);
        told.await.unwrap_or_else(|_| Err(Error::new(Kind::Internal, "the thread of a life is gone")))
    }

    fn on_this_thread(&self) -> Result<Lived, Error> {
        // A single thread, so that a point means the same place in every run.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| {
            Error::new(Kind::IoFailed, format!("the system gave no runtime for a life: {cause}"))
                .because(cause)
        })?;
        let mut store = Weak::new();
        let lived = tokio.block_on(self.drive(&mut store));
        tokio.shutdown_timeout(LAST_BREATH);
        let since = Instant::now();
        while store.strong_count() > 0 && since.elapsed() < LAST_BREATH {
            thread::sleep(Duration::from_millis(1));
        }
        if store.strong_count() > 0 {
            return Ok(broken(
                "a tool holds on to its process on a thread of its own, so that no other process can begin",
            ));
        }
        lived
    }

    async fn drive(&self, held: &mut Weak<Mortal<Sqlite>>) -> Result<Lived, Error> {
        let worker = WorkerId::fresh(self.stage.clock.now(), SystemEntropy.for_id());
        // Only the process dies here, never the machine, so nothing needs to be synced.
        let options = Options { worker: Some(worker), unsafe_durability: true, ..Options::default() };
        let sqlite = Sqlite::open_with(&self.stage.database, options)?;
        let store = Arc::new(Mortal::new(sqlite, self.dies.map_or(Death::Never, Point::death)));
        *held = Arc::downgrade(&store);
        let pulse = store.pulse();
        let runtime = Runtime::start(self.config(store, worker, &pulse)?).await?;
        let end = tokio::select! {
            biased;
            () = pulse.stopped() => Ended::Died,
            end = self.talk(&runtime, &pulse) => end,
        };
        if !matches!(end, Ended::Died) {
            runtime.shut_down(DRAIN).await;
        }
        Ok(Lived { written: pulse.written(), end })
    }

    fn config(
        &self,
        store: Arc<Mortal<Sqlite>>,
        worker: WorkerId,
        pulse: &Arc<Pulse>,
    ) -> Result<Config, Error> {
        let clock = self.stage.clock.clone();
        let builder = (self.play.agent)(Outlast::ephemeral().clock(clock.clone()), &self.stage.world)?;
        let mut config = builder.config(store, worker)?;
        // The script replaces the agent's model. Each new process starts with a new copy of it.
        config.models = vec![Arc::new(Rehearsal::scripted(self.play.script.parse()?, clock))];
        config.package.model = "rehearsal/trial".parse()?;
        // A death is detected by the lock. Lease renewals would depend on time and shift the numbers of later writes.
        config.limits.lease = FOR_EVER;
        let watched = |tools| {
            let (calls, pulse) = (self.stage.calls.clone(), pulse.clone());
            Arc::new(Watched { tools, calls, life: self.number, dies: self.dies, pulse })
                as Arc<dyn ToolProvider>
        };
        config.tools = config.tools.into_iter().map(watched).collect();
        Ok(config)
    }

    /// Runs the client until everything is idle, and reads the state that is left.
    async fn talk(&self, runtime: &Runtime, pulse: &Pulse) -> Ended {
        let client = Client {
            runtime,
            clock: &self.stage.clock,
            steps: &self.play.steps,
            aims: self.stage.aims.as_deref(),
        };
        let aims = match tokio::time::timeout(self.play.patience, client.act()).await {
            Ok(Ok(aims)) => aims,
            Ok(Err(broken)) => return Ended::Broken(broken),
            Err(_) => return Ended::Broken(self.late()),
        };
        let reached = match self.dies {
            Some(Point::Before(write) | Point::After(write)) => pulse.writes() >= write,
            Some(Point::During { .. }) | None => false,
        };
        if reached {
            // The last write can be visible to readers before its writer learns that it died.
            pulse.stopped().await;
            return Ended::Died;
        }
        match Left::read(runtime.store().as_ref()).await {
            Ok(left) => Ended::Rested { left: Box::new(left), aims },
            Err(error) => Ended::Broken(error.into()),
        }
    }

    fn late(&self) -> Broken {
        let running = self.stage.calls.runs().into_iter().rev().find(|run| run.life == self.number);
        let last =
            running.map_or_else(String::new, |run| format!("; the last tool that ran is `{}`", run.tool));
        let detail = format!("the turn did not rest within {} s{last}", self.play.patience.as_secs_f32());
        Broken::new(Promise::Ends, detail)
    }
}

fn broken(detail: &str) -> Lived {
    Lived { written: Vec::new(), end: Ended::Broken(Broken::new(Promise::Ends, detail)) }
}
