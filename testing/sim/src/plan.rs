//! The plan of one run, as data: the scenarios to play, and the faults with their times. A seed draws a plan; a failing
//! plan is reduced by leaving out parts.
use crate::model::{self, SimModelFault};
use crate::scenario::{PATIENCE, Scenario, catalogue};
use outlast_random::SeededRandom;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct SimPlan {
    /// The seed of the task scheduler.
    pub(crate) schedule: u64,
    /// The number of processes that work on the database.
    pub(crate) workers: usize,
    /// The scenario of each session, by its index in the catalogue.
    pub(crate) session_scenarios: Vec<usize>,
    /// The faults of the machine.
    pub(crate) faults: Vec<Fault>,
    /// The faults of the model, by request.
    pub(crate) model_faults: BTreeMap<u64, SimModelFault>,
    /// The outages of model providers.
    pub(crate) outages: Vec<ProviderOutage>,
    /// Whether the agent has a fallback model.
    pub(crate) has_fallback: bool,
    /// Whether the death of a process is visible immediately, or only through its expired lease.
    pub(crate) deaths_visible: bool,
}

/// A time in which the provider of a model is down, in milliseconds since the start of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProviderOutage {
    pub(crate) model: &'static str,
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
}

impl ProviderOutage {
    /// Returns its name in a report.
    pub(crate) fn name(&self) -> &'static str {
        if self.model == model::NAME { "outage of a provider" } else { "outage of a fallback provider" }
    }

    /// Returns whether a request for this model fails at this time.
    pub(crate) fn affects(&self, model: &str, at_ms: u64) -> bool {
        self.model == model && (self.from_ms..self.until_ms).contains(&at_ms)
    }
}

/// A fault that happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: FaultTime,
    pub(crate) fault_kind: FaultKind,
}

/// The time of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultTime {
    /// Before this action of the world. The fault hits the process in this slot.
    Action(u64, usize),
    /// Before this transaction, which does not happen.
    BeforeWrite(u64),
    /// After this transaction, before its result is known.
    AfterWrite(u64),
    /// At this disk change within this transaction.
    InWrite(u64, u64),
    /// At this disk change while this life opens the database.
    InOpening(u64, u64),
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The process dies; another starts after this many milliseconds.
    Kill(u64),
    /// The power fails. Unsynced data is kept, lost or torn, depending on this seed.
    PowerLoss(u64),
    /// A sync fails soon, and the process is killed some time later, as an operator would.
    SyncFails,
    /// A disk write fails soon.
    WriteFails,
    /// The disk is full for this many milliseconds.
    Full(u64),
    /// The process pauses for this many milliseconds.
    Pause(u64),
    /// Its clock jumps.
    Jump(i64),
    /// It checkpoints its log into the database file.
    CheckpointLog,
    /// It is asked to shut down, and does so.
    ShutDown,
    /// A newer program has used the file. The next life must refuse it, and the one after that may continue.
    NewerSchema,
}

impl FaultKind {
    /// Returns its name in a report.
    pub(crate) const fn name(self, at: FaultTime) -> &'static str {
        match (self, at) {
            (Self::Kill(_), FaultTime::BeforeWrite(_)) => "crash before a transaction",
            (Self::Kill(_), FaultTime::AfterWrite(_)) => "crash after a transaction, unheard",
            (Self::Kill(_), FaultTime::InWrite(..)) => "crash inside a transaction",
            (Self::Kill(_), FaultTime::InOpening(..)) => "crash during recovery",
            (Self::Kill(_), FaultTime::Action(..)) => "crash between two steps",
            (Self::PowerLoss(_), FaultTime::InWrite(..)) => "power loss inside a transaction, torn pages",
            (Self::PowerLoss(_), _) => "power loss",
            (Self::SyncFails, _) => "failed fsync",
            (Self::WriteFails, _) => "failed write",
            (Self::Full(_), _) => "full disk",
            (Self::Pause(_), _) => "process paused beyond its lease",
            (Self::Jump(_), _) => "clock jump",
            (Self::CheckpointLog, _) => "checkpoint of the log",
            (Self::ShutDown, _) => "graceful shutdown",
            (Self::NewerSchema, _) => "newer schema found",
        }
    }

    /// Returns whether every turn ends as it would without the fault.
    const fn passes(self) -> bool {
        !matches!(self, Self::Jump(_) | Self::Pause(_))
    }
}

impl SimPlan {
    /// Creates a plan of one scenario without faults.
    pub(crate) fn of(play: usize) -> Self {
        Self {
            schedule: 0,
            workers: 1,
            session_scenarios: vec![play],
            faults: Vec::new(),
            model_faults: BTreeMap::new(),
            outages: Vec::new(),
            has_fallback: false,
            deaths_visible: true,
        }
    }

    /// Draws a plan from a seed. Each kind of fault is first switched on or off for the whole run, so that runs differ
    /// in kind.
    pub(crate) fn draw_from_seed(seed: u64, only: Option<usize>) -> Self {
        let mut random = SeededRandom::new(seed, 1);
        let session_scenarios = if let Some(play) = only {
            vec![play]
        } else {
            let (alone, sociable): (Vec<usize>, Vec<usize>) =
                (0..catalogue().len()).partition(|no| catalogue()[*no].needs_own_worker);
            let together = (0..=random.below(4)).map(|_| sociable[random.index(sociable.len())]).collect();
            // A separate stream, so that all other seeds still draw the same plans.
            let mut lonely = SeededRandom::new(seed, 3);
            if lonely.percent(20) { vec![alone[lonely.index(alone.len())]] } else { together }
        };
        let workers = 1 + random.index(3);
        let (crashes, power, disk, pauses, clocks) = (
            random.percent(70),
            random.percent(30),
            random.percent(25),
            random.percent(25),
            random.percent(15),
        );
        let mut faults = Vec::new();
        let actions = 60 * session_scenarios.len() as u64;
        for _ in 0..random.below(6) {
            let mut kinds = Vec::new();
            if crashes {
                kinds.extend([
                    FaultKind::Kill(random.below(20_000)),
                    FaultKind::Kill(0),
                    FaultKind::ShutDown,
                    FaultKind::NewerSchema,
                ]);
            }
            if power {
                kinds.push(FaultKind::PowerLoss(random.below(u64::MAX)));
            }
            if disk {
                kinds.extend([
                    FaultKind::SyncFails,
                    FaultKind::WriteFails,
                    FaultKind::Full(1 + random.below(5_000)),
                ]);
            }
            if pauses {
                kinds.push(FaultKind::Pause(10_000 + random.below(20_000)));
            }
            if clocks {
                let hour = 3_600_000;
                kinds.push(FaultKind::Jump(i64::try_from(random.below(2 * hour)).unwrap_or(0) - 3_600_000));
            }
            kinds.push(FaultKind::CheckpointLog);
            let blow = kinds[random.index(kinds.len())];
            let at = match (blow, random.below(5)) {
                (FaultKind::Kill(_), 0) => FaultTime::BeforeWrite(random.below(actions / 6)),
                (FaultKind::Kill(_), 1) => FaultTime::AfterWrite(random.below(actions / 6)),
                (FaultKind::Kill(_) | FaultKind::PowerLoss(_), 2) => {
                    FaultTime::InWrite(random.below(actions / 6), random.below(20))
                }
                (FaultKind::Kill(_), 3) => FaultTime::InOpening(1 + random.below(4), random.below(8)),
                _ => FaultTime::Action(random.below(actions), random.index(workers)),
            };
            faults.push(Fault { at, fault_kind: blow });
        }
        let mut model_faults = BTreeMap::new();
        if random.percent(50) {
            let bad = random.percent(20);
            for _ in 0..random.below(3) {
                let mood = match random.below(if bad { 7 } else { 5 }) {
                    0 => SimModelFault::Busy([50, 3_000, 30_000][random.index(3)]),
                    1 => SimModelFault::Down,
                    2 => SimModelFault::Cut(random.index(4)),
                    3 => SimModelFault::Stall(random.index(4)),
                    4 => SimModelFault::Slow(1 + random.below(20_000)),
                    5 => SimModelFault::Twice(random.index(4)),
                    _ => SimModelFault::Swapped(random.index(4)),
                };
                // Never two in a row, or a call could run out of attempts.
                model_faults.insert(2 * random.below(6), mood);
            }
        }
        let deaths_visible = random.percent(60);
        let is_impatient = session_scenarios.iter().any(|play| catalogue()[*play].is_impatient());
        if is_impatient {
            // A provider that asks for a longer pause than the patience ends the turn.
            let is_short = |millis: u64| Duration::from_millis(millis) <= PATIENCE;
            model_faults.retain(|_, fault| !matches!(fault, SimModelFault::Busy(pause) if !is_short(*pause)));
        }
        let (outages, has_fallback) =
            if is_impatient { (Vec::new(), false) } else { draw_outages(&mut SeededRandom::new(seed, 4)) };
        Self {
            schedule: seed,
            workers,
            session_scenarios,
            faults,
            model_faults,
            outages,
            has_fallback,
            deaths_visible,
        }
    }

    /// Returns the scenario of a session.
    pub(crate) fn scenario(&self, session: usize) -> &'static Scenario {
        &catalogue()[self.session_scenarios[session]]
    }

    /// Returns whether a fault could damage the file, if SQLite or our use of it is wrong.
    pub(crate) fn may_damage_disk(&self) -> bool {
        self.faults.iter().any(|Fault { at, fault_kind: blow }| {
            let inside = matches!(at, FaultTime::InWrite(..) | FaultTime::InOpening(..));
            inside
                || matches!(
                    blow,
                    FaultKind::PowerLoss(_)
                        | FaultKind::SyncFails
                        | FaultKind::WriteFails
                        | FaultKind::Full(_)
                )
        })
    }

    /// Returns whether a clock may be wrong.
    pub(crate) fn has_clock_jump(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.fault_kind, FaultKind::Jump(_)))
    }

    /// Returns whether every settled scenario must end as it does without faults.
    pub(crate) fn is_strict(&self) -> bool {
        self.faults.iter().all(|fault| fault.fault_kind.passes())
            && self.model_faults.values().all(|mood| mood.passes())
    }
}

/// Draws the outages of the providers, which hit all sessions, and whether there is a fallback model.
fn draw_outages(random: &mut SeededRandom) -> (Vec<ProviderOutage>, bool) {
    let mut outages = Vec::new();
    if !random.percent(30) {
        return (outages, false);
    }
    let has_fallback = random.percent(40);
    let mut from_ms = [0, random.below(5_000)][random.index(2)];
    for _ in 0..=random.below(2) {
        let most = [1_000, 10_000, 60_000, 3_600_000][random.index(4)];
        let until_ms = from_ms + 1 + random.below(most);
        outages.push(ProviderOutage { model: model::NAME, from_ms, until_ms });
        if has_fallback && random.percent(60) {
            let until_ms = from_ms + 1 + random.below(most);
            outages.push(ProviderOutage { model: model::FALLBACK, from_ms, until_ms });
        }
        from_ms = until_ms + random.below(10_000);
    }
    (outages, has_fallback)
}

impl fmt::Display for SimPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deaths = if self.deaths_visible { "deaths show" } else { "deaths do not show" };
        writeln!(f, "{} workers, schedule {:#x}, {deaths}", self.workers, self.schedule)?;
        for no in 0..self.session_scenarios.len() {
            writeln!(f, "  session {no} plays `{}`", self.scenario(no).name)?;
        }
        for (no, fault) in self.faults.iter().enumerate() {
            writeln!(f, "  fault {no}: {:?} at {:?}", fault.fault_kind, fault.at)?;
        }
        for (request, mood) in &self.model_faults {
            writeln!(f, "  request {request} to the model: {mood:?}")?;
        }
        if self.has_fallback {
            writeln!(f, "  the agent has a fallback model")?;
        }
        for (no, ProviderOutage { model, from_ms, until_ms }) in self.outages.iter().enumerate() {
            writeln!(f, "  outage {no}: {model} is down from {from_ms} ms to {until_ms} ms")?;
        }
        Ok(())
    }
}
