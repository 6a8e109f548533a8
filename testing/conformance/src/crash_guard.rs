//! Turns whose workers crash: which become suspects, which run alone, and which are sealed.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, next_turn, reply, started};
use outlast_ledger::rules::{trial_pause, trial_window};
use outlast_ports::inbox::AcceptRequest;
use outlast_ports::turns::{ClaimedTurn, CrashGuard, LeaseRequest, TrialState, TurnAfterCommit};
use outlast_views::SessionState;
use outlast_vocab::Millis;
use outlast_vocab::limits::{SEALED_DEATHS, SUSPECT_DEATHS};
use std::time::Duration;

/// An age that is enough for every trial.
const OLD: Duration = Duration::from_hours(1);

/// A time after every pause.
const DUE: Millis = Millis(1_000_000_000);

/// Creates a turn that is held back because its workers crashed.
async fn suspect_turn(s: &StoreUnderTest<'_>) -> Result<ClaimedTurn, outlast_vocab::Error> {
    let dying = s.rival();
    let mut work = s.begin_by(dying, "hi").await?;
    s.bury(dying);
    for _ in 1..SUSPECT_DEATHS {
        let dying = s.rival();
        work = s.claim_only_turn(dying, NOW).await?;
        s.bury(dying);
    }
    assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
    Ok(work)
}

/// Runs the suspect alone, on a worker that crashes during it.
async fn die_alone(s: &StoreUnderTest<'_>) -> RuleResult {
    let dying = long(s.rival());
    let work = s.claim_suspect(dying, OLD, DUE).await?.expect("a suspect is due");
    assert!(s.begin_trial(work.lease).await?);
    s.bury(dying);
    Ok(())
}

/// A lease that outlasts every pause.
fn long(lease_request: LeaseRequest) -> LeaseRequest {
    LeaseRequest { until: Millis(DUE.0 * 2), ..lease_request }
}

pub(super) async fn turn_whose_workers_died_is_held(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = suspect_turn(s).await?;
    let view = s.session(work.lease.session).await?;
    let due = NOW.after(trial_pause(SUSPECT_DEATHS));
    assert_eq!(
        (view.state, view.worker, view.wake_at, view.deaths),
        (SessionState::Held, None, Some(due), SUSPECT_DEATHS)
    );
    assert!(!s.has_work(s.rival().worker, DUE).await?);
    assert_eq!(s.next_wake().await?, Some(due));
    assert_eq!(s.load().await?.held, 1);
    Ok(())
}

pub(super) async fn suspect_waits_for_pause_and_old_worker(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = suspect_turn(s).await?;
    let pause = trial_pause(SUSPECT_DEATHS);
    let (due, early) = (NOW.after(pause), Duration::from_millis(1));
    assert!(s.claim_suspect(s.rival(), OLD, Millis(due.0 - 1)).await?.is_none());
    assert!(s.claim_suspect(s.rival(), pause.saturating_sub(early), due).await?.is_none());
    let tried = s.claim_suspect(s.rival(), pause, due).await?.expect("it is due");
    assert_eq!(tried.lease.turn, work.lease.turn);
    assert_eq!(tried.trial, Some(trial_window(SUSPECT_DEATHS)));
    assert!(tried.resumed);
    Ok(())
}

pub(super) async fn one_suspect_turn_is_tried_at_a_time(s: &StoreUnderTest<'_>) -> RuleResult {
    let (one, _other) = (suspect_turn(s).await?, suspect_turn(s).await?);
    let tried = s.claim_suspect(s.lease_request(), OLD, DUE).await?.expect("both are due");
    assert_eq!(tried.lease.turn, one.lease.turn);
    assert!(s.claim_suspect(s.rival(), OLD, DUE).await?.is_none());
    s.end(&tried.lease).await?;
    assert!(s.claim_suspect(s.rival(), OLD, DUE).await?.is_some());
    Ok(())
}

pub(super) async fn worker_with_a_suspect_claims_no_other_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let busy = s.begin("busy").await?;
    s.queue(busy.lease.session, "next").await?;
    suspect_turn(s).await?;
    let tried = s.claim_suspect(s.lease_request(), OLD, DUE).await?.expect("it is due");
    assert!(!s.begin_trial(tried.lease).await?);
    assert!(matches!(s.end(&busy.lease).await?, TurnAfterCommit::Ended));
    assert!(s.begin_trial(tried.lease).await?);
    let (session, lease_request) = (s.fresh_session().await?, Some(s.lease_request()));
    let accepted = s.accept(AcceptRequest { lease_request, ..s.driven(session, "new") }).await?;
    assert!(accepted.work.is_none());
    assert_eq!(s.claim(s.lease_request(), NOW, ALL).await?.len(), 0);
    // Another worker can claim both. This worker can too, once the suspect has made progress.
    assert_eq!(s.claim(s.rival(), NOW, 1).await?.len(), 1);
    s.add(&tried.lease, vec![reply("half")]).await?;
    assert_eq!(s.claim(s.lease_request(), NOW, ALL).await?.len(), 1);
    Ok(())
}

pub(super) async fn death_before_the_trial_is_not_counted(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = suspect_turn(s).await?.lease.session;
    let dying = long(s.rival());
    s.claim_suspect(dying, OLD, DUE).await?.expect("it is due");
    s.bury(dying);
    assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
    let view = s.session(session).await?;
    assert_eq!((view.state, view.deaths), (SessionState::Held, SUSPECT_DEATHS));
    Ok(())
}

pub(super) async fn repeated_deaths_alone_seal_the_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let suspect = suspect_turn(s).await?;
    for deaths in 1..SEALED_DEATHS {
        die_alone(s).await?;
        assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
        let wake_at = s.session(suspect.lease.session).await?.wake_at;
        assert_eq!(wake_at, Some(NOW.after(trial_pause(SUSPECT_DEATHS + deaths))));
    }
    die_alone(s).await?;
    let guilty = s.claim_only_turn(s.rival(), NOW).await?;
    assert_eq!((guilty.lease.turn, guilty.trial), (suspect.lease.turn, None));
    let guard = CrashGuard {
        deaths: SUSPECT_DEATHS + SEALED_DEATHS,
        alone: SEALED_DEATHS,
        trial: TrialState::NotOnTrial,
    };
    assert!(guilty.guard == CrashGuard { trial: guilty.guard.trial, ..guard } && guilty.guard.is_guilty());
    Ok(())
}

pub(super) async fn progress_resets_the_death_count(s: &StoreUnderTest<'_>) -> RuleResult {
    suspect_turn(s).await?;
    die_alone(s).await?;
    assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
    let (lease_request, dying) = (s.rival(), s.rival());
    let tried = s.claim_suspect(lease_request, OLD, DUE).await?.expect("it is due");
    assert!(s.begin_trial(tried.lease).await?);
    s.add(&tried.lease, vec![started(), reply("half")]).await?;
    s.bury(lease_request);
    let again = s.claim_only_turn(dying, NOW).await?;
    assert_eq!(again.guard, CrashGuard { deaths: 1, ..CrashGuard::default() });
    Ok(())
}

pub(super) async fn released_suspect_is_held_without_counting_a_death(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = suspect_turn(s).await?.lease.session;
    let tried = s.claim_suspect(s.lease_request(), OLD, DUE).await?.expect("it is due");
    assert!(s.begin_trial(tried.lease).await?);
    s.release_lease(tried.lease, NOW).await?;
    let view = s.session(session).await?;
    assert_eq!((view.state, view.deaths), (SessionState::Held, SUSPECT_DEATHS));
    assert!(s.claim_suspect(s.rival(), OLD, DUE).await?.is_some());
    Ok(())
}

pub(super) async fn surviving_the_trial_resets_deaths_alone(s: &StoreUnderTest<'_>) -> RuleResult {
    suspect_turn(s).await?;
    die_alone(s).await?;
    assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
    let lease_request = long(s.rival());
    let tried = s.claim_suspect(lease_request, OLD, DUE).await?.expect("it is due");
    assert!(s.begin_trial(tried.lease).await?);
    s.end_trial(tried.lease).await?;
    s.bury(lease_request);
    assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
    let again = s.claim_suspect(s.rival(), OLD, DUE).await?.expect("it is due");
    assert_eq!((again.guard.deaths, again.guard.alone), (SUSPECT_DEATHS + 2, 0));
    Ok(())
}

pub(super) async fn hung_turn_becomes_suspect_after_one_death(s: &StoreUnderTest<'_>) -> RuleResult {
    let dying = s.rival();
    let work = s.begin_by(dying, "hi").await?;
    assert!(!s.report_hang(work.lease).await?);
    s.bury(dying);
    assert_eq!(s.claim(s.rival(), NOW, ALL).await?.len(), 0);
    assert!(s.claim_suspect(s.rival(), OLD, DUE).await?.is_some());
    Ok(())
}

pub(super) async fn turn_that_hangs_alone_is_returned_for_sealing(s: &StoreUnderTest<'_>) -> RuleResult {
    suspect_turn(s).await?;
    let tried = s.claim_suspect(s.lease_request(), OLD, DUE).await?.expect("it is due");
    assert!(s.begin_trial(tried.lease).await?);
    assert!(s.report_hang(tried.lease).await?);
    let guilty = s.claim_only_turn(s.lease_request(), NOW).await?;
    assert!(guilty.guard.is_guilty() && guilty.lease.fence > tried.lease.fence);
    // Its worker can claim other work at the same time.
    s.begin("other").await?;
    Ok(())
}

pub(super) async fn cancelled_held_turn_is_due_at_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = suspect_turn(s).await?;
    s.cancel(work.lease.turn, "enough".to_owned(), NOW).await?;
    let view = s.session(work.lease.session).await?;
    assert_eq!((view.state, view.wake_at), (SessionState::Held, Some(NOW)));
    s.queue(work.lease.session, "next").await?;
    let tried = s.claim_suspect(s.lease_request(), OLD, NOW).await?.expect("it is due");
    let following = next_turn(s.end(&tried.lease).await?);
    assert_eq!((following.guard, following.trial), (CrashGuard::default(), None));
    Ok(())
}
