//! The queue of a session: which inputs join the running turn, which turn is next, and how a turn ends.
use super::RuleResult;
use super::store_under_test::{
    ALL, NOW, StoreUnderTest, UNTIL, answer, call, expect_gapless, input, joined, next_turn, performed,
    refused, reply, settled, started, value_resolution, wait, wait_key,
};
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::AcceptRequest;
use outlast_ports::turns::{TurnAfterCommit, TurnTransition};
use outlast_views::{CancelOutcome, ForkTo, SessionState, TurnState};
use outlast_vocab::effect::{Sleep, SleepOutcome};
use outlast_vocab::message::Part;
use outlast_vocab::record::{Fact, InputDelivery, NodeRef, OutcomeVerdict, Seq, TurnAccepted, TurnEnd};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey};

pub(super) async fn ended_turn_leaves_the_session_idle(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    assert!(matches!(s.end(&work.lease).await?, TurnAfterCommit::Ended));
    let view = s.session(work.lease.session).await?;
    assert_eq!((view.state, view.active, view.worker), (SessionState::Idle, None, None));
    let turn = s.turn(work.lease.turn).await?;
    assert_eq!((turn.state, turn.end), (TurnState::Ended, Some(answer("bye"))));
    assert_eq!(s.claimable(Millis(u64::MAX)).await?, []);
    Ok(())
}

pub(super) async fn ended_turn_moves_head_to_last_message(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    assert_eq!(s.session(session).await?.heads, [("main".to_owned(), None)]);
    let sleep = performed(ReplayKey::turn(0).sleep(0), Sleep { until: NOW }, SleepOutcome {});
    let facts = vec![started(), reply("one"), reply("two"), sleep];
    let places = s.write(&work.lease, facts, TurnTransition::End(answer("two"))).await?.places;
    let last = NodeRef { session, seq: places[2].seq };
    assert_eq!(s.session(session).await?.heads, [("main".to_owned(), Some(last))]);
    assert_eq!(s.turn(work.lease.turn).await?.span, (Seq(2), last.seq));
    assert_eq!(s.begin_in(session, "next").await?.parent, Some(last));
    Ok(())
}

pub(super) async fn silent_turn_leaves_its_input_in_history(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("one").await?;
    let session = work.lease.session;
    let queued = s.queue(session, "two").await?;
    let silent = TurnTransition::End(TurnEnd::Cancelled { reason: "enough".to_owned() });
    let following = next_turn(s.write(&work.lease, Vec::new(), silent.clone()).await?.after);
    s.write(&following.lease, Vec::new(), silent).await?;
    let place = |turn| async move {
        let seq = s.turn(turn).await?.span.1;
        Ok::<_, Error>(Some(NodeRef { session, seq }))
    };
    let (one, two) = (place(work.lease.turn).await?, place(queued).await?);
    assert_eq!(following.parent, one);
    assert_eq!(s.session(session).await?.heads, [("main".to_owned(), two)]);
    let to = |node: Option<NodeRef>| node.map(|node| node.seq);
    assert_eq!((to(one), to(two)), (Some(Seq(2)), Some(Seq(3))));
    Ok(())
}

pub(super) async fn every_turn_end_round_trips(s: &StoreUnderTest<'_>) -> RuleResult {
    let ends = [
        answer("bye"),
        TurnEnd::Refused { text: "no".to_owned() },
        TurnEnd::OutOfModelCalls { limit: 50 },
        TurnEnd::OutOfBudget { budget: "tokens".to_owned(), why: None },
        TurnEnd::Cancelled { reason: "enough".to_owned() },
        TurnEnd::Abandoned { reason: "no results".to_owned() },
        TurnEnd::Failed { failure: Failure::new(Kind::ModelRejected, "too hot") },
        TurnEnd::Sealed { claims: 10, alone: 4, hung: false },
    ];
    for end in ends {
        let work = s.begin("hi").await?;
        s.write(&work.lease, Vec::new(), TurnTransition::End(end.clone())).await?;
        assert_eq!(s.turn(work.lease.turn).await?.end, Some(end));
    }
    Ok(())
}

pub(super) async fn end_of_a_turn_never_changes(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let call = call("send");
    let work = s.call_of_unknown_outcome(session, &call, NOW).await?;
    let (turn, end) = (work.lease.turn, Some(answer("nobody knows")));
    let late = s.write(&work.lease, Vec::new(), TurnTransition::End(answer("late"))).await;
    refused(late, Kind::LeaseLost);
    assert_eq!(s.turn(turn).await?.end, end);
    s.cancel(turn, "late".to_owned(), NOW).await?;
    s.resolve(turn, wait_key("late"), value_resolution(), NOW).await?;
    s.settle(call.id, OutcomeVerdict::DidNotHappen, NOW).await?;
    s.whole_turn(session, "next").await?;
    assert_eq!(s.turn(turn).await?.end, end);
    let ends = s.turn_records(turn).await?;
    assert_eq!(ends.iter().filter(|record| matches!(record.fact, Fact::Ended { .. })).count(), 1);
    Ok(())
}

pub(super) async fn next_turn_keeps_worker_and_raises_fence(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    let queued = s.queue(session, "next").await?;
    let facts = vec![reply("bye")];
    let receipt = s.write(&work.lease, facts, TurnTransition::End(answer("bye"))).await?;
    let last = NodeRef { session, seq: receipt.places[0].seq };
    let following = next_turn(receipt.after);
    assert_eq!((following.lease.turn, following.lease.worker), (queued, work.lease.worker));
    assert!(following.lease.fence > work.lease.fence);
    assert_eq!((following.index, following.parent), (1, Some(last)));
    assert_eq!(following.records, s.turn_records(queued).await?);
    assert!(matches!(following.records[0].fact, Fact::Accepted(_)));
    assert_eq!(s.turn(queued).await?.parent, Some(last));
    assert_eq!(s.claimable(Millis(UNTIL.0 - 1)).await?, []);
    refused(s.add(&work.lease, vec![reply("late")]).await, Kind::LeaseLost);
    s.end(&following.lease).await?;
    Ok(())
}

pub(super) async fn queued_inputs_become_turns_in_arrival_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let mut work = s.begin("0").await?;
    let session = work.lease.session;
    let queued =
        [s.queue(session, "1").await?, s.queue_to_join(session, "2").await?, s.queue(session, "3").await?];
    for turn in queued {
        work = next_turn(s.end(&work.lease).await?);
        assert_eq!(work.lease.turn, turn);
    }
    assert!(matches!(s.end(&work.lease).await?, TurnAfterCommit::Ended));
    Ok(())
}

pub(super) async fn turn_continues_while_an_input_waits_to_join(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let receipt = s.add(&work.lease, vec![reply("half")]).await?;
    assert!(!receipt.has_joining_input);
    s.queue_to_join(work.lease.session, "wait").await?;
    let receipt =
        s.write(&work.lease, vec![reply("bye")], TurnTransition::EndUnlessJoined(answer("bye"))).await?;
    assert!(receipt.has_joining_input && matches!(receipt.after, TurnAfterCommit::Continues));
    assert_eq!(s.turn(work.lease.turn).await?.state, TurnState::Active);
    s.add(&work.lease, vec![reply("still here")]).await?;
    Ok(())
}

pub(super) async fn turn_ends_when_no_joining_input_waits(s: &StoreUnderTest<'_>) -> RuleResult {
    let alone = s.begin("hi").await?;
    let receipt =
        s.write(&alone.lease, vec![reply("bye")], TurnTransition::EndUnlessJoined(answer("bye"))).await?;
    assert!(!receipt.has_joining_input && matches!(receipt.after, TurnAfterCommit::Ended));
    let followed = s.begin("hi").await?;
    let queued = s.queue(followed.lease.session, "next").await?;
    let receipt =
        s.write(&followed.lease, vec![reply("bye")], TurnTransition::EndUnlessJoined(answer("bye"))).await?;
    assert!(!receipt.has_joining_input);
    assert_eq!(next_turn(receipt.after).lease.turn, queued);
    Ok(())
}

pub(super) async fn joining_inputs_are_listed_in_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    let one = s.queue_to_join(session, "one").await?;
    s.queue(session, "not me").await?;
    let two = s.queue_to_join(session, "two").await?;
    let expected = [(one, vec![Part::text("one")]), (two, vec![Part::text("two")])];
    assert_eq!(s.joinable(session).await?, expected);
    Ok(())
}

pub(super) async fn joined_input_never_becomes_a_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let (session, into) = (work.lease.session, work.lease.turn);
    let steering = s.queue_to_join(session, "wait").await?;
    let receipt = s.add(&work.lease, vec![joined(&[steering])]).await?;
    assert!(!receipt.has_joining_input);
    let turn = s.turn(steering).await?;
    assert_eq!((turn.state, turn.end), (TurnState::Ended, Some(TurnEnd::Joined { into })));
    assert!(s.joinable(session).await?.is_empty());
    let end = TurnTransition::EndUnlessJoined(answer("bye"));
    assert!(matches!(s.write(&work.lease, vec![reply("bye")], end).await?.after, TurnAfterCommit::Ended));
    assert_eq!(s.verify(session).await?, s.session(session).await?.last.seq.0);
    Ok(())
}

pub(super) async fn dequeued_inputs_free_queue_capacity(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    let accept = || AcceptRequest { queued_most: 1, ..input(session, "more") };
    let steering = s.queue_to_join(session, "joins").await?;
    s.add(&work.lease, vec![joined(&[steering])]).await?;
    let cancelled = s.accept(accept()).await?.turn;
    s.cancel(cancelled, "no".to_owned(), NOW).await?;
    let begun = s.accept(accept()).await?.turn;
    assert_eq!(next_turn(s.end(&work.lease).await?).lease.turn, begun);
    s.accept(accept()).await?;
    refused(s.accept(accept()).await, Kind::QueueFull);
    Ok(())
}

pub(super) async fn an_input_joins_only_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    let (input, cancelled) =
        (s.queue_to_join(session, "wait").await?, s.queue_to_join(session, "stop").await?);
    s.add(&work.lease, vec![joined(&[input])]).await?;
    s.cancel(cancelled, "no".to_owned(), NOW).await?;
    let foreign = s.queue(s.fresh_session().await?, "elsewhere").await?;
    let before = s.snapshot().await?;
    for input in [input, cancelled, foreign, work.lease.turn] {
        refused(s.add(&work.lease, vec![reply("once"), joined(&[input])]).await, Kind::TurnRaced);
    }
    assert_eq!(s.snapshot().await?, before);
    s.end(&work.lease).await?;
    Ok(())
}

pub(super) async fn an_input_for_another_head_does_not_join(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let to = ForkTo::Head("draft".to_owned());
    s.fork(ForkRequest { from: session, at: None, to, now: NOW }).await?;
    let work = s.begin_in(session, "on main").await?;
    let (delivery, head) = (InputDelivery::Join, "draft".to_owned());
    let accepted = TurnAccepted { delivery, ..TurnAccepted::text("on draft") };
    let other = s.accept(AcceptRequest { head, accepted, ..input(session, "") }).await?.turn;
    assert!(s.joinable(session).await?.is_empty());
    refused(s.add(&work.lease, vec![joined(&[other])]).await, Kind::TurnRaced);
    let receipt =
        s.write(&work.lease, vec![reply("bye")], TurnTransition::EndUnlessJoined(answer("bye"))).await?;
    assert!(!receipt.has_joining_input);
    let following = next_turn(receipt.after);
    assert_eq!((following.lease.turn, following.head.as_str(), following.parent), (other, "draft", None));
    Ok(())
}

pub(super) async fn inputs_wait_while_the_session_is_parked(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    s.park(&work.lease, vec![wait("a")]).await?;
    let accepted = s.accept(s.driven(session, "more")).await?;
    assert!(accepted.work.is_none());
    assert_eq!(s.claimable(NOW).await?, []);
    s.resolve(work.lease.turn, wait_key("a"), value_resolution(), NOW).await?;
    let again = s.claim_only_turn(s.lease_request(), NOW).await?;
    assert_eq!(again.lease.turn, work.lease.turn);
    assert_eq!(next_turn(s.end(&again.lease).await?).lease.turn, accepted.turn);
    Ok(())
}

pub(super) async fn a_cancelled_input_is_skipped(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    let (one, two) = (s.queue(session, "one").await?, s.queue(session, "two").await?);
    assert_eq!(s.cancel(one, "no".to_owned(), NOW).await?, CancelOutcome::EndedBeforeStart);
    let following = next_turn(s.end(&work.lease).await?);
    assert_eq!(following.lease.turn, two);
    assert!(matches!(s.end(&following.lease).await?, TurnAfterCommit::Ended));
    Ok(())
}

pub(super) async fn interleaved_writers_leave_no_gaps(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let (session, turn) = (work.lease.session, work.lease.turn);
    let claims = s.ask(&work.lease, &[call("a"), call("b")]).await?;
    let queued = s.queue(session, "next").await?;
    s.add(&work.lease, vec![settled(claims[1])]).await?;
    s.resolve(turn, wait_key("early"), value_resolution(), NOW).await?;
    let input = s.queue_to_join(session, "steer").await?;
    s.add(&work.lease, vec![settled(claims[0]), joined(&[input])]).await?;
    s.cancel(queued, "no".to_owned(), NOW).await?;
    s.cancel(turn, "enough".to_owned(), NOW).await?;
    s.fork(ForkRequest { from: session, at: None, to: ForkTo::Head("b".to_owned()), now: NOW }).await?;
    s.end(&work.lease).await?;
    let records = s.records(session, Seq(0), ALL).await?;
    expect_gapless(&records);
    assert_eq!(s.session(session).await?.last, records[records.len() - 1].place());
    assert_eq!(s.verify(session).await?, records.len() as u64);
    Ok(())
}
