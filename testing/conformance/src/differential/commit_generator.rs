//! Draws the writes of a worker: valid writes of a turn, writes after a lost lease, and invalid writes.
use super::known_ids::{KnownIds, RequestedCall};
use super::value_generators::{
    blob, filed, later, metering, resolution, text, turn, value_name, wait_key, want, worker,
};
use crate::store_under_test::{
    answered, asked, call, joined, model_call, performed, reclaimed, reply, started,
};
use outlast_ports::turns::{
    Commit, Fence, Lease, PartialReplyChange, PartialReplyText, TurnTransition, ValueWrite,
};
use outlast_random::SeededRandom;
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
pub(super) fn draw(known: &mut KnownIds, random: &mut SeededRandom) -> Option<Commit> {
    let lease = lease(known, random)?;
    let facts = random.up_to(3, |random| facts(known, lease.session, random)).concat();
    let then = then(known, lease.session, random);
    Some(Commit {
        lease,
        now: known.now,
        facts,
        values: if random.percent(25) { random.up_to(3, |random| value(known, random)) } else { Vec::new() },
        blobs: if random.percent(10) { vec![blob(random)] } else { Vec::new() },
        files: if random.percent(10) { vec![filed(random)] } else { Vec::new() },
        partial: partial(random),
        budget_update: random.percent(40).then(|| metering(random)),
        admissions: if random.percent(30) { random.up_to(2, want) } else { Vec::new() },
        waited: Duration::from_micros(random.below(1_000)),
        transition: then,
    })
}

/// Draws a change to the partial reply. Most writes have no change.
fn partial(random: &mut SeededRandom) -> PartialReplyChange {
    match random.below(10) {
        0 => PartialReplyChange::Delete,
        1 => {
            let (start, attempt) = (random.one_of(&[0, 0, 4, 8]), random.one_of(&[1, 1, 2]));
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
pub(super) fn lease(known: &KnownIds, random: &mut SeededRandom) -> Option<Lease> {
    let mut lease = random.likely_or_other(&known.leases, &known.lost_leases)?;
    match random.below(40) {
        0 => lease.fence = Fence(lease.fence.0 + 1),
        1 => lease.fence = Fence(lease.fence.0.saturating_sub(1)),
        2 => lease.worker = worker(known, random),
        3 => lease.turn = turn(known, random),
        _ => {}
    }
    Some(lease)
}

fn then(known: &KnownIds, session: SessionId, random: &mut SeededRandom) -> TurnTransition {
    // A turn with open calls cannot end.
    let open = known.claims.iter().any(|claim| claim.session == session);
    if random.percent(known.mood.parks) {
        return TurnTransition::Park(
            (0..random.one_of(&[0, 1, 1, 2, 3])).map(|_| wait(known, random)).collect(),
        );
    }
    match random.below(16) {
        0..=4 => TurnTransition::Continue,
        _ if open && random.percent(80) => TurnTransition::Continue,
        5..=12 => TurnTransition::End(end(known, random)),
        _ => TurnTransition::EndUnlessJoined(end(known, random)),
    }
}

fn end(known: &KnownIds, random: &mut SeededRandom) -> TurnEnd {
    match random.below(8) {
        0..=2 => TurnEnd::Answered { text: text(known, random) },
        3 => TurnEnd::Refused { text: text(known, random) },
        4 => TurnEnd::OutOfModelCalls { limit: 50 },
        5 => TurnEnd::Cancelled { reason: "enough".to_owned() },
        6 => TurnEnd::Failed { failure: Failure::new(Kind::ModelRejected, text(known, random)) },
        _ => TurnEnd::Joined { into: turn(known, random) },
    }
}

fn wait(known: &KnownIds, random: &mut SeededRandom) -> Wait {
    Wait {
        key: wait_key(random),
        kind: random.one_of(&[WaitKind::Event, WaitKind::Budget, WaitKind::Completion, WaitKind::Sleep]),
        deadline: random.percent(70).then(|| later(known, random)),
    }
}

fn value(known: &KnownIds, random: &mut SeededRandom) -> ValueWrite {
    let value = random.percent(70).then(|| json!({ "text": text(known, random), "number": random.number() }));
    ValueWrite { name: value_name(random), value }
}

/// Draws the next facts of a turn.
fn facts(known: &mut KnownIds, session: SessionId, random: &mut SeededRandom) -> Vec<Fact> {
    let open = known.claims.iter().any(|claim| claim.session == session);
    if !open || random.percent(50) {
        return vec![fact(known, session, random)];
    }
    let claim = claim(known, session, random);
    let answered = answered(claim, outcome(known, random));
    // A worker that took the turn over takes over its calls first.
    if random.percent(50) { vec![reclaimed(claim), answered] } else { vec![answered] }
}

fn fact(known: &mut KnownIds, session: SessionId, random: &mut SeededRandom) -> Fact {
    match random.below(30) {
        0..=1 => started(),
        2..=6 => reply(&text(known, random)),
        7 => {
            let failure = Failure::new(Kind::ModelCut, text(known, random));
            let failed = ModelOutcome::Failed(ModelFailure { failure, streamed: random.percent(50) });
            performed(ReplayKey::turn(0).model(0), model_call(), failed)
        }
        8..=15 => batch(known, random),
        16..=17 => answered(claim(known, session, random), outcome(known, random)),
        18 => reclaimed(claim(known, session, random)),
        19..=20 => {
            let (key, deadline) = (wait_key(random), None);
            performed(key.clone(), AwaitEvent { key, deadline }, resolution(known, random))
        }
        21..=24 => {
            let inputs: Vec<TurnId> = random.up_to(2, |random| input(known, session, random));
            joined(&inputs)
        }
        25 => {
            let step = DurableStep { name: "charge".to_owned(), input: json!(1.5) };
            performed(
                ReplayKey::turn(0).tools(0).step("charge"),
                step,
                StepOutcome::Value(json!(text(known, random))),
            )
        }
        _ => remark(known, random),
    }
}

/// Draws a fact without consequences. Facts that only the store may write are not drawn; a separate rule checks that
/// they are refused.
fn remark(known: &KnownIds, random: &mut SeededRandom) -> Fact {
    if random.percent(50) {
        return Fact::Stuck { failure: Failure::new(Kind::PackageUnavailable, text(known, random)) };
    }
    let call = ModelCallId::try_from("call_1".to_owned()).expect("it fits");
    Fact::Repaired { calls: vec![RepairedCall { call, restored: random.percent(50) }] }
}

fn batch(known: &mut KnownIds, random: &mut SeededRandom) -> Fact {
    let calls: Vec<PreparedCall> = (0..=random.below(2)).map(|_| fresh_call(known)).collect();
    if random.percent(80) {
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
fn claim(known: &KnownIds, session: SessionId, random: &mut SeededRandom) -> ClaimRef {
    let none = ClaimRef { asked: Seq(random.one_of(&[0, 1, u64::MAX])), child: 0 };
    let of = |claims: &[RequestedCall]| -> Vec<ClaimRef> {
        claims.iter().filter(|claim| claim.session == session).map(|claim| claim.place).collect()
    };
    let claim = random.likely_or_other(&of(&known.claims), &of(&known.settled_claims));
    if random.percent(5) { none } else { claim.unwrap_or(none) }
}

/// Draws a queued input of the session, mostly a recent one, or any turn.
fn input(known: &KnownIds, session: SessionId, random: &mut SeededRandom) -> TurnId {
    let any = turn(known, random);
    let queued = known.queued.iter().filter(|(of, _)| *of == session);
    let queued: Vec<TurnId> = queued.map(|(_, turn)| *turn).collect();
    if random.percent(10) { any } else { random.recent(&queued).unwrap_or(any) }
}

fn outcome(known: &KnownIds, random: &mut SeededRandom) -> ToolOutcome {
    if random.percent(known.mood.unknown) {
        return ToolOutcome::Unknown;
    }
    match random.below(4) {
        0..=1 => ToolOutcome::Done(ToolResult::Ok(json!(text(known, random)))),
        2 => ToolOutcome::Done(ToolResult::Err(Failure::new(Kind::ToolFailed, text(known, random)))),
        _ => ToolOutcome::Pending,
    }
}
