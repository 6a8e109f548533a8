//! Waits: a turn parks, an external system resolves the wait, and the first resolution counts.
use super::RuleResult;
use super::store_under_test::{
    ALL, LATER, NOW, StoreUnderTest, UNTIL, next_turn, read, refused, reply, value_resolution, wait,
    wait_key, wait_until,
};
use futures_util::future::join_all;
use outlast_ports::turns::TurnAfterCommit;
use outlast_views::{ResolveResult, SessionState};
use outlast_vocab::id::TurnId;
use outlast_vocab::record::Fact;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Failure, Kind, Millis};
use serde_json::json;

fn denial() -> Resolution {
    Resolution::Err(Failure::new(Kind::ToolFailed, "no"))
}

pub(super) async fn parked_turn_has_no_lease_or_worker(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert!(matches!(s.park(&lease, vec![wait("a"), wait("b")]).await?, TurnAfterCommit::Parked));
    let view = s.session(lease.session).await?;
    assert_eq!((view.state, view.active, view.worker), (SessionState::Parked, Some(lease.turn), None));
    assert_eq!((view.waits, view.wake_at), (vec![wait("a"), wait("b")], None));
    let record = s.turn_records(lease.turn).await?.pop().expect("it was written");
    assert_eq!(record.fact, Fact::Parked { waits: vec![wait("a"), wait("b")] });
    assert_eq!(s.claimable(Millis(u64::MAX)).await?, []);
    Ok(())
}

pub(super) async fn resolving_a_wait_makes_its_turn_claimable(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.park(&lease, vec![wait("a"), wait("b")]).await?;
    let resolved = s.resolve(lease.turn, wait_key("b"), value_resolution(), LATER).await?;
    assert_eq!(resolved, ResolveResult { first: value_resolution(), is_yours: true });
    assert_eq!(s.session(lease.session).await?.state, SessionState::Ready);
    let again = s.claim_only_turn(s.rival(), NOW).await?;
    assert_eq!((again.lease.turn, again.guard.deaths), (lease.turn, 0));
    let last = again.records.last().expect("a turn has records");
    assert_eq!(last.fact, Fact::Resolved { key: wait_key("b"), resolution: value_resolution() });
    assert_eq!(last.at, LATER);
    assert!(s.session(lease.session).await?.waits.is_empty());
    Ok(())
}

pub(super) async fn already_resolved_wait_does_not_park(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert!(s.resolve(lease.turn, wait_key("b"), value_resolution(), NOW).await?.is_yours);
    assert!(matches!(s.park(&lease, vec![wait("a"), wait("b")]).await?, TurnAfterCommit::Ready));
    let view = s.session(lease.session).await?;
    assert_eq!((view.state, view.waits.len()), (SessionState::Leased, 0));
    s.add(&lease, vec![read("b", value_resolution())]).await?;
    Ok(())
}

pub(super) async fn resolution_is_kept_for_a_queued_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let queued = s.queue(lease.session, "next").await?;
    assert!(s.resolve(queued, wait_key("a"), value_resolution(), NOW).await?.is_yours);
    let following = next_turn(s.end(&lease).await?);
    assert_eq!(following.records.len(), 2);
    assert!(matches!(s.park(&following.lease, vec![wait("a")]).await?, TurnAfterCommit::Ready));
    Ok(())
}

pub(super) async fn resolving_twice_is_answered_with_the_first_resolution(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.resolve(lease.turn, wait_key("a"), value_resolution(), NOW).await?;
    let before = s.snapshot().await?;
    for later in [denial(), value_resolution(), Resolution::Timeout, Resolution::Cancelled] {
        let resolved = s.resolve(lease.turn, wait_key("a"), later, NOW).await?;
        assert_eq!(resolved, ResolveResult { first: value_resolution(), is_yours: false });
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn concurrent_resolutions_count_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.park(&lease, vec![wait("a")]).await?;
    let resolve = |n: u32| s.resolve(lease.turn, wait_key("a"), Resolution::Ok(json!(n)), NOW);
    let answers = join_all((0..4).map(resolve)).await;
    let answers: Vec<ResolveResult> = answers.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(answers.iter().filter(|answer| answer.is_yours).count(), 1);
    assert!(answers.iter().all(|answer| answer.first == answers[0].first));
    Ok(())
}

pub(super) async fn every_resolution_reads_back(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let rich = Resolution::Ok(json!({ "a": [1, 2.5, null, "é\0"], "big": u64::MAX }));
    for (name, resolution) in
        [("a", rich), ("b", denial()), ("c", Resolution::Timeout), ("d", Resolution::Cancelled)]
    {
        s.resolve(lease.turn, wait_key(name), resolution.clone(), NOW).await?;
        assert_eq!(s.resolve(lease.turn, wait_key(name), value_resolution(), NOW).await?.first, resolution);
    }
    Ok(())
}

pub(super) async fn resolution_wakes_only_its_own_wait(s: &StoreUnderTest<'_>) -> RuleResult {
    let (here, there) = (s.begin("here").await?.lease, s.begin("there").await?.lease);
    for lease in [&here, &there] {
        s.park(lease, vec![wait("a")]).await?;
    }
    s.resolve(here.turn, wait_key("b"), value_resolution(), NOW).await?;
    assert_eq!(s.claimable(NOW).await?, []);
    s.resolve(there.turn, wait_key("a"), value_resolution(), NOW).await?;
    assert_eq!(s.claimable(NOW).await?, [there.turn]);
    Ok(())
}

pub(super) async fn a_wait_of_an_ended_turn_is_cancelled(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.resolve(lease.turn, wait_key("a"), value_resolution(), NOW).await?;
    s.end(&lease).await?;
    let before = s.snapshot().await?;
    let late = s.resolve(lease.turn, wait_key("b"), value_resolution(), NOW).await?;
    assert_eq!(late, ResolveResult { first: Resolution::Cancelled, is_yours: false });
    let again = s.resolve(lease.turn, wait_key("a"), denial(), NOW).await?;
    assert_eq!(again, ResolveResult { first: value_resolution(), is_yours: false });
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn wait_of_an_unknown_turn_is_not_found(s: &StoreUnderTest<'_>) -> RuleResult {
    let unknown_turn = TurnId::from_u128(u128::MAX);
    refused(s.resolve(unknown_turn, wait_key("a"), value_resolution(), NOW).await, Kind::WaitNotFound);
    Ok(())
}

pub(super) async fn parked_turn_is_claimable_only_from_its_deadline(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let waits = vec![wait("a"), wait_until("b", LATER), wait_until("c", UNTIL)];
    s.park(&lease, waits).await?;
    assert_eq!(s.session(lease.session).await?.wake_at, Some(UNTIL));
    assert_eq!(s.next_wake().await?, Some(UNTIL));
    assert_eq!(s.claimable(Millis(UNTIL.0 - 1)).await?, []);
    assert_eq!(s.claimable(UNTIL).await?, [lease.turn]);
    assert_eq!(s.next_wake().await?, None);
    Ok(())
}

pub(super) async fn next_wake_is_the_earliest_deadline(s: &StoreUnderTest<'_>) -> RuleResult {
    assert_eq!(s.next_wake().await?, None);
    let mut leases = Vec::new();
    for deadline in [LATER, UNTIL] {
        let lease = s.begin("hi").await?.lease;
        s.park(&lease, vec![wait_until("a", deadline)]).await?;
        leases.push(lease);
    }
    assert_eq!(s.next_wake().await?, Some(UNTIL));
    s.resolve(leases[1].turn, wait_key("a"), value_resolution(), NOW).await?;
    assert_eq!(s.next_wake().await?, Some(LATER));
    s.cancel(leases[0].turn, "enough".to_owned(), NOW).await?;
    assert_eq!(s.next_wake().await?, None);
    Ok(())
}

pub(super) async fn longest_overdue_turn_is_claimed_first(s: &StoreUnderTest<'_>) -> RuleResult {
    let mut turns = Vec::new();
    for deadline in [Millis(UNTIL.0 + 2), UNTIL, Millis(UNTIL.0 + 3), Millis(UNTIL.0 + 1)] {
        let lease = s.begin("hi").await?.lease;
        s.park(&lease, vec![wait_until("a", deadline)]).await?;
        turns.push(lease.turn);
    }
    let mut taken = Vec::new();
    for limit in [1, 2, ALL] {
        let works = s.claim(s.rival(), Millis(UNTIL.0 + 3), limit).await?;
        taken.extend(works.into_iter().map(|work| work.lease.turn));
    }
    assert_eq!(taken, [1, 3, 0, 2].map(|place: usize| turns[place]));
    Ok(())
}

pub(super) async fn later_wait_replaces_one_with_same_key(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.park(&lease, vec![wait("a"), wait("b"), wait_until("a", UNTIL)]).await?;
    assert_eq!(s.session(lease.session).await?.waits, [wait_until("a", UNTIL), wait("b")]);
    Ok(())
}

pub(super) async fn a_deadline_that_has_passed_does_not_park(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert!(matches!(s.park(&lease, vec![wait("a"), wait_until("b", NOW)]).await?, TurnAfterCommit::Ready));
    s.add(&lease, vec![reply("still mine")]).await?;
    Ok(())
}

pub(super) async fn maximum_deadline_never_expires(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert!(matches!(
        s.park(&lease, vec![wait_until("a", Millis(u64::MAX))]).await?,
        TurnAfterCommit::Parked
    ));
    assert_eq!(s.next_wake().await?, None);
    assert_eq!(s.claimable(LATER).await?, []);
    assert_eq!(s.session(lease.session).await?.waits, [wait_until("a", Millis(u64::MAX))]);
    Ok(())
}

pub(super) async fn a_resolution_does_not_end_a_sleep(s: &StoreUnderTest<'_>) -> RuleResult {
    let sleep = || vec![Wait { kind: WaitKind::Sleep, ..wait_until("a", UNTIL) }];
    let parked = s.begin("hi").await?.lease;
    s.park(&parked, sleep()).await?;
    s.resolve(parked.turn, wait_key("a"), value_resolution(), NOW).await?;
    assert_eq!(s.claimable(NOW).await?, []);
    let resolved = s.begin("hi").await?.lease;
    s.resolve(resolved.turn, wait_key("a"), value_resolution(), NOW).await?;
    assert!(matches!(s.park(&resolved, sleep()).await?, TurnAfterCommit::Parked));
    assert_eq!(s.claimable(UNTIL).await?.len(), 2);
    Ok(())
}

pub(super) async fn wait_outcome_must_match_its_resolution(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.resolve(lease.turn, wait_key("a"), value_resolution(), NOW).await?;
    let before = s.snapshot().await?;
    for other in [denial(), Resolution::Timeout, Resolution::Cancelled] {
        refused(s.add(&lease, vec![reply("x"), read("a", other)]).await, Kind::TurnRaced);
    }
    assert_eq!(s.snapshot().await?, before);
    s.add(&lease, vec![read("a", value_resolution())]).await?;
    Ok(())
}

pub(super) async fn recorded_wait_outcome_beats_later_resolution(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.add(&lease, vec![read("a", Resolution::Timeout)]).await?;
    let before = s.snapshot().await?;
    let late = s.resolve(lease.turn, wait_key("a"), value_resolution(), NOW).await?;
    assert_eq!(late, ResolveResult { first: Resolution::Timeout, is_yours: false });
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn turn_can_park_many_times(s: &StoreUnderTest<'_>) -> RuleResult {
    let mut lease = s.begin("hi").await?.lease;
    for name in ["a", "b", "c"] {
        s.park(&lease, vec![wait(name)]).await?;
        assert_eq!(s.session(lease.session).await?.waits, [wait(name)]);
        s.resolve(lease.turn, wait_key(name), value_resolution(), NOW).await?;
        lease = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    }
    s.end(&lease).await?;
    assert_eq!(s.verify(lease.session).await?, s.all(lease.session).await?.len() as u64);
    assert!(s.claim(s.rival(), Millis(u64::MAX), ALL).await?.is_empty());
    Ok(())
}

pub(super) async fn signing_secret_stays_the_same(s: &StoreUnderTest<'_>) -> RuleResult {
    let secret = s.secret().await?;
    s.begin("hi").await?;
    assert_eq!(s.secret().await?, secret);
    assert_ne!(secret, [0; 32]);
    Ok(())
}
