//! Fault injection: numbers the changes of one process, and applies the planned faults.

/// The kind of a change. Operations that change nothing are not numbered and do not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Write,
    Truncate,
    Sync,
    Delete,
}

/// How a process dies at a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The change is not made.
    Before,
    /// Only the first sectors of a write are written. Any other change is not made.
    Torn {
        /// The number of sectors that are written.
        sectors: usize,
    },
    /// The change is made, but the process dies before it knows.
    After,
}

/// How a change fails while its process keeps running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A write fails because the disk is full: `SQLITE_FULL`.
    Full,
    /// A write, truncate, create or delete fails: `SQLITE_IOERR_WRITE` or the equivalent.
    WriteError,
    /// A write stops after its first sectors: `SQLITE_IOERR_WRITE`.
    ShortWrite {
        /// The number of sectors that are written.
        sectors: usize,
    },
    /// A sync fails: `SQLITE_IOERR_FSYNC`. No later sync makes these changes durable, even if it succeeds.
    SyncError,
}

impl Failure {
    fn fits(self, kind: Kind) -> bool {
        match self {
            Self::Full | Self::ShortWrite { .. } => kind == Kind::Write,
            Self::WriteError => kind != Kind::Sync,
            Self::SyncError => kind == Kind::Sync,
        }
    }
}

/// The result of a change.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    Done,
    Fails(Failure),
    Dies(Death),
}

impl Verdict {
    /// Returns whether a change that cannot be torn is made.
    pub(crate) fn happens(self) -> bool {
        matches!(self, Self::Done | Self::Dies(Death::After))
    }

    /// Returns whether the process sees the change succeed.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

/// Counts the changes of one process, and contains the faults that are planned.
#[derive(Default)]
pub(crate) struct Faults {
    changes: u64,
    death: Option<(u64, Death)>,
    failures: Vec<Planned>,
}

struct Planned {
    from: u64,
    failure: Failure,
    lasts: Lasts,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasts {
    Once,
    FromThereOn,
}

impl Faults {
    /// Returns the number of changes so far, which is the number of the next one.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn plan_death(&mut self, at: u64, death: Death) {
        self.death = Some((at, death));
    }

    pub(crate) fn plan_failure(&mut self, from: u64, failure: Failure, lasts: Lasts) {
        self.failures.push(Planned { from, failure, lasts });
    }

    pub(crate) fn clear(&mut self) {
        self.death = None;
        self.failures.clear();
    }

    /// Counts a change and returns its result.
    pub(crate) fn judge(&mut self, kind: Kind) -> Verdict {
        let number = self.changes;
        self.changes += 1;
        if let Some((at, death)) = self.death
            && at <= number
        {
            return Verdict::Dies(death);
        }
        let due = self.failures.iter().position(|plan| plan.from <= number && plan.failure.fits(kind));
        due.map_or(Verdict::Done, |due| {
            let failure = self.failures[due].failure;
            if self.failures[due].lasts == Lasts::Once {
                self.failures.remove(due);
            }
            Verdict::Fails(failure)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of the changes that fail.
    fn failing(faults: &mut Faults, changes: &[Kind]) -> Vec<usize> {
        let judged = changes.iter().map(|kind| faults.judge(*kind));
        judged.enumerate().filter(|(_, verdict)| !verdict.is_done()).map(|(number, _)| number).collect()
    }

    const SOME: [Kind; 6] = [Kind::Create, Kind::Write, Kind::Sync, Kind::Write, Kind::Sync, Kind::Delete];

    #[test]
    fn a_failure_meets_the_first_change_from_its_number_on_that_it_fits() {
        let plan = |failure, lasts| {
            let mut faults = Faults::default();
            faults.plan_failure(1, failure, lasts);
            failing(&mut faults, &SOME)
        };
        assert_eq!(plan(Failure::Full, Lasts::Once), [1]);
        assert_eq!(plan(Failure::Full, Lasts::FromThereOn), [1, 3]);
        assert_eq!(plan(Failure::SyncError, Lasts::Once), [2]);
        assert_eq!(plan(Failure::SyncError, Lasts::FromThereOn), [2, 4]);
        assert_eq!(plan(Failure::WriteError, Lasts::FromThereOn), [1, 3, 5]);
        assert_eq!(plan(Failure::ShortWrite { sectors: 1 }, Lasts::Once), [1]);
    }

    #[test]
    fn what_was_planned_can_be_taken_back() {
        let mut faults = Faults::default();
        faults.plan_failure(0, Failure::WriteError, Lasts::FromThereOn);
        faults.plan_death(0, Death::Before);
        faults.clear();
        assert_eq!(failing(&mut faults, &SOME), [0_usize; 0]);
        assert_eq!(faults.changes(), 6);
    }
}
