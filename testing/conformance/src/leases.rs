//! Write access: claims of sessions, leases, fences.
use super::RuleResult;
use super::store_under_test::{
    ALL, LATER, NOW, StoreUnderTest, UNTIL, answer, answered, asked, call, commit, next_turn, reclaimed,
    refused, reply, settled, started, value_resolution, wait, wait_key, wait_until,
};
use futures_util::future::join;
use outlast_ports::turns::{Commit, Fence, Lease, LeaseRequest, TurnTransition, ValueWrite};
use outlast_views::SessionState;
use outlast_vocab::effect::{Environment, ToolOutcome};
use outlast_vocab::id::TurnId;
use outlast_vocab::record::{CallSettled, ClaimRef, EnvironmentChange, Fact, OutcomeVerdict, Seq};
use outlast_vocab::{Hash, Kind, Millis};
use serde_json::json;

pub(super) async fn a_claim_raises_the_fence(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let again = s.claim_only_turn(s.rival(), UNTIL).await?;
    let third = s.claim_only_turn(s.rival(), LATER).await?;
    assert_eq!([work.lease.fence, again.lease.fence, third.lease.fence], [Fence(1), Fence(2), Fence(3)]);
    Ok(())
}

pub(super) async fn only_one_of_two_workers_claims_a_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.queue(session, "hi").await?;
    let (one, other) = join(s.claim(s.lease_request(), NOW, ALL), s.claim(s.rival(), NOW, ALL)).await;
    assert_eq!(one?.len() + other?.len(), 1);
    Ok(())
}

pub(super) async fn a_claim_takes_no_more_than_its_limit(s: &StoreUnderTest<'_>) -> RuleResult {
    for _ in 0..5 {
        let session = s.fresh_session().await?;
        s.queue(session, "hi").await?;
    }
    let mut taken = Vec::new();
    for (limit, found) in [(2, 2), (0, 0), (2, 2), (2, 1), (2, 0)] {
        let works = s.claim(s.lease_request(), NOW, limit).await?;
        assert_eq!(works.len(), found);
        taken.extend(works.into_iter().map(|work| work.lease.session));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 5);
    Ok(())
}

pub(super) async fn claim_limit_covers_expired_due_and_ready_turns(s: &StoreUnderTest<'_>) -> RuleResult {
    for _ in 0..2 {
        s.begin("expired").await?;
        let parked = s.begin("due").await?;
        s.park(&parked.lease, vec![wait_until("a", UNTIL)]).await?;
        let session = s.fresh_session().await?;
        s.queue(session, "ready").await?;
    }
    let mut taken = Vec::new();
    for found in [4, 2, 0] {
        let works = s.claim(s.rival(), UNTIL, 4).await?;
        assert_eq!(works.len(), found);
        taken.extend(works.into_iter().map(|work| work.lease.session));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 6);
    Ok(())
}

pub(super) async fn expired_leases_are_claimed_despite_many_live_ones(s: &StoreUnderTest<'_>) -> RuleResult {
    let rival = s.rival();
    for _ in 0..5 {
        s.begin_by(rival, "hi").await?;
    }
    let work = s.begin("hi").await?;
    let found = s.claim(s.rival(), UNTIL, 1).await?;
    assert_eq!(found.iter().map(|work| work.lease.turn).collect::<Vec<TurnId>>(), [work.lease.turn]);
    Ok(())
}

pub(super) async fn claim_returns_every_record_of_the_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let before = s.whole_turn(session, "first").await?;
    let work = s.begin_in(session, "second").await?;
    s.add(&work.lease, vec![started(), reply("half")]).await?;
    s.queue(session, "third").await?;
    let again = s.claim_only_turn(s.rival(), UNTIL).await?;
    assert_eq!((again.lease.session, again.lease.turn), (session, work.lease.turn));
    assert_eq!((again.index, again.head.as_str(), again.parent), (1, "main", Some(before)));
    assert_eq!(again.records, s.turn_records(work.lease.turn).await?);
    let facts: Vec<_> = again.records.iter().map(|record| record.fact.name()).collect();
    assert_eq!(facts, ["turn.accepted", "turn.started", "effect.performed"]);
    Ok(())
}

pub(super) async fn lease_is_claimable_only_after_it_expires(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    assert_eq!(s.claimable(Millis(UNTIL.0 - 1)).await?, []);
    assert_eq!(s.claimable(UNTIL).await?, [work.lease.turn]);
    Ok(())
}

pub(super) async fn a_dead_workers_lease_is_claimable_at_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let dying = s.rival();
    let work = s.begin_by(dying, "hi").await?;
    s.begin("alive").await?;
    assert_eq!(s.claimable(NOW).await?, []);
    s.bury(dying);
    let again = s.claim_only_turn(s.rival(), NOW).await?;
    assert_eq!(again.lease.turn, work.lease.turn);
    refused(s.add(&work.lease, vec![reply("late")]).await, Kind::LeaseLost);
    Ok(())
}

pub(super) async fn worker_does_not_claim_its_own_leased_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    assert!(s.claim(s.lease_request(), NOW, ALL).await?.is_empty());
    s.add(&work.lease, vec![reply("still mine")]).await?;
    Ok(())
}

pub(super) async fn checking_for_work_claims_nothing(s: &StoreUnderTest<'_>) -> RuleResult {
    let (asker, dying) = (s.rival().worker, s.rival());
    assert!(!s.has_work(asker, NOW).await?);
    let ready = s.fresh_session().await?;
    s.queue(ready, "hi").await?;
    assert!(s.has_work(asker, NOW).await? && s.has_work(asker, NOW).await?);
    let lease = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    assert!(!s.has_work(asker, NOW).await? && s.has_work(asker, UNTIL).await?);
    s.park(&lease, vec![wait_until("a", UNTIL)]).await?;
    assert!(!s.has_work(asker, NOW).await? && s.has_work(asker, UNTIL).await?);
    s.begin_by(dying, "hi").await?;
    assert!(!s.has_work(asker, NOW).await?);
    s.bury(dying);
    assert!(s.has_work(asker, NOW).await?);
    Ok(())
}

pub(super) async fn renewal_extends_only_own_leases(s: &StoreUnderTest<'_>) -> RuleResult {
    let (one, two) = (s.begin("one").await?, s.begin("two").await?);
    let theirs = s.begin_by(s.rival(), "hi").await?;
    let mut renewed = s.renew(LeaseRequest { until: Millis(LATER.0 + 1), ..s.lease_request() }).await?;
    renewed.sort_unstable();
    let mut mine = [one, two].map(|work| (work.lease.session, work.lease.fence));
    mine.sort_unstable();
    assert_eq!(renewed, mine);
    assert_eq!(s.claimable(LATER).await?, [theirs.lease.turn]);
    Ok(())
}

pub(super) async fn renewal_lists_the_remaining_leases(s: &StoreUnderTest<'_>) -> RuleResult {
    let lost = s.begin("lost").await?;
    s.claim_only_turn(s.rival(), UNTIL).await?;
    let (ended, parked) = (s.begin("ended").await?, s.begin("parked").await?);
    let (returned, renewed) = (s.begin("returned").await?, s.begin("kept").await?);
    s.end(&ended.lease).await?;
    s.park(&parked.lease, vec![wait("a")]).await?;
    s.release_lease(returned.lease, NOW).await?;
    let left = s.renew(LeaseRequest { until: LATER, ..s.lease_request() }).await?;
    assert_eq!(left, [(renewed.lease.session, renewed.lease.fence)]);
    assert_eq!(s.session(lost.lease.session).await?.state, SessionState::Leased);
    Ok(())
}

pub(super) async fn released_session_is_claimable_at_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    s.add(&work.lease, vec![reply("half")]).await?;
    s.release_lease(work.lease, NOW).await?;
    let view = s.session(work.lease.session).await?;
    assert_eq!((view.state, view.worker), (SessionState::Ready, None));
    let again = s.claim_only_turn(s.rival(), NOW).await?;
    assert_eq!(again.lease.turn, work.lease.turn);
    assert!(again.lease.fence > work.lease.fence);
    Ok(())
}

pub(super) async fn only_interrupted_turns_are_marked_as_resumed(s: &StoreUnderTest<'_>) -> RuleResult {
    let first = s.begin("hi").await?;
    let abandoned = s.claim_only_turn(s.rival(), UNTIL).await?;
    s.release_lease(abandoned.lease, UNTIL).await?;
    let returned = s.claim_only_turn(s.lease_request(), UNTIL).await?;
    s.park(&returned.lease, vec![wait_until("a", LATER)]).await?;
    let woken = s.claim_only_turn(s.rival(), LATER).await?;
    let left_again = s.claim_only_turn(s.lease_request(), Millis(LATER.0 + LATER.0)).await?;
    let resumed = [&first, &abandoned, &returned, &woken, &left_again].map(|work| work.resumed);
    assert_eq!(resumed, [false, true, true, false, true]);
    Ok(())
}

pub(super) async fn releasing_a_lease_counts_no_death(s: &StoreUnderTest<'_>) -> RuleResult {
    let mut work = s.begin("hi").await?;
    for _ in 0..3 {
        assert_eq!(work.guard.deaths, 0);
        s.release_lease(work.lease, NOW).await?;
        work = s.claim_only_turn(s.lease_request(), NOW).await?;
    }
    Ok(())
}

pub(super) async fn deaths_without_progress_are_counted(s: &StoreUnderTest<'_>) -> RuleResult {
    let first = s.begin("hi").await?;
    s.add(&first.lease, vec![started()]).await?;
    let second = s.claim_only_turn(s.rival(), UNTIL).await?;
    s.add(&second.lease, vec![asked(&[call("send")])]).await?;
    let third = s.claim_only_turn(s.rival(), LATER).await?;
    assert_eq!([first, second, third].map(|work| work.guard.deaths), [0, 1, 2]);
    Ok(())
}

pub(super) async fn recorded_outcome_resets_the_death_count(s: &StoreUnderTest<'_>) -> RuleResult {
    s.begin("hi").await?;
    let second = s.claim_only_turn(s.rival(), UNTIL).await?;
    s.add(&second.lease, vec![reply("half")]).await?;
    let third = s.claim_only_turn(s.rival(), LATER).await?;
    assert_eq!([second, third].map(|work| work.guard.deaths), [1, 1]);
    Ok(())
}

pub(super) async fn next_turn_starts_with_zero_deaths(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    s.queue(work.lease.session, "next").await?;
    let again = s.claim_only_turn(s.rival(), UNTIL).await?;
    let following = next_turn(s.end(&again.lease).await?);
    assert_eq!([work, again, following].map(|work| work.guard.deaths), [0, 1, 0]);
    Ok(())
}

pub(super) async fn write_with_an_old_fence_changes_nothing(s: &StoreUnderTest<'_>) -> RuleResult {
    let old = s.begin("hi").await?;
    let claim = s.ask(&old.lease, &[call("send")]).await?[0];
    s.queue(old.lease.session, "next").await?;
    let new = s.claim_only_turn(s.rival(), UNTIL).await?;
    let before = s.snapshot().await?;
    let thens = [
        TurnTransition::Continue,
        TurnTransition::End(answer("late")),
        TurnTransition::EndUnlessJoined(answer("late")),
        TurnTransition::Park(vec![wait("a")]),
    ];
    for then in thens {
        let values = vec![ValueWrite { name: "late".to_owned(), value: Some(json!(true)) }];
        let facts = vec![reply("late"), reclaimed(claim), settled(claim)];
        let late = Commit { values, blobs: vec![b"late".to_vec()], ..commit(&old.lease, facts, then) };
        refused(s.commit(late).await, Kind::LeaseLost);
    }
    refused(s.release_lease(old.lease, UNTIL).await, Kind::LeaseLost);
    assert_eq!(s.snapshot().await?, before);
    refused(s.blob(Hash::of(b"late")).await, Kind::BlobNotFound);
    s.add(&new.lease, vec![reclaimed(claim), settled(claim)]).await?;
    Ok(())
}

pub(super) async fn released_lease_rejects_writes(s: &StoreUnderTest<'_>) -> RuleResult {
    let (ended, parked, returned) =
        (s.begin("ended").await?.lease, s.begin("parked").await?.lease, s.begin("returned").await?.lease);
    s.end(&ended).await?;
    s.park(&parked, vec![wait("a")]).await?;
    s.release_lease(returned, NOW).await?;
    let before = s.snapshot().await?;
    for lease in [ended, parked, returned] {
        refused(s.add(&lease, vec![reply("late")]).await, Kind::LeaseLost);
        refused(s.release_lease(lease, NOW).await, Kind::LeaseLost);
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn fence_is_valid_only_for_worker_and_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let before = s.snapshot().await?;
    let others = [
        Lease { worker: s.rival().worker, ..lease },
        Lease { turn: TurnId::from_u128(u128::MAX), ..lease },
        Lease { fence: Fence(lease.fence.0 + 1), ..lease },
        Lease { fence: Fence(0), ..lease },
    ];
    for other in others {
        refused(s.add(&other, vec![reply("forged")]).await, Kind::LeaseLost);
    }
    assert_eq!(s.snapshot().await?, before);
    s.add(&lease, vec![reply("mine")]).await?;
    Ok(())
}

pub(super) async fn expired_lease_can_write_until_claimed(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let late = Commit { now: LATER, ..commit(&lease, vec![reply("late")], TurnTransition::Continue) };
    let places = s.commit(late).await?.places;
    assert_eq!(places.len(), 1);
    Ok(())
}

pub(super) async fn one_refused_fact_rejects_the_whole_write(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let before = s.snapshot().await?;
    let nobodys = ClaimRef { asked: Seq(1), child: 0 };
    let facts = vec![reply("kept?"), asked(&[call("send")]), settled(nobodys)];
    let values = vec![ValueWrite { name: "kept?".to_owned(), value: Some(json!(1)) }];
    let write =
        Commit { values, blobs: vec![b"kept?".to_vec()], ..commit(&lease, facts, TurnTransition::Continue) };
    refused(s.commit(write).await, Kind::ClaimMismatch);
    assert_eq!(s.snapshot().await?, before);
    refused(s.blob(Hash::of(b"kept?")).await, Kind::BlobNotFound);
    s.end(&lease).await?;
    Ok(())
}

pub(super) async fn commit_rejects_facts_that_the_store_records(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    s.add(&lease, vec![answered(claim, ToolOutcome::Unknown)]).await?;
    let before = s.snapshot().await?;
    let input = s.turn_records(lease.turn).await?.remove(0).fact;
    let environment = Environment { package: Hash::ZERO, output: None };
    let change = EnvironmentChange { environment, layers: Hash::ZERO, note: None };
    let others = [
        input,
        Fact::Opened { key: Some("mine".to_owned()), forked_from: None },
        Fact::HeadMoved { head: "main".to_owned(), to: None },
        Fact::Parked { waits: vec![wait("a")] },
        Fact::Resolved { key: wait_key("a"), resolution: value_resolution() },
        Fact::CancelRequested { reason: "enough".to_owned(), undo: false, abandon: false },
        Fact::EnvironmentRequested(change),
        Fact::Settled(CallSettled { claim, verdict: OutcomeVerdict::DidNotHappen }),
        Fact::Ended { end: answer("bye") },
    ];
    for fact in others {
        refused(s.add(&lease, vec![reply("kept?"), fact]).await, Kind::Internal);
        assert_eq!(s.snapshot().await?, before);
    }
    s.end(&lease).await?;
    Ok(())
}
