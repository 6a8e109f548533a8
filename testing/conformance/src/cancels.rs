//! Cancellation: a cancel names a turn, reaches it in every state, and is recorded as a separate fact.
use super::RuleResult;
use super::store_under_test::{
    NOW, StoreUnderTest, UNTIL, answer, next_turn, refused, reply, wait, wait_until,
};
use outlast_ports::turns::TurnAfterCommit;
use outlast_views::{CancelOutcome, SessionState, TurnState};
use outlast_vocab::Kind;
use outlast_vocab::id::TurnId;
use outlast_vocab::record::{Fact, TurnEnd};

fn cancel_reason() -> String {
    "enough".to_owned()
}

fn cancelled() -> TurnEnd {
    TurnEnd::Cancelled { reason: cancel_reason() }
}

pub(super) async fn a_queued_turn_that_is_cancelled_never_begins(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let turn = s.queue(session, "hi").await?;
    assert_eq!(s.cancel(turn, cancel_reason(), NOW).await?, CancelOutcome::EndedBeforeStart);
    let view = s.turn(turn).await?;
    assert_eq!((view.state, view.end), (TurnState::Ended, Some(cancelled())));
    assert_eq!(s.session(session).await?.state, SessionState::Idle);
    assert_eq!(s.claimable(NOW).await?, []);
    assert_eq!(s.begin_in(session, "next").await?.parent, None);
    Ok(())
}

pub(super) async fn cancelling_one_queued_turn_leaves_the_others(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let (one, two) = (s.queue(session, "one").await?, s.queue(session, "two").await?);
    s.cancel(one, cancel_reason(), NOW).await?;
    assert_eq!(s.session(session).await?.state, SessionState::Ready);
    assert_eq!(s.claimable(NOW).await?, [two]);
    Ok(())
}

pub(super) async fn cancelling_a_queued_turn_leaves_the_running_one(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let queued = s.queue(lease.session, "next").await?;
    s.cancel(queued, cancel_reason(), NOW).await?;
    assert_eq!(s.session(lease.session).await?.state, SessionState::Leased);
    assert_eq!(s.add(&lease, vec![reply("still here")]).await?.cancelled, None);
    assert!(matches!(s.end(&lease).await?, TurnAfterCommit::Ended));
    Ok(())
}

pub(super) async fn running_turn_sees_cancel_at_next_write(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert_eq!(s.add(&lease, vec![reply("a")]).await?.cancelled, None);
    assert_eq!(s.cancel_reason(lease.turn).await?, None);
    assert_eq!(s.cancel(lease.turn, cancel_reason(), NOW).await?, CancelOutcome::Requested);
    assert_eq!(s.claimable(NOW).await?, []);
    let receipt = s.add(&lease, vec![reply("b")]).await?;
    assert_eq!(receipt.cancelled, Some(cancel_reason()));
    assert!(matches!(receipt.after, TurnAfterCommit::Continues));
    assert_eq!(s.cancel_reason(lease.turn).await?, Some(cancel_reason()));
    assert_eq!(s.turn(lease.turn).await?.state, TurnState::Active);
    Ok(())
}

pub(super) async fn next_worker_sees_an_earlier_cancel(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.cancel(lease.turn, cancel_reason(), NOW).await?;
    let again = s.claim_only_turn(s.rival(), UNTIL).await?;
    let last = again.records.last().expect("a turn has records");
    assert_eq!(last.fact, Fact::CancelRequested { reason: cancel_reason(), undo: false, abandon: false });
    assert_eq!(s.add(&again.lease, Vec::new()).await?.cancelled, Some(cancel_reason()));
    Ok(())
}

pub(super) async fn cancelled_parked_turn_is_claimable_at_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.park(&lease, vec![wait("a"), wait_until("b", UNTIL)]).await?;
    assert_eq!(s.cancel(lease.turn, cancel_reason(), NOW).await?, CancelOutcome::Requested);
    assert_eq!(s.session(lease.session).await?.state, SessionState::Ready);
    assert_eq!(s.claimable(NOW).await?, [lease.turn]);
    Ok(())
}

pub(super) async fn a_cancelled_turn_does_not_park(s: &StoreUnderTest<'_>) -> RuleResult {
    for waits in [vec![wait("a")], Vec::new()] {
        let lease = s.begin("hi").await?.lease;
        s.cancel(lease.turn, cancel_reason(), NOW).await?;
        assert!(matches!(s.park(&lease, waits).await?, TurnAfterCommit::Ready));
        s.end(&lease).await?;
    }
    Ok(())
}

pub(super) async fn cancelling_twice_is_one_request(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.cancel(lease.turn, cancel_reason(), NOW).await?;
    let before = s.snapshot().await?;
    assert_eq!(s.cancel(lease.turn, "again".to_owned(), NOW).await?, CancelOutcome::Requested);
    assert_eq!(s.snapshot().await?, before);
    assert_eq!(s.add(&lease, Vec::new()).await?.cancelled, Some(cancel_reason()));
    Ok(())
}

pub(super) async fn abort_is_a_cancel_with_undo(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert_eq!(s.abort(lease.turn, cancel_reason(), NOW).await?, CancelOutcome::Requested);
    assert_eq!(s.add(&lease, Vec::new()).await?.cancelled, Some(cancel_reason()));
    // The first request counts, whether it was an abort or a cancel.
    assert_eq!(s.cancel(lease.turn, "again".to_owned(), NOW).await?, CancelOutcome::Requested);
    let records = s.turn_records(lease.turn).await?;
    let requests: Vec<_> =
        records.iter().filter(|record| matches!(record.fact, Fact::CancelRequested { .. })).collect();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].fact,
        Fact::CancelRequested { reason: cancel_reason(), undo: true, abandon: false }
    );
    let queued = s.queue(lease.session, "next").await?;
    assert_eq!(s.abort(queued, cancel_reason(), NOW).await?, CancelOutcome::EndedBeforeStart);
    s.end(&lease).await?;
    assert_eq!(s.abort(lease.turn, cancel_reason(), NOW).await?, CancelOutcome::AlreadyEnded(answer("bye")));
    Ok(())
}

pub(super) async fn a_cancel_after_the_end_is_too_late(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let never = s.queue(session, "hi").await?;
    s.cancel(never, cancel_reason(), NOW).await?;
    let lease = s.begin("hi").await?.lease;
    s.end(&lease).await?;
    let before = s.snapshot().await?;
    for (turn, end) in [(lease.turn, answer("bye")), (never, cancelled())] {
        assert_eq!(s.cancel(turn, "late".to_owned(), NOW).await?, CancelOutcome::AlreadyEnded(end));
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn late_cancel_does_not_affect_the_next_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.queue(lease.session, "next").await?;
    s.cancel(lease.turn, cancel_reason(), NOW).await?;
    let following = next_turn(s.end(&lease).await?);
    s.cancel(lease.turn, "late".to_owned(), NOW).await?;
    assert_eq!(s.add(&following.lease, vec![reply("fine")]).await?.cancelled, None);
    assert!(matches!(s.park(&following.lease, vec![wait("a")]).await?, TurnAfterCommit::Parked));
    Ok(())
}

pub(super) async fn unknown_turn_cannot_be_cancelled(s: &StoreUnderTest<'_>) -> RuleResult {
    let unknown_turn = TurnId::from_u128(u128::MAX);
    refused(s.cancel(unknown_turn, cancel_reason(), NOW).await, Kind::TurnNotFound);
    refused(s.cancel_reason(unknown_turn).await, Kind::TurnNotFound);
    Ok(())
}
