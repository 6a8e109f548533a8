//! The crash guard: finds turns that kill their workers, runs them alone, and seals them.
//!
//! A turn is a suspect if its worker died [`SUSPECT_DEATHS`] times without progress. A suspect is held back. After a
//! pause that grows with each death, it runs as the only turn of its worker: a trial. Only deaths during a trial
//! count toward sealing. [`SEALED_DEATHS`](outlast_vocab::limits::SEALED_DEATHS) of them seal the turn. Progress resets all counters.
use super::turn::{check_fence, take};
use crate::rows::{Rows, SessionNo, SessionQueue, SessionRow, SessionWrites};
use outlast_ports::turns::{ClaimedTurn, Lease, LeaseRequest, TrialState};
use outlast_views::SessionState;
use outlast_vocab::limits::{SUSPECT_DEATHS, TRIAL_FIRST, TRIAL_MOST};
use outlast_vocab::{Error, Millis, WorkerId};
use std::time::Duration;

/// Sessions read per page while searching for other sessions of a worker.
const PAGE: usize = 256;

/// Returns how long a death counts against a suspect that runs alone. The time doubles with each death.
pub fn trial_window(deaths: u32) -> Duration {
    let doubled = 1_u32.checked_shl(deaths.saturating_sub(SUSPECT_DEATHS)).unwrap_or(u32::MAX);
    TRIAL_FIRST.saturating_mul(doubled).min(TRIAL_MOST)
}

/// Returns how long a suspect is held back, and how long a worker must have lived before it runs one: twice the
/// window. The crash of a worker that cannot live that long without the suspect proves nothing about the suspect.
pub fn trial_pause(deaths: u32) -> Duration {
    trial_window(deaths) * 2
}

/// Returns the maximum number of deaths of a suspect that a worker of this age may run.
fn most_deaths(lived: Duration) -> u32 {
    if lived >= TRIAL_MOST * 2 {
        return u32::MAX;
    }
    (SUSPECT_DEATHS..u32::BITS).take_while(|deaths| trial_pause(*deaths) <= lived).last().unwrap_or(0)
}

/// Returns whether another session of this worker is on trial, in which case the worker runs nothing else.
pub(super) fn runs_alone(
    rows: &dyn SessionQueue,
    worker: WorkerId,
    beside: SessionNo,
) -> Result<bool, Error> {
    Ok(rows.trials()?.iter().any(|(session, of)| *of == worker && *session != beside))
}

/// Holds a suspect back until its pause is over.
fn hold(session: &mut SessionRow, now: Millis) {
    session.state = SessionState::Held;
    session.worker = None;
    session.guard.trial = TrialState::NotOnTrial;
    session.wake_at = Some(now.after(trial_pause(session.guard.deaths)));
}

/// Counts the end of a lease against its turn. Returns whether the session may be claimed now. If not, it is held
/// back.
pub(super) fn count_death(session: &mut SessionRow, finder: WorkerId, now: Millis) -> bool {
    // A worker that finds its own expired lease is alive.
    if session.worker != Some(finder) {
        match session.guard.trial {
            // The trial was claimed but had not begun.
            TrialState::Waits => {}
            TrialState::Runs => {
                session.guard.deaths += 1;
                session.guard.alone += 1;
            }
            TrialState::NotOnTrial | TrialState::Hung => session.guard.deaths += 1,
        }
    }
    if session.guard.is_guilty() || !session.guard.is_suspect() {
        return true;
    }
    hold(session, now);
    false
}

/// Releases a session: to any worker, or into the pause of a suspect.
pub(super) fn release(session: &mut SessionRow, now: Millis) {
    if session.guard.is_suspect() && !session.guard.is_guilty() {
        hold(session, now);
    } else {
        session.state = SessionState::Ready;
        session.worker = None;
    }
}

/// Claims the suspect that has been due longest, to run it alone. Only one trial runs at a time.
///
/// The suspect must have been due at `due` or earlier. `lived` is the age of the worker.
pub fn claim_suspect(
    rows: &mut dyn Rows,
    lease_request: LeaseRequest,
    lived: Duration,
    due: Millis,
) -> Result<Option<ClaimedTurn>, Error> {
    rows.access().require_operator()?;
    if !rows.trials()?.is_empty() {
        return Ok(None);
    }
    let Some(mut session) = rows.suspect_due(due, most_deaths(lived))? else { return Ok(None) };
    session.guard.trial = TrialState::Waits;
    take(rows, session, lease_request).map(Some)
}

/// Returns whether a suspect is ready for a trial, for a worker that is old enough.
pub fn has_suspect(rows: &dyn SessionQueue, now: Millis) -> Result<bool, Error> {
    rows.access().require_operator()?;
    Ok(rows.trials()?.is_empty() && rows.suspect_due(now, u32::MAX)?.is_some())
}

/// Begins a trial, if the worker runs nothing else. Deaths count against the suspect after this.
pub fn begin_trial(rows: &mut dyn Rows, lease: &Lease) -> Result<bool, Error> {
    let mut session = check_fence(rows, lease)?;
    if has_other(rows, &session, lease.worker)? {
        return Ok(false);
    }
    session.guard.trial = TrialState::Runs;
    rows.put_session(&session)?;
    Ok(true)
}

fn has_other(rows: &dyn SessionQueue, session: &SessionRow, worker: WorkerId) -> Result<bool, Error> {
    let mut after = SessionNo(0);
    loop {
        let page = rows.sessions_in(SessionState::Leased, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(false) };
        after = last.no;
        if page.iter().any(|row| row.worker == Some(worker) && row.no != session.no) {
            return Ok(true);
        }
    }
}

/// Ends a trial that the worker survived for its whole window. The turn continues beside others.
pub fn end_trial(rows: &mut dyn SessionWrites, lease: &Lease) -> Result<(), Error> {
    let mut session = check_fence(rows, lease)?;
    if session.guard.trial == TrialState::Runs {
        session.guard.trial = TrialState::NotOnTrial;
        session.guard.alone = 0;
        rows.put_session(&session)?;
    }
    Ok(())
}

/// Records that a turn blocks its thread. A turn that runs beside others becomes a suspect when its worker dies. A
/// turn on trial is guilty: its session is released so that it is sealed. Returns whether the session was released.
pub fn report_hang(rows: &mut dyn SessionWrites, lease: &Lease) -> Result<bool, Error> {
    let mut session = check_fence(rows, lease)?;
    let alone = session.guard.trial == TrialState::Runs;
    if alone {
        session.guard.trial = TrialState::Hung;
        session.state = SessionState::Ready;
        session.worker = None;
    } else {
        session.guard.deaths = session.guard.deaths.max(SUSPECT_DEATHS - 1);
    }
    rows.put_session(&session)?;
    Ok(alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_pauses_double_up_to_a_limit() {
        let seconds = |deaths| trial_pause(deaths).as_secs();
        assert_eq!([3, 4, 5, 6, 60].map(seconds), [10, 20, 40, 80, 1_200]);
    }

    #[test]
    fn young_workers_try_no_suspect_turns() {
        let most = |seconds| most_deaths(Duration::from_secs(seconds));
        assert_eq!([0, 9, 10, 39, 40, 1_199, 1_200].map(most), [0, 0, 3, 4, 5, 9, u32::MAX]);
    }
}
