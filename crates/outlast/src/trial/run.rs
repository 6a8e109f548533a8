//! Runs all runs of a trial in sequence. Each has its own directory and as many lives as it needs.
use super::calls::Calls;
use super::client::{Aim, Step};
use super::clock::Ahead;
use super::left::Left;
use super::life::{Ended, Life, Lived, Stage};
use super::point::{Crash, Point};
use super::promise::{self, Broken, Promise};
use super::report::{BrokenPromise, Outcome, Report, Tried};
use super::seen::Seen;
use super::whole::Whole;
use super::words::Words;
use super::{DATABASE, Play, Progress, Terms, Trial};
use outlast_vocab::record::{End, Record};
use outlast_vocab::{Error, Kind};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The number of waits of a tool at which to crash. A tool that waits in a loop has any number of waits.
const PAUSES_MOST: u64 = 3;

/// The clock offset of the second run without a crash, so that everything that depends on time differs.
const ANOTHER_TIME: Duration = Duration::from_secs(90_061);

/// The runs of a trial in progress.
pub(super) struct Runs<W> {
    play: Arc<Play<W>>,
    terms: Terms<W>,
    report: Report,
}

/// A finished run.
struct Ran {
    /// The state that is left, unless a life ended unexpectedly.
    left: Option<Left>,
    aims: Vec<Aim>,
    broken: Vec<Broken>,
    /// The writes of each life.
    written: Vec<Vec<Vec<Record>>>,
    calls: Arc<Calls>,
    /// Whether every life except the last died at its point.
    reached: bool,
}

/// The run without a crash that other runs are compared with.
struct Measure {
    whole: Whole,
    aims: Arc<[Aim]>,
}

impl<W: Send + Sync + 'static> Runs<W> {
    pub(super) fn of(trial: Trial<W>) -> Result<Self, Error> {
        let Trial { play, terms } = trial;
        if !play.steps.iter().any(Step::is_input) {
            return Err(Error::new(Kind::InputInvalid, "a trial needs an input: `.say(\"…\")`"));
        }
        Ok(Self { play: Arc::new(play), terms, report: Report::default() })
    }

    /// Runs once without a crash.
    pub(super) async fn once(mut self) -> Result<Report, Error> {
        self.uncrashed(Duration::ZERO).await?;
        self.tell(0);
        Ok(self.report)
    }

    /// Runs twice without a crash, then once per crash.
    pub(super) async fn every_crash(mut self) -> Result<Report, Error> {
        let mut first = self.uncrashed(Duration::ZERO).await?;
        let Some(left) = first.left.take() else { return Ok(self.report) };
        let mut points: Vec<Point> = first.points(0).collect();
        self.tell(points.len() + 1);
        let mut second = self.uncrashed(ANOTHER_TIME).await?;
        let Some(again) = second.left.take() else { return Ok(self.report) };
        let whole = match Whole::of(left, &again) {
            Ok(whole) => whole,
            Err(broken) => {
                self.note(&Crash::default(), "", vec![broken], None);
                return Ok(self.report);
            }
        };
        // How often a tool waits can depend on the machine. Only points that both runs reached are tried.
        let reached: BTreeSet<Point> = second.points(0).collect();
        points.retain(|point| reached.contains(point));
        let mut crashes: VecDeque<Crash> = match self.terms.only.as_slice() {
            [] => points.into_iter().map(Crash::from).collect(),
            only => only.iter().cloned().collect(),
        };
        self.tell(crashes.len());
        let measure = Measure { whole, aims: first.aims.into() };
        while let Some(crash) = crashes.pop_front() {
            let ran = self.crashed(&crash, &measure).await?;
            if self.terms.twice && self.terms.only.is_empty() && crash.points().len() == 1 && ran.reached {
                crashes.extend(ran.points(1).map(|point| crash.then(point)));
            }
            self.tell(crashes.len());
        }
        Ok(self.report)
    }

    /// Runs without a crash. An error here is an error of the trial, not of the agent.
    async fn uncrashed(&mut self, ahead: Duration) -> Result<Ran, Error> {
        let crash = Crash::default();
        let dir = self.dir()?;
        let mut ran = self.run(&crash, dir.path(), ahead, None).await?;
        let failure = ran.broken.iter_mut().find_map(|broken| broken.error.take());
        if let Some(error) = failure.or_else(|| ran.left.as_ref().and_then(mismatch)) {
            return Err(error);
        }
        let broken = std::mem::take(&mut ran.broken);
        if !broken.is_empty() {
            ran.left = None;
        }
        self.note(&crash, "", broken, Some(dir));
        Ok(ran)
    }

    async fn crashed(&mut self, crash: &Crash, measure: &Measure) -> Result<Ran, Error> {
        let dir = self.dir()?;
        let mut ran = self.run(crash, dir.path(), Duration::ZERO, Some(measure)).await?;
        let what = ran.what(crash);
        let broken = std::mem::take(&mut ran.broken);
        let outcome = match (broken.is_empty(), ran.reached) {
            (false, _) => Outcome::Broken,
            (true, true) => Outcome::Kept,
            (true, false) => Outcome::NotReached,
        };
        self.report.tried.push(Tried { crash: crash.clone(), what: what.clone(), outcome });
        self.note(crash, &what, broken, Some(dir));
        Ok(ran)
    }

    /// Runs all lives of one run.
    async fn run(
        &mut self,
        crash: &Crash,
        dir: &Path,
        ahead: Duration,
        measure: Option<&Measure>,
    ) -> Result<Ran, Error> {
        self.report.runs += 1;
        let here = dir.join("world");
        std::fs::create_dir(&here).map_err(|cause| no_directory(&here, cause))?;
        let stage = Arc::new(Stage {
            world: Arc::new((self.terms.world)(&here)),
            database: dir.join(DATABASE),
            clock: Arc::new(Ahead::by(ahead)),
            calls: Arc::default(),
            aims: measure.map(|measure| measure.aims.clone()),
        });
        let mut ran = Ran::new(stage.calls.clone());
        for (number, dies) in crash.points().iter().copied().map(Some).chain([None]).enumerate() {
            let life = Life { play: self.play.clone(), stage: stage.clone(), number, dies };
            let Lived { written, end } = match life.live().await {
                Ok(lived) => lived,
                // A failure after a crash is a finding of the trial, not an error.
                Err(error) => Lived { written: Vec::new(), end: Ended::Broken(error.into()) },
            };
            ran.written.push(written);
            match end {
                Ended::Died => continue,
                Ended::Rested { left, aims } => (ran.left, ran.aims) = (Some(*left), aims),
                Ended::Broken(broken) => ran.broken.push(broken),
            }
            ran.reached = dies.is_none();
            break;
        }
        self.check(&mut ran, crash, measure, &stage.world);
        Ok(ran)
    }

    /// Checks the state that is left against every promise.
    fn check(&self, ran: &mut Ran, crash: &Crash, measure: Option<&Measure>, world: &W) {
        let Some(left) = &ran.left else { return };
        let inputs = self.play.steps.iter().filter(|step| step.is_input()).count();
        ran.broken.extend(promise::broken(left, &ran.calls, inputs));
        ran.broken.extend(measure.and_then(|measure| measure.whole.differs(left)));
        let seen = Seen::of(crash.clone(), left, &ran.calls);
        let broken = self.terms.invariants.iter().filter_map(|holds| holds(&seen, world).err());
        ran.broken.extend(broken.map(|detail| Broken::new(Promise::Invariant, detail)));
    }

    /// Adds broken promises to the report, and keeps the run's directory if requested.
    fn note(&mut self, crash: &Crash, what: &str, broken: Vec<Broken>, dir: Option<TempDir>) {
        let keep = self.terms.keep.is_some() && !broken.is_empty();
        let dir = dir.filter(|_| keep).map(TempDir::keep);
        self.report.broken.extend(broken.into_iter().map(|Broken { promise, detail, .. }| BrokenPromise {
            crash: crash.clone(),
            what: what.to_owned(),
            promise,
            detail,
            dir: dir.clone(),
        }));
    }

    /// Creates the directory of a run.
    fn dir(&self) -> Result<TempDir, Error> {
        let below = self.terms.keep.clone().unwrap_or_else(std::env::temp_dir);
        let made = std::fs::create_dir_all(&below)
            .and_then(|()| tempfile::Builder::new().prefix("outlast-trial-").tempdir_in(&below));
        made.map_err(|cause| no_directory(&below, cause))
    }

    fn tell(&self, left: usize) {
        (self.terms.watch)(Progress { done: self.report.runs, of: self.report.runs + left });
    }
}

impl Ran {
    fn new(calls: Arc<Calls>) -> Self {
        Self { left: None, aims: Vec::new(), broken: Vec::new(), written: Vec::new(), calls, reached: false }
    }

    /// Returns every point at which a life could have ended.
    fn points(&self, life: usize) -> impl Iterator<Item = Point> {
        let writes = self.written.get(life).map_or(0, |written| written.len() as u64);
        let runs = self.calls.runs().into_iter().filter(move |run| run.life == life);
        let during = (1..).zip(runs).flat_map(|(call, run)| {
            (1..=run.pauses.min(PAUSES_MOST)).map(move |pause| Point::During { call, pause })
        });
        (1..=writes).flat_map(|write| [Point::Before(write), Point::After(write)]).chain(during)
    }

    /// Describes the point at which the last crashed life ended.
    fn what(&self, crash: &Crash) -> String {
        let life = crash.points().len().saturating_sub(1);
        let found = match crash.points().last() {
            Some(Point::Before(write) | Point::After(write)) => {
                let before: usize = self.written.iter().take(life).map(Vec::len).sum();
                let mut words = Words::default();
                let mut all = self.written.iter().flatten().map(|written| words.of(written));
                usize::try_from(*write).ok().and_then(|write| all.nth(before + write - 1))
            }
            Some(Point::During { call, .. }) => {
                let mut runs = self.calls.runs().into_iter().filter(|run| run.life == life);
                usize::try_from(*call)
                    .ok()
                    .and_then(|call| runs.nth(call - 1))
                    .map(|run| run.tool.to_string())
            }
            None => None,
        };
        found.unwrap_or_else(|| "was not reached".to_owned())
    }
}

/// Returns the error of a script that does not match its session. Such a run says nothing about crashes.
fn mismatch(left: &Left) -> Option<Error> {
    left.ends.iter().flatten().find_map(|end| match end {
        End::Failed { failure } if failure.code == Kind::ScriptMismatch => Some(failure.clone().into()),
        _ => None,
    })
}

fn no_directory(path: &Path, cause: std::io::Error) -> Error {
    let detail = format!("the directory {} for a run cannot be made: {cause}", path.display());
    Error::new(Kind::IoFailed, detail).because(cause)
}
