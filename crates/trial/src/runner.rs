//! Runs all runs of a trial in sequence. Each has its own directory and as many lives as it needs.
use crate::baseline::BaselineState;
use crate::client::{ClientStep, StepTarget};
use crate::clock::OffsetClock;
use crate::crash_point::{Crash, TrialCrashPoint};
use crate::end_state::EndState;
use crate::guarantee::{self, Guarantee, GuaranteeFailure};
use crate::observed_run::ObservedRun;
use crate::process::{AgentProcess, ProcessEnd, ProcessRecord, SharedRunState};
use crate::report::{CrashRun, CrashRunOutcome, GuaranteeViolation, TrialReport};
use crate::run_directory::RunDirectory;
use crate::tool_runs::ToolRunLog;
use crate::write_description::WriteDescriber;
use crate::{DATABASE, TrialPlan, TrialProgress, TrialSettings};
use outlast_vocab::record::{Record, TurnEnd};
use outlast_vocab::{Error, Kind};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The number of waits of a tool at which to crash. A tool that waits in a loop has any number of waits.
const PAUSES_MAX: u64 = 3;

/// The clock offset of the second run without a crash, so that everything that depends on time differs.
const SECOND_RUN_OFFSET: Duration = Duration::from_secs(90_061);

/// The runs of a trial in progress.
pub(crate) struct TrialRunner<W> {
    play: Arc<TrialPlan<W>>,
    terms: TrialSettings<W>,
    report: TrialReport,
}

/// A finished run.
struct FinishedRun {
    /// The state that is left, unless a life ended unexpectedly.
    end_state: Option<EndState>,
    targets: Vec<StepTarget>,
    failures: Vec<GuaranteeFailure>,
    /// The writes of each life.
    writes: Vec<Vec<Vec<Record>>>,
    calls: Arc<ToolRunLog>,
    /// Whether every life except the last died at its point.
    reached: bool,
}

/// The run without a crash that other runs are compared with.
struct ReferenceRun {
    baseline: BaselineState,
    aims: Arc<[StepTarget]>,
}

impl<W: Send + Sync + 'static> TrialRunner<W> {
    pub(crate) fn of(play: TrialPlan<W>, terms: TrialSettings<W>) -> Result<Self, Error> {
        if !play.steps.iter().any(ClientStep::is_input) {
            return Err(Error::new(Kind::InputInvalid, "a trial needs an input: `.say(\"…\")`"));
        }
        Ok(Self { play: Arc::new(play), terms, report: TrialReport::default() })
    }

    /// Runs once without a crash.
    pub(crate) async fn run_baseline_only(mut self) -> Result<TrialReport, Error> {
        self.run_baseline(Duration::ZERO).await?;
        self.report_progress(0);
        Ok(self.report)
    }

    /// Runs twice without a crash, then once per crash.
    pub(crate) async fn run_every_crash(mut self) -> Result<TrialReport, Error> {
        let mut first = self.run_baseline(Duration::ZERO).await?;
        let Some(left) = first.end_state.take() else { return Ok(self.report) };
        let mut points: Vec<TrialCrashPoint> = first.points(0).collect();
        self.report_progress(points.len() + 1);
        let mut second = self.run_baseline(SECOND_RUN_OFFSET).await?;
        let Some(again) = second.end_state.take() else { return Ok(self.report) };
        let whole = match BaselineState::of(left, &again) {
            Ok(whole) => whole,
            Err(broken) => {
                self.record_failures(&Crash::default(), "", vec![broken], None);
                return Ok(self.report);
            }
        };
        // How often a tool waits can depend on the machine. Only points that both runs reached are tried.
        let reached: BTreeSet<TrialCrashPoint> = second.points(0).collect();
        points.retain(|point| reached.contains(point));
        let mut crashes: VecDeque<Crash> = match self.terms.only.as_slice() {
            [] => points.into_iter().map(Crash::from).collect(),
            only => only.iter().cloned().collect(),
        };
        self.report_progress(crashes.len());
        let measure = ReferenceRun { baseline: whole, aims: first.targets.into() };
        while let Some(crash) = crashes.pop_front() {
            let ran = self.run_with_crash(&crash, &measure).await?;
            if self.terms.twice && self.terms.only.is_empty() && crash.points().len() == 1 && ran.reached {
                crashes.extend(ran.points(1).map(|point| crash.followed_by(point)));
            }
            self.report_progress(crashes.len());
        }
        Ok(self.report)
    }

    /// Runs without a crash. An error here is an error of the trial, not of the agent.
    async fn run_baseline(&mut self, ahead: Duration) -> Result<FinishedRun, Error> {
        let crash = Crash::default();
        let dir = self.dir()?;
        let mut ran = self.run(&crash, dir.path(), ahead, None).await?;
        let failure = ran.failures.iter_mut().find_map(|broken| broken.error.take());
        if let Some(error) = failure.or_else(|| ran.end_state.as_ref().and_then(mismatch)) {
            return Err(error);
        }
        let broken = std::mem::take(&mut ran.failures);
        if !broken.is_empty() {
            ran.end_state = None;
        }
        self.record_failures(&crash, "", broken, Some(dir));
        Ok(ran)
    }

    async fn run_with_crash(&mut self, crash: &Crash, measure: &ReferenceRun) -> Result<FinishedRun, Error> {
        let dir = self.dir()?;
        let mut ran = self.run(crash, dir.path(), Duration::ZERO, Some(measure)).await?;
        let what = ran.describe_crash(crash);
        let broken = std::mem::take(&mut ran.failures);
        let outcome = match (broken.is_empty(), ran.reached) {
            (false, _) => CrashRunOutcome::Broken,
            (true, true) => CrashRunOutcome::Kept,
            (true, false) => CrashRunOutcome::NotReached,
        };
        self.report.tried.push(CrashRun { crash: crash.clone(), what: what.clone(), outcome });
        self.record_failures(crash, &what, broken, Some(dir));
        Ok(ran)
    }

    /// Runs all lives of one run.
    async fn run(
        &mut self,
        crash: &Crash,
        dir: &Path,
        ahead: Duration,
        measure: Option<&ReferenceRun>,
    ) -> Result<FinishedRun, Error> {
        self.report.runs += 1;
        let here = dir.join("world");
        std::fs::create_dir(&here).map_err(|cause| no_directory(&here, cause))?;
        let stage = Arc::new(SharedRunState {
            world: Arc::new((self.terms.world)(&here)),
            database: dir.join(DATABASE),
            clock: Arc::new(OffsetClock::with_offset(ahead)),
            calls: Arc::default(),
            targets: measure.map(|measure| measure.aims.clone()),
        });
        let mut ran = FinishedRun::new(stage.calls.clone());
        for (number, dies) in crash.points().iter().copied().map(Some).chain([None]).enumerate() {
            let life =
                AgentProcess { plan: self.play.clone(), shared: stage.clone(), number, crash_point: dies };
            let ProcessRecord { written, end } = match life.run().await {
                Ok(lived) => lived,
                // A failure after a crash is a finding of the trial, not an error.
                Err(error) => ProcessRecord { written: Vec::new(), end: ProcessEnd::Violated(error.into()) },
            };
            ran.writes.push(written);
            match end {
                ProcessEnd::Crashed => continue,
                ProcessEnd::Idle { left, aims } => (ran.end_state, ran.targets) = (Some(*left), aims),
                ProcessEnd::Violated(broken) => ran.failures.push(broken),
            }
            ran.reached = dies.is_none();
            break;
        }
        self.check(&mut ran, crash, measure, &stage.world);
        Ok(ran)
    }

    /// Checks the state that is left against every promise.
    fn check(&self, ran: &mut FinishedRun, crash: &Crash, measure: Option<&ReferenceRun>, world: &W) {
        let Some(left) = &ran.end_state else { return };
        let inputs = self.play.steps.iter().filter(|step| step.is_input()).count();
        ran.failures.extend(guarantee::guarantee_failures(left, &ran.calls, inputs));
        ran.failures.extend(measure.and_then(|measure| measure.baseline.first_difference(left)));
        let seen = ObservedRun::of(crash.clone(), left, &ran.calls);
        let broken = self.terms.invariants.iter().filter_map(|holds| holds(&seen, world).err());
        ran.failures.extend(broken.map(|detail| GuaranteeFailure::new(Guarantee::Invariant, detail)));
    }

    /// Adds broken promises to the report, and keeps the run's directory if requested.
    fn record_failures(
        &mut self,
        crash: &Crash,
        what: &str,
        broken: Vec<GuaranteeFailure>,
        dir: Option<RunDirectory>,
    ) {
        let keep = self.terms.keep.is_some() && !broken.is_empty();
        let dir = dir.filter(|_| keep).map(RunDirectory::keep);
        self.report.broken.extend(broken.into_iter().map(
            |GuaranteeFailure { guarantee: promise, detail, .. }| GuaranteeViolation {
                crash: crash.clone(),
                what: what.to_owned(),
                promise,
                detail,
                dir: dir.clone(),
            },
        ));
    }

    /// Creates the directory of a run.
    fn dir(&self) -> Result<RunDirectory, Error> {
        let below = self.terms.keep.clone().unwrap_or_else(std::env::temp_dir);
        RunDirectory::create(&below).map_err(|cause| no_directory(&below, cause))
    }

    fn report_progress(&self, left: usize) {
        (self.terms.watch)(TrialProgress { done: self.report.runs, of: self.report.runs + left });
    }
}

impl FinishedRun {
    fn new(calls: Arc<ToolRunLog>) -> Self {
        Self {
            end_state: None,
            targets: Vec::new(),
            failures: Vec::new(),
            writes: Vec::new(),
            calls,
            reached: false,
        }
    }

    /// Returns every point at which a life could have ended.
    fn points(&self, life: usize) -> impl Iterator<Item = TrialCrashPoint> {
        let writes = self.writes.get(life).map_or(0, |written| written.len() as u64);
        let runs = self.calls.runs().into_iter().filter(move |run| run.process == life);
        let during = (1..).zip(runs).flat_map(|(call, run)| {
            (1..=run.pauses.min(PAUSES_MAX)).map(move |pause| TrialCrashPoint::During { call, pause })
        });
        (1..=writes)
            .flat_map(|write| [TrialCrashPoint::Before(write), TrialCrashPoint::After(write)])
            .chain(during)
    }

    /// Describes the point at which the last crashed life ended.
    fn describe_crash(&self, crash: &Crash) -> String {
        let life = crash.points().len().saturating_sub(1);
        let found = match crash.points().last() {
            Some(TrialCrashPoint::Before(write) | TrialCrashPoint::After(write)) => {
                let before: usize = self.writes.iter().take(life).map(Vec::len).sum();
                let mut words = WriteDescriber::default();
                let mut all = self.writes.iter().flatten().map(|written| words.describe(written));
                usize::try_from(*write).ok().and_then(|write| all.nth(before + write - 1))
            }
            Some(TrialCrashPoint::During { call, .. }) => {
                let mut runs = self.calls.runs().into_iter().filter(|run| run.process == life);
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
fn mismatch(left: &EndState) -> Option<Error> {
    left.ends.iter().flatten().find_map(|end| match end {
        TurnEnd::Failed { failure } if failure.code == Kind::ScriptMismatch => Some(failure.clone().into()),
        _ => None,
    })
}

fn no_directory(path: &Path, cause: std::io::Error) -> Error {
    let detail = format!("the directory {} for a run cannot be created: {cause}", path.display());
    Error::new(Kind::IoFailed, detail).because(cause)
}
