//! The plan of one run, as data: the scenarios to play, and the faults with their times. A seed draws a plan; a failing
//! plan is reduced by leaving out parts.
use crate::dice::Dice;
use crate::model::Mood;
use crate::scenario::{Scenario, catalogue};
use std::collections::BTreeMap;
use std::fmt;

/// The plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The seed of the task scheduler.
    pub(crate) schedule: u64,
    /// The number of processes that work on the database.
    pub(crate) workers: usize,
    /// The scenario of each session, by its index in the catalogue.
    pub(crate) plays: Vec<usize>,
    /// The faults of the machine.
    pub(crate) faults: Vec<Fault>,
    /// The faults of the model, by request.
    pub(crate) moods: BTreeMap<u64, Mood>,
    /// Whether the death of a process is visible immediately, or only through its expired lease.
    pub(crate) deaths_show: bool,
}

/// A fault that happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: At,
    pub(crate) blow: Blow,
}

/// The time of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
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
pub(crate) enum Blow {
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
    Rest,
    /// It is asked to shut down, and does so.
    ShutDown,
    /// A newer program has used the file. The next life must refuse it, and the one after that may continue.
    NewerSchema,
}

impl Blow {
    /// Returns its name in a report.
    pub(crate) const fn name(self, at: At) -> &'static str {
        match (self, at) {
            (Self::Kill(_), At::BeforeWrite(_)) => "crash before a transaction",
            (Self::Kill(_), At::AfterWrite(_)) => "crash after a transaction, unheard",
            (Self::Kill(_), At::InWrite(..)) => "crash inside a transaction",
            (Self::Kill(_), At::InOpening(..)) => "crash during recovery",
            (Self::Kill(_), At::Action(..)) => "crash between two steps",
            (Self::PowerLoss(_), At::InWrite(..)) => "power loss inside a transaction, torn pages",
            (Self::PowerLoss(_), _) => "power loss",
            (Self::SyncFails, _) => "failed fsync",
            (Self::WriteFails, _) => "failed write",
            (Self::Full(_), _) => "full disk",
            (Self::Pause(_), _) => "process paused beyond its lease",
            (Self::Jump(_), _) => "clock jump",
            (Self::Rest, _) => "checkpoint of the log",
            (Self::ShutDown, _) => "graceful shutdown",
            (Self::NewerSchema, _) => "newer schema found",
        }
    }

    /// Returns whether every turn ends as it would without the fault.
    const fn passes(self) -> bool {
        !matches!(self, Self::Jump(_) | Self::Pause(_))
    }
}

impl Plan {
    /// Creates a plan of one scenario without faults.
    pub(crate) fn of(play: usize) -> Self {
        Self {
            schedule: 0,
            workers: 1,
            plays: vec![play],
            faults: Vec::new(),
            moods: BTreeMap::new(),
            deaths_show: true,
        }
    }

    /// Draws a plan from a seed. Each kind of fault is first switched on or off for the whole run, so that runs differ
    /// in kind.
    pub(crate) fn draw(seed: u64, only: Option<usize>) -> Self {
        let mut dice = Dice::new(seed, 1);
        let plays = if let Some(play) = only {
            vec![play]
        } else {
            let (alone, sociable): (Vec<usize>, Vec<usize>) =
                (0..catalogue().len()).partition(|no| catalogue()[*no].alone);
            let together = (0..=dice.below(4)).map(|_| sociable[dice.index(sociable.len())]).collect();
            // A separate stream, so that all other seeds still draw the same plans.
            let mut lonely = Dice::new(seed, 3);
            if lonely.percent(20) { vec![alone[lonely.index(alone.len())]] } else { together }
        };
        let workers = 1 + dice.index(3);
        let (crashes, power, disk, pauses, clocks) =
            (dice.percent(70), dice.percent(30), dice.percent(25), dice.percent(25), dice.percent(15));
        let mut faults = Vec::new();
        let actions = 60 * plays.len() as u64;
        for _ in 0..dice.below(6) {
            let mut kinds = Vec::new();
            if crashes {
                kinds.extend([
                    Blow::Kill(dice.below(20_000)),
                    Blow::Kill(0),
                    Blow::ShutDown,
                    Blow::NewerSchema,
                ]);
            }
            if power {
                kinds.push(Blow::PowerLoss(dice.below(u64::MAX)));
            }
            if disk {
                kinds.extend([Blow::SyncFails, Blow::WriteFails, Blow::Full(1 + dice.below(5_000))]);
            }
            if pauses {
                kinds.push(Blow::Pause(10_000 + dice.below(20_000)));
            }
            if clocks {
                let hour = 3_600_000;
                kinds.push(Blow::Jump(i64::try_from(dice.below(2 * hour)).unwrap_or(0) - 3_600_000));
            }
            kinds.push(Blow::Rest);
            let blow = kinds[dice.index(kinds.len())];
            let at = match (blow, dice.below(5)) {
                (Blow::Kill(_), 0) => At::BeforeWrite(dice.below(actions / 6)),
                (Blow::Kill(_), 1) => At::AfterWrite(dice.below(actions / 6)),
                (Blow::Kill(_) | Blow::PowerLoss(_), 2) => {
                    At::InWrite(dice.below(actions / 6), dice.below(20))
                }
                (Blow::Kill(_), 3) => At::InOpening(1 + dice.below(4), dice.below(8)),
                _ => At::Action(dice.below(actions), dice.index(workers)),
            };
            faults.push(Fault { at, blow });
        }
        let mut moods = BTreeMap::new();
        if dice.percent(50) {
            let bad = dice.percent(20);
            for _ in 0..dice.below(3) {
                let mood = match dice.below(if bad { 7 } else { 5 }) {
                    0 => Mood::Busy([50, 3_000, 30_000][dice.index(3)]),
                    1 => Mood::Down,
                    2 => Mood::Cut(dice.index(4)),
                    3 => Mood::Stall(dice.index(4)),
                    4 => Mood::Slow(1 + dice.below(20_000)),
                    5 => Mood::Twice(dice.index(4)),
                    _ => Mood::Swapped(dice.index(4)),
                };
                // Never two in a row, or a call could run out of attempts.
                moods.insert(2 * dice.below(6), mood);
            }
        }
        let deaths_show = dice.percent(60);
        Self { schedule: seed, workers, plays, faults, moods, deaths_show }
    }

    /// Returns the scenario of a session.
    pub(crate) fn scenario(&self, session: usize) -> &'static Scenario {
        &catalogue()[self.plays[session]]
    }

    /// Returns whether a fault could damage the file, if SQLite or our use of it is wrong.
    pub(crate) fn hurts_the_disk(&self) -> bool {
        self.faults.iter().any(|Fault { at, blow }| {
            let inside = matches!(at, At::InWrite(..) | At::InOpening(..));
            inside || matches!(blow, Blow::PowerLoss(_) | Blow::SyncFails | Blow::WriteFails | Blow::Full(_))
        })
    }

    /// Returns whether every settled scenario must end as it does without faults.
    pub(crate) fn is_strict(&self) -> bool {
        self.faults.iter().all(|fault| fault.blow.passes()) && self.moods.values().all(|mood| mood.passes())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deaths = if self.deaths_show { "deaths show" } else { "deaths do not show" };
        writeln!(f, "{} workers, schedule {:#x}, {deaths}", self.workers, self.schedule)?;
        for no in 0..self.plays.len() {
            writeln!(f, "  session {no} plays `{}`", self.scenario(no).name)?;
        }
        for (no, fault) in self.faults.iter().enumerate() {
            writeln!(f, "  fault {no}: {:?} at {:?}", fault.blow, fault.at)?;
        }
        for (request, mood) in &self.moods {
            writeln!(f, "  request {request} to the model: {mood:?}")?;
        }
        Ok(())
    }
}
