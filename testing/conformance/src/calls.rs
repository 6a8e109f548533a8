//! Claims and outcomes of tool calls: a call is claimed before it runs and has one outcome.
use super::RuleResult;
use super::store_under_test::{
    ALL, LATER, NOW, StoreUnderTest, UNTIL, answer, answered, asked, call, expect_gapless, reclaimed,
    refused, reply, settled, value_resolution, wait, wait_key,
};
use outlast_ports::turns::{TurnAfterCommit, TurnTransition};
use outlast_views::TurnState;
use outlast_vocab::effect::{BatchCall, RefusedCall, Sleep, ToolBatch, ToolOutcome};
use outlast_vocab::id::CallId;
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{CallSettled, ClaimRef, EffectRequested, Fact, OutcomeVerdict, Seq};
use outlast_vocab::{Failure, Kind, Millis, ReplayKey};
use serde_json::json;

pub(super) async fn a_batch_claims_every_call_that_will_run(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let unknown_call = call("stranger");
    let failure = Failure::new(Kind::ToolUnknown, "no tool is called `stranger`");
    let refusal = RefusedCall::new(unknown_call.model_id, unknown_call.tool, failure);
    let calls = vec![BatchCall::Run(call("a")), BatchCall::Refused(refusal), BatchCall::Run(call("b"))];
    let batch = EffectRequested { key: ReplayKey::turn(0).tools(0), command: ToolBatch { calls }.into() };
    let asked = s.add(&lease, vec![Fact::Asked(batch)]).await?.places[0].seq;
    let claim = |child| ClaimRef { asked, child };
    refused(s.add(&lease, vec![settled(claim(1))]).await, Kind::ClaimMismatch);
    refused(s.add(&lease, vec![settled(claim(3))]).await, Kind::ClaimMismatch);
    s.add(&lease, vec![settled(claim(2)), settled(claim(0))]).await?;
    Ok(())
}

pub(super) async fn calls_of_a_batch_settle_in_any_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claims = s.ask(&lease, &[call("a"), call("b"), call("c")]).await?;
    for child in [2, 0, 1] {
        s.add(&lease, vec![settled(claims[child])]).await?;
    }
    let records = s.turn_records(lease.turn).await?;
    let answers: Vec<ClaimRef> = records
        .iter()
        .filter_map(|record| match &record.fact {
            Fact::Answered(answered) => Some(answered.claim),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [claims[2], claims[0], claims[1]]);
    Ok(())
}

pub(super) async fn a_call_is_settled_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    s.add(&lease, vec![settled(claim)]).await?;
    let before = s.snapshot().await?;
    for outcome in [ToolOutcome::Done(ToolResult::Ok(json!(2))), ToolOutcome::Pending, ToolOutcome::Unknown] {
        refused(s.add(&lease, vec![reply("x"), answered(claim, outcome)]).await, Kind::ClaimMismatch);
    }
    refused(s.add(&lease, vec![reclaimed(claim)]).await, Kind::ClaimMismatch);
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn one_write_cannot_settle_a_call_twice(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    let before = s.snapshot().await?;
    refused(s.add(&lease, vec![settled(claim), settled(claim)]).await, Kind::ClaimMismatch);
    assert_eq!(s.snapshot().await?, before);
    s.add(&lease, vec![settled(claim)]).await?;
    Ok(())
}

pub(super) async fn unclaimed_call_cannot_be_settled(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let other = s.begin("elsewhere").await?.lease;
    let elsewhere = s.ask(&other, &[call("send")]).await?[0];
    let sleep = EffectRequested { key: ReplayKey::turn(0).sleep(0), command: Sleep { until: LATER }.into() };
    let asked = s.add(&lease, vec![reply("a"), reply("b"), Fact::Asked(sleep)]).await?.places[2].seq;
    let before = s.snapshot().await?;
    let claims = [
        elsewhere,
        ClaimRef { asked: Seq(1), child: 0 },
        ClaimRef { asked: Seq(u64::MAX), child: u32::MAX },
        ClaimRef { asked, child: 0 },
    ];
    for claim in claims {
        refused(s.add(&lease, vec![settled(claim)]).await, Kind::ClaimMismatch);
        refused(s.add(&lease, vec![reclaimed(claim)]).await, Kind::ClaimMismatch);
    }
    assert_eq!(s.snapshot().await?, before);
    s.add(&other, vec![settled(elsewhere)]).await?;
    Ok(())
}

pub(super) async fn call_of_an_earlier_lease_needs_reclaim_first(s: &StoreUnderTest<'_>) -> RuleResult {
    let old = s.begin("hi").await?.lease;
    let claim = s.ask(&old, &[call("send")]).await?[0];
    let new = s.claim_only_turn(s.rival(), UNTIL).await?.lease;
    let before = s.snapshot().await?;
    refused(s.add(&new, vec![settled(claim)]).await, Kind::ClaimMismatch);
    let unknown = answered(claim, ToolOutcome::Unknown);
    refused(s.add(&new, vec![unknown]).await, Kind::ClaimMismatch);
    assert_eq!(s.snapshot().await?, before);
    s.add(&new, vec![reclaimed(claim)]).await?;
    s.add(&new, vec![settled(claim)]).await?;
    Ok(())
}

pub(super) async fn next_worker_finds_calls_already_started(s: &StoreUnderTest<'_>) -> RuleResult {
    let old = s.begin("hi").await?.lease;
    let calls = [call("a"), call("b")];
    let claims = s.ask(&old, &calls).await?;
    s.add(&old, vec![settled(claims[1])]).await?;
    let again = s.claim_only_turn(s.rival(), UNTIL).await?;
    let found: Vec<&Fact> = again.records.iter().map(|record| &record.fact).skip(1).collect();
    assert_eq!(found, [&asked(&calls), &settled(claims[1])]);
    Ok(())
}

pub(super) async fn turn_cannot_end_with_an_unsettled_call(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    let before = s.snapshot().await?;
    for then in [TurnTransition::End(answer("bye")), TurnTransition::EndUnlessJoined(answer("bye"))] {
        refused(s.write(&lease, vec![reply("bye")], then).await, Kind::ClaimMismatch);
    }
    assert_eq!(s.snapshot().await?, before);
    s.write(&lease, vec![settled(claim), reply("bye")], TurnTransition::End(answer("bye"))).await?;
    Ok(())
}

pub(super) async fn a_turn_can_park_while_a_call_runs(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    assert!(matches!(s.park(&lease, vec![wait("a")]).await?, TurnAfterCommit::Parked));
    s.resolve(lease.turn, wait_key("a"), value_resolution(), NOW).await?;
    let again = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    s.add(&again, vec![reclaimed(claim), settled(claim)]).await?;
    s.end(&again).await?;
    Ok(())
}

pub(super) async fn externally_completed_call_settles_as_pending(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    s.add(&lease, vec![answered(claim, ToolOutcome::Pending)]).await?;
    refused(s.add(&lease, vec![settled(claim)]).await, Kind::ClaimMismatch);
    assert!(s.unknown(ALL).await?.is_empty());
    Ok(())
}

pub(super) async fn unknown_call_is_listed_with_its_request(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let (fine, mut lost) = (call("fine"), call("lost"));
    lost.arguments = json!({ "amount": 12.5, "to": ["é", null] });
    let work = s.begin_in(session, "hi").await?;
    let claims = s.ask(&work.lease, &[fine, lost.clone()]).await?;
    s.add(&work.lease, vec![settled(claims[0]), answered(claims[1], ToolOutcome::Unknown)]).await?;
    let listed = s.unknown(ALL).await?;
    assert_eq!(listed.len(), 1);
    let found = &listed[0];
    assert_eq!((found.call, &found.tool, &found.arguments), (lost.id, &lost.tool, &lost.arguments));
    assert_eq!((found.session, found.turn, found.claim), (session, work.lease.turn, claims[1]));
    assert_eq!(found.since, NOW);
    Ok(())
}

pub(super) async fn calls_of_unknown_outcome_are_listed_oldest_first(s: &StoreUnderTest<'_>) -> RuleResult {
    let (here, there) = (s.fresh_session().await?, s.fresh_session().await?);
    let calls = [call("a"), call("b"), call("c")];
    for (session, (call, at)) in [there, here, there].into_iter().zip(calls.iter().zip(1..)) {
        s.call_of_unknown_outcome(session, call, Millis(at)).await?;
    }
    let listed: Vec<CallId> = s.unknown(ALL).await?.iter().map(|call| call.call).collect();
    assert_eq!(listed, [calls[0].id, calls[1].id, calls[2].id]);
    assert_eq!(s.unknown(2).await?.len(), 2);
    Ok(())
}

pub(super) async fn an_unknown_outcome_is_final_for_the_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claim = s.ask(&lease, &[call("send")]).await?[0];
    s.add(&lease, vec![answered(claim, ToolOutcome::Unknown)]).await?;
    let before = s.snapshot().await?;
    refused(s.add(&lease, vec![settled(claim)]).await, Kind::ClaimMismatch);
    refused(s.add(&lease, vec![reclaimed(claim)]).await, Kind::ClaimMismatch);
    refused(s.add(&lease, vec![reclaimed(claim), settled(claim)]).await, Kind::ClaimMismatch);
    assert_eq!(s.snapshot().await?, before);
    s.end(&lease).await?;
    assert_eq!(s.turn(lease.turn).await?.state, TurnState::Ended);
    assert_eq!(s.unknown(ALL).await?.len(), 1);
    Ok(())
}

pub(super) async fn an_operator_settles_an_unknown_outcome_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let call = call("send");
    let turn = s.call_of_unknown_outcome(session, &call, NOW).await?.lease.turn;
    let claim = s.unknown(ALL).await?[0].claim;
    let verdict = OutcomeVerdict::Happened(ToolResult::Ok(json!("sent")));
    assert_eq!(s.settle(call.id, verdict.clone(), LATER).await?, session);
    let record = s.turn_records(turn).await?.pop().expect("it was written");
    assert_eq!((record.fact, record.at), (Fact::Settled(CallSettled { claim, verdict }), LATER));
    assert!(s.unknown(ALL).await?.is_empty());
    let before = s.snapshot().await?;
    refused(s.settle(call.id, OutcomeVerdict::DidNotHappen, LATER).await, Kind::ClaimNotFound);
    assert_eq!(s.snapshot().await?, before);
    assert_eq!(s.verify(session).await?, s.session(session).await?.last.seq.0);
    Ok(())
}

pub(super) async fn operator_settles_only_the_named_call(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let calls = [call("a"), call("b"), call("c")];
    for call in &calls {
        s.call_of_unknown_outcome(session, call, NOW).await?;
    }
    s.settle(calls[1].id, OutcomeVerdict::DidNotHappen, NOW).await?;
    let left: Vec<CallId> = s.unknown(ALL).await?.iter().map(|call| call.call).collect();
    assert_eq!(left, [calls[0].id, calls[2].id]);
    Ok(())
}

pub(super) async fn operator_settles_calls_of_a_running_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let call = call("send");
    let claim = s.ask(&lease, std::slice::from_ref(&call)).await?[0];
    s.add(&lease, vec![answered(claim, ToolOutcome::Unknown)]).await?;
    s.settle(call.id, OutcomeVerdict::DidNotHappen, NOW).await?;
    s.end(&lease).await?;
    expect_gapless(&s.all(lease.session).await?);
    assert_eq!(s.turn(lease.turn).await?.end, Some(answer("bye")));
    Ok(())
}

pub(super) async fn operator_settles_only_unknown_outcomes(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let (running, finished) = (call("running"), call("finished"));
    let claims = s.ask(&lease, &[running.clone(), finished.clone()]).await?;
    s.add(&lease, vec![settled(claims[1])]).await?;
    let before = s.snapshot().await?;
    for id in [running.id, finished.id, CallId::from_u128(u128::MAX)] {
        refused(s.settle(id, OutcomeVerdict::DidNotHappen, NOW).await, Kind::ClaimNotFound);
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}
