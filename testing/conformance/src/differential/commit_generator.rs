//! Draws the writes of a worker: valid writes of a turn, writes after a lost lease, and invalid writes.
use super::known_ids::{KnownIds, RequestedCall};
use super::seeded_random::SeededRandom;
use super::value_generators::{
    blob, filed, later, metering, resolution, text, turn, value_name, wait_key, want, worker,
};
use crate::store_under_test::{
    answered, asked, call, joined, model_call, performed, reclaimed, reply, started,
};
use outlast_ports::store::{
    Commit, Fence, Lease, PartialReplyChange, PartialReplyText, TurnTransition, ValueWrite,
};
use outlast_vocab::effect::{
    AwaitEvent, BatchCall, DurableStep, ModelFailure, ModelOutcome, RefusedCall, StepOutcome, ToolBatch,
    ToolOutcome,
};
use outlast_vocab::id::{CallId, SessionId};
use outlast_vocab::message::{ModelCallId, ToolResult};
use outlast_vocab::record::{ClaimRef, EffectRequested, Fact, RepairedCall, Seq, TurnEnd};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Failure, Kind, ReplayKey, TurnId};
use serde_json::json;
use std::time::Duration;

/// Draws a write under a lease, if any lease was ever granted.
pub(super) fn draw(known: &mut KnownIds, dice: &mut SeededRandom) -> Option<Commit> {
    let lease = lease(known, dice)?;
    let facts = dice.up_to(3, |dice| facts(known, lease.session, dice)).concat();
    let then = then(known, lease.session, dice);
    Some(Commit {
        lease,
        now: known.now,
        facts,
        values: if dice.percent(25) { dice.up_to(3, |dice| value(known, dice)) } else { Vec::new() },
        blobs: if dice.percent(10) { vec![blob(dice)] } else { Vec::new() },
        files: if dice.percent(10) { vec![filed(dice)] } else { Vec::new() },
        partial: partial(dice),
        budget_update: dice.percent(40).then(|| metering(dice)),
        admissions: if dice.percent(30) { dice.up_to(2, want) } else { Vec::new() },
        waited: Duration::from_micros(dice.below(1_000)),
        transition: then,
    })
}

/// Draws a change to the partial reply. Most writes have no change.
fn partial(dice: &mut SeededRandom) -> PartialReplyChange {
    match dice.below(10) {
        0 => PartialReplyChange::Delete,
        1 => {
            let (start, attempt) = (dice.one_of(&[0, 0, 4, 8]), dice.one_of(&[1, 1, 2]));
            PartialReplyChange::Append(PartialReplyText {
                key: ReplayKey::turn(0).model(0),
                attempt,
                start,
                text: "word".to_owned(),
            })
        }
        _ => PartialReplyChange::Unchanged,
    }
}

/// Draws a granted lease, mostly a recent one. Sometimes a field of it is wrong.
pub(super) fn lease(known: &KnownIds, dice: &mut SeededRandom) -> Option<Lease> {
    let mut lease = dice.likely_or_other(&known.leases, &known.lost_leases)?;
    match dice.below(40) {
        0 => lease.fence = Fence(lease.fence.0 + 1),
        1 => lease.fence = Fence(lease.fence.0.saturating_sub(1)),
        2 => lease.worker = worker(known, dice),
        3 => lease.turn = turn(known, dice),
        _ => {}
    }
    Some(lease)
}

fn then(known: &KnownIds, session: SessionId, dice: &mut SeededRandom) -> TurnTransition {
    // A turn with open calls cannot end.
    let open = known.claims.iter().any(|claim| claim.session == session);
    if dice.percent(known.mood.parks) {
        return TurnTransition::Park((0..dice.one_of(&[0, 1, 1, 2, 3])).map(|_| wait(known, dice)).collect());
    }
    match dice.below(16) {
        0..=4 => TurnTransition::Continue,
        _ if open && dice.percent(80) => TurnTransition::Continue,
        5..=12 => TurnTransition::End(end(known, dice)),
        _ => TurnTransition::EndUnlessJoined(end(known, dice)),
    }
}

fn end(known: &KnownIds, dice: &mut SeededRandom) -> TurnEnd {
    match dice.below(8) {
        0..=2 => TurnEnd::Answered { text: text(known, dice) },
        3 => TurnEnd::Refused { text: text(known, dice) },
        4 => TurnEnd::OutOfModelCalls { limit: 50 },
        5 => TurnEnd::Cancelled { reason: "enough".to_owned() },
        6 => TurnEnd::Failed { failure: Failure::new(Kind::ModelRejected, text(known, dice)) },
        _ => TurnEnd::Joined { into: turn(known, dice) },
    }
}

fn wait(known: &KnownIds, dice: &mut SeededRandom) -> Wait {
    Wait {
        key: wait_key(dice),
        kind: dice.one_of(&[WaitKind::Event, WaitKind::Budget, WaitKind::Completion, WaitKind::Sleep]),
        deadline: dice.percent(70).then(|| later(known, dice)),
    }
}

fn value(known: &KnownIds, dice: &mut SeededRandom) -> ValueWrite {
    let value = dice.percent(70).then(|| json!({ "text": text(known, dice), "number": dice.number() }));
    ValueWrite { name: value_name(dice), value }
}

/// Draws the next facts of a turn.
fn facts(known: &mut KnownIds, session: SessionId, dice: &mut SeededRandom) -> Vec<Fact> {
    let open = known.claims.iter().any(|claim| claim.session == session);
    if !open || dice.percent(50) {
        return vec![fact(known, session, dice)];
    }
    let claim = claim(known, session, dice);
    let answered = answered(claim, outcome(known, dice));
    // A worker that took the turn over takes over its calls first.
    if dice.percent(50) { vec![reclaimed(claim), answered] } else { vec![answered] }
}

fn fact(known: &mut KnownIds, session: SessionId, dice: &mut SeededRandom) -> Fact {
    match dice.below(30) {
        0..=1 => started(),
        2..=6 => reply(&text(known, dice)),
        7 => {
            let failure = Failure::new(Kind::ModelCut, text(known, dice));
            let failed = ModelOutcome::Failed(ModelFailure { failure, streamed: dice.percent(50) });
            performed(ReplayKey::turn(0).model(0), model_call(), failed)
        }
        8..=15 => batch(known, dice),
        16..=17 => answered(claim(known, session, dice), outcome(known, dice)),
        18 => reclaimed(claim(known, session, dice)),
        19..=20 => {
            let (key, deadline) = (wait_key(dice), None);
            performed(key.clone(), AwaitEvent { key, deadline }, resolution(known, dice))
        }
        21..=24 => {
            let inputs: Vec<TurnId> = dice.up_to(2, |dice| input(known, session, dice));
            joined(&inputs)
        }
        25 => {
            let step = DurableStep { name: "charge".to_owned(), input: json!(1.5) };
            performed(
                ReplayKey::turn(0).tools(0).step("charge"),
                step,
                StepOutcome::Value(json!(text(known, dice))),
            )
        }
        _ => remark(known, dice),
    }
}

/// Draws a fact without consequences. Facts that only the store may write are not drawn; a separate rule checks that
/// they are refused.
fn remark(known: &KnownIds, dice: &mut SeededRandom) -> Fact {
    if dice.percent(50) {
        return Fact::Stuck { failure: Failure::new(Kind::PackageUnavailable, text(known, dice)) };
    }
    let call = ModelCallId::try_from("call_1".to_owned()).expect("it fits");
    Fact::Repaired { calls: vec![RepairedCall { call, restored: dice.percent(50) }] }
}

fn batch(known: &mut KnownIds, dice: &mut SeededRandom) -> Fact {
    let calls: Vec<PreparedCall> = (0..=dice.below(2)).map(|_| fresh_call(known)).collect();
    if dice.percent(80) {
        return asked(&calls);
    }
    // A refused call has an index in its batch, but no claim.
    let PreparedCall { model_id, tool, .. } = fresh_call(known);
    let failure = Failure::new(Kind::ToolUnknown, "no tool has this name");
    let refused = BatchCall::Refused(RefusedCall::new(model_id, tool, failure));
    let calls = std::iter::once(refused).chain(calls.into_iter().map(BatchCall::Run)).collect();
    Fact::Asked(EffectRequested { key: ReplayKey::turn(0).tools(0), command: ToolBatch { calls }.into() })
}

fn fresh_call(known: &mut KnownIds) -> PreparedCall {
    let number = known.fresh();
    let model_id = ModelCallId::try_from(format!("call_{number}")).expect("it fits");
    PreparedCall { id: CallId::from_u128(number), model_id, ..call("pay") }
}

/// Draws a call of the session, mostly a recent one, or one that does not exist.
fn claim(known: &KnownIds, session: SessionId, dice: &mut SeededRandom) -> ClaimRef {
    let none = ClaimRef { asked: Seq(dice.one_of(&[0, 1, u64::MAX])), child: 0 };
    let of = |claims: &[RequestedCall]| -> Vec<ClaimRef> {
        claims.iter().filter(|claim| claim.session == session).map(|claim| claim.place).collect()
    };
    let claim = dice.likely_or_other(&of(&known.claims), &of(&known.settled_claims));
    if dice.percent(5) { none } else { claim.unwrap_or(none) }
}

/// Draws a queued input of the session, mostly a recent one, or any turn.
fn input(known: &KnownIds, session: SessionId, dice: &mut SeededRandom) -> TurnId {
    let any = turn(known, dice);
    let queued = known.queued.iter().filter(|(of, _)| *of == session);
    let queued: Vec<TurnId> = queued.map(|(_, turn)| *turn).collect();
    if dice.percent(10) { any } else { dice.recent(&queued).unwrap_or(any) }
}

fn outcome(known: &KnownIds, dice: &mut SeededRandom) -> ToolOutcome {
    if dice.percent(known.mood.unknown) {
        return ToolOutcome::Unknown;
    }
    match dice.below(4) {
        0..=1 => ToolOutcome::Done(ToolResult::Ok(json!(text(known, dice)))),
        2 => ToolOutcome::Done(ToolResult::Err(Failure::new(Kind::ToolFailed, text(known, dice)))),
        _ => ToolOutcome::Pending,
    }
}
