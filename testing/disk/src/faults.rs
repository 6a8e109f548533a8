//! Fault injection: numbers the changes of one process, and applies the planned faults.

/// The kind of a change. Operations that change nothing are not numbered and do not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberedChangeKind {
    Create,
    Write,
    Truncate,
    Sync,
    Delete,
}

/// How a process dies at a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMode {
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
pub enum ChangeFailure {
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

impl ChangeFailure {
    fn applies_to(self, kind: NumberedChangeKind) -> bool {
        match self {
            Self::Full | Self::ShortWrite { .. } => kind == NumberedChangeKind::Write,
            Self::WriteError => kind != NumberedChangeKind::Sync,
            Self::SyncError => kind == NumberedChangeKind::Sync,
        }
    }
}

/// The result of a change.
#[derive(Clone, Copy)]
pub(crate) enum ChangeOutcome {
    Done,
    Fails(ChangeFailure),
    Dies(CrashMode),
}

impl ChangeOutcome {
    /// Returns whether a change that cannot be torn is made.
    pub(crate) fn is_applied(self) -> bool {
        matches!(self, Self::Done | Self::Dies(CrashMode::After))
    }

    /// Returns whether the process sees the change succeed.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

/// Counts the changes of one process, and contains the faults that are planned.
#[derive(Default)]
pub(crate) struct FaultInjector {
    changes: u64,
    death: Option<(u64, CrashMode)>,
    failures: Vec<PlannedFailure>,
}

struct PlannedFailure {
    from: u64,
    failure: ChangeFailure,
    lasts: FailureDuration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureDuration {
    Once,
    Permanently,
}

impl FaultInjector {
    /// Returns the number of changes so far, which is the number of the next one.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn plan_death(&mut self, at: u64, death: CrashMode) {
        self.death = Some((at, death));
    }

    pub(crate) fn plan_failure(&mut self, from: u64, failure: ChangeFailure, lasts: FailureDuration) {
        self.failures.push(PlannedFailure { from, failure, lasts });
    }

    pub(crate) fn clear(&mut self) {
        self.death = None;
        self.failures.clear();
    }

    /// Counts a change and returns its result.
    pub(crate) fn count_change(&mut self, kind: NumberedChangeKind) -> ChangeOutcome {
        let number = self.changes;
        self.changes += 1;
        if let Some((at, death)) = self.death
            && at <= number
        {
            return ChangeOutcome::Dies(death);
        }
        let due = self.failures.iter().position(|plan| plan.from <= number && plan.failure.applies_to(kind));
        due.map_or(ChangeOutcome::Done, |due| {
            let failure = self.failures[due].failure;
            if self.failures[due].lasts == FailureDuration::Once {
                self.failures.remove(due);
            }
            ChangeOutcome::Fails(failure)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of the changes that fail.
    fn failing(faults: &mut FaultInjector, changes: &[NumberedChangeKind]) -> Vec<usize> {
        let judged = changes.iter().map(|kind| faults.count_change(*kind));
        judged.enumerate().filter(|(_, verdict)| !verdict.is_done()).map(|(number, _)| number).collect()
    }

    const SOME: [NumberedChangeKind; 6] = [
        NumberedChangeKind::Create,
        NumberedChangeKind::Write,
        NumberedChangeKind::Sync,
        NumberedChangeKind::Write,
        NumberedChangeKind::Sync,
        NumberedChangeKind::Delete,
    ];

    #[test]
    fn planned_failure_hits_the_first_matching_change() {
        let plan = |failure, lasts| {
            let mut faults = FaultInjector::default();
            faults.plan_failure(1, failure, lasts);
            failing(&mut faults, &SOME)
        };
        assert_eq!(plan(ChangeFailure::Full, FailureDuration::Once), [1]);
        assert_eq!(plan(ChangeFailure::Full, FailureDuration::Permanently), [1, 3]);
        assert_eq!(plan(ChangeFailure::SyncError, FailureDuration::Once), [2]);
        assert_eq!(plan(ChangeFailure::SyncError, FailureDuration::Permanently), [2, 4]);
        assert_eq!(plan(ChangeFailure::WriteError, FailureDuration::Permanently), [1, 3, 5]);
        assert_eq!(plan(ChangeFailure::ShortWrite { sectors: 1 }, FailureDuration::Once), [1]);
    }

    #[test]
    fn planned_faults_can_be_cleared() {
        let mut faults = FaultInjector::default();
        faults.plan_failure(0, ChangeFailure::WriteError, FailureDuration::Permanently);
        faults.plan_death(0, CrashMode::Before);
        faults.clear();
        assert_eq!(failing(&mut faults, &SOME), [0_usize; 0]);
        assert_eq!(faults.changes(), 6);
    }
}
