//! Generates any fact that can be written.
use crate::effects::{asked_and_answered, batch_call, environment, tool_outcome};
use crate::pieces::{
    claim, failure, hash, json_value, key, node, parts, perhaps_json, resolution, result, tool_use, turn,
};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{EffectKind, ToolBatch, Usage};
use outlast_vocab::hook::{HookPatch, ReplyPatch};
use outlast_vocab::id::PaymentId;
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::message::Message;
use outlast_vocab::payment::{Payment, PaymentOrder, PaymentState};
use outlast_vocab::policy::{
    ApprovalRequirement, FactChanges, PolicyDecision, PolicyPoint, RecordedDecision,
};
use outlast_vocab::rate::{RateLimitOutcome, RateLimited};
use outlast_vocab::record::{
    AttemptsFailed, CallReclaimed, CallSettled, CompactionMethod, CompactionRecord, EffectAnswered,
    EffectPerformed, EffectRequested, EnvironmentChange, Fact, FailedAttempt, HookApplied, InputDelivery,
    OutcomeVerdict, PolicyDecided, RepairedCall, TurnAccepted, TurnEnd, TurnResumed, TurnStarted,
    UndoableCall,
};
use outlast_vocab::tool::UndoCall;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Hash, Millis, WorkerId};
use proptest::collection::vec;
use proptest::option::of as option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use std::collections::BTreeSet;

fn end() -> impl Strategy<Value = TurnEnd> {
    let text = any::<String>;
    prop_oneof![
        text().prop_map(|text| TurnEnd::Answered { text }),
        text().prop_map(|text| TurnEnd::Refused { text }),
        any::<u32>().prop_map(|limit| TurnEnd::OutOfModelCalls { limit }),
        (text(), option(text())).prop_map(|(budget, why)| TurnEnd::OutOfBudget { budget, why }),
        text().prop_map(|reason| TurnEnd::Cancelled { reason }),
        text().prop_map(|reason| TurnEnd::Abandoned { reason }),
        failure().prop_map(|failure| TurnEnd::Failed { failure }),
        any::<(u32, u32, bool)>().prop_map(|(claims, alone, hung)| TurnEnd::Sealed { claims, alone, hung }),
        (text(), any::<u32>(), any::<u32>()).prop_map(|(reason, undone, left)| TurnEnd::Aborted {
            reason,
            undone,
            left
        }),
        turn().prop_map(|into| TurnEnd::Joined { into }),
    ]
}

fn wait_kind() -> impl Strategy<Value = WaitKind> {
    prop_oneof![
        Just(WaitKind::Approval),
        Just(WaitKind::Completion),
        Just(WaitKind::Event),
        Just(WaitKind::Sleep),
        Just(WaitKind::SubAgent),
        Just(WaitKind::Connection),
        Just(WaitKind::ClientTool),
    ]
}

fn failed_attempt() -> impl Strategy<Value = FailedAttempt> {
    let model = option(Just("one/big".parse().unwrap()));
    (any::<u32>(), any::<u64>(), any::<u64>(), failure(), model).prop_map(
        |(attempt, from, until, failure, model)| {
            let (from, until) = (Millis(from), Millis(until));
            FailedAttempt { attempt, from, until, failure, model }
        },
    )
}

fn cost() -> impl Strategy<Value = Cost> {
    any::<u32>().prop_map(|part| format!("0.{part}").parse().unwrap())
}

fn performed() -> impl Strategy<Value = EffectPerformed> {
    (key(), asked_and_answered(), vec(failed_attempt(), 0..3), option(cost())).prop_map(
        |(key, (command, outcome), tried, cost)| {
            let reused = cost.is_none();
            EffectPerformed { key, command, outcome, tried, cost, reused }
        },
    )
}

fn turn_accepted() -> impl Strategy<Value = TurnAccepted> {
    let delivery = prop_oneof![Just(InputDelivery::Next), Just(InputDelivery::Join)];
    (parts(), option(any::<String>()), delivery, option(hash()), perhaps_json(), option(json_value()))
        .prop_map(|(parts, key, delivery, package, output, carried)| {
            let before = vec![Message::User { parts: parts.clone() }];
            let (note, plugins) = (
                carried.clone(),
                carried.map(|value| ("guestbook".parse().unwrap(), value)).into_iter().collect(),
            );
            TurnAccepted {
                parts,
                key,
                delivery,
                package,
                output,
                plugins,
                traceparent: None,
                before,
                note,
                retry_of: None,
                request: package,
                worker: package.map(|_| WorkerId::from_u128(1)),
                layers: package,
            }
        })
}

fn cancel_requested() -> impl Strategy<Value = Fact> {
    let kinds = prop_oneof![Just((false, false)), Just((true, false)), Just((false, true))];
    (any::<String>(), kinds).prop_map(|(reason, (undo, abandon))| Fact::CancelRequested {
        reason,
        undo,
        abandon,
    })
}

pub(crate) fn fact() -> impl Strategy<Value = Fact> {
    let text = any::<String>;
    let verdict =
        prop_oneof![result().prop_map(OutcomeVerdict::Happened), Just(OutcomeVerdict::DidNotHappen)];
    let wait = (key(), wait_kind(), option(any::<u64>().prop_map(Millis)))
        .prop_map(|(key, kind, deadline)| Wait { key, kind, deadline });
    prop_oneof![
        (option(text()), option(node())).prop_map(|(key, forked_from)| Fact::Opened { key, forked_from }),
        (text(), option(node())).prop_map(|(head, to)| Fact::HeadMoved { head, to }),
        turn_accepted().prop_map(Fact::Accepted),
        (any::<u32>(), hash(), text(), option(node())).prop_map(|(kernel, package, head, parent)| {
            Fact::Started(TurnStarted { kernel, package, head, parent, labels: None })
        }),
        (key(), vec(batch_call(), 0..4)).prop_map(|(key, calls)| {
            Fact::Asked(EffectRequested { key, command: ToolBatch { calls }.into() })
        }),
        (claim(), tool_outcome(), option(cost())).prop_map(|(claim, outcome, cost)| {
            Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost })
        }),
        performed().prop_map(Fact::Performed),
        (any::<u128>(), any::<u64>(), any::<u64>()).prop_map(|(worker, lease, since)| {
            Fact::Resumed(TurnResumed { worker: WorkerId::from_u128(worker), lease, since: Millis(since) })
        }),
        (key(), vec(failed_attempt(), 0..3))
            .prop_map(|(key, attempts)| Fact::Tried(AttemptsFailed { key, attempts })),
        (claim(), any::<u32>())
            .prop_map(|(claim, attempt)| Fact::Reclaimed(CallReclaimed { claim, attempt })),
        vec(wait, 0..3).prop_map(|waits| Fact::Parked { waits }),
        failure().prop_map(|failure| Fact::Stuck { failure }),
        (key(), resolution()).prop_map(|(key, resolution)| Fact::Resolved { key, resolution }),
        cancel_requested(),
        (environment(), hash(), option(json_value())).prop_map(|(environment, layers, note)| {
            Fact::EnvironmentRequested(EnvironmentChange { environment, layers, note })
        }),
        (key(), tool_use(), json_value()).prop_map(|(key, ask, arguments)| {
            Fact::Undoable(UndoableCall { key, undo: UndoCall { tool: ask.tool, arguments } })
        }),
        (key(), any::<u128>(), text(), option(text())).prop_map(|(key, id, text, receipt)| {
            let order =
                PaymentOrder { payee: text.clone(), amount: "1.5 EUR".parse().unwrap(), purpose: text };
            let state = match receipt {
                None => PaymentState::Asked,
                Some(reason) if reason.len() % 2 == 0 => PaymentState::Releasing { reason },
                Some(receipt) => PaymentState::Settled { receipt },
            };
            Fact::Payment(Payment { key, id: PaymentId::from_u128(id), order, state })
        }),
        (key(), option(any::<u64>()), failure()).prop_map(|(key, until, failure)| {
            let pace = until.map_or(RateLimitOutcome::Refused { failure }, |until| RateLimitOutcome::Waits {
                until: Millis(until),
            });
            Fact::Paced(RateLimited { key, rate: "mail".parse().unwrap(), pace })
        }),
        (key(), text(), option(json_value())).prop_map(|(key, text, was)| {
            let patch = HookPatch::AfterModel(ReplyPatch { text });
            Fact::Hooked(HookApplied { key, hook: "audit".parse().unwrap(), patch, was })
        }),
        (key(), text(), any::<bool>(), any::<bool>()).prop_map(|(key, text, failed, asks)| {
            let facts = json!({ "text": text });
            let decision = if asks {
                PolicyDecision::Ask(ApprovalRequirement::default())
            } else {
                PolicyDecision::Deny { reason: text }
            };
            let also = Box::new(FactChanges {
                set: [("/text".to_owned(), facts.clone())].into(),
                redact: Vec::new(),
            });
            let ruling = RecordedDecision {
                failed,
                also: asks.then_some(also),
                ..RecordedDecision::new("r".parse().unwrap(), Hash::ZERO, decision)
            };
            let labels = Labels::from_iter(failed.then_some(UntrustedSource::Attachment));
            if asks && failed {
                return Fact::Ruled(PolicyDecided::of_call(
                    key,
                    "pay".parse().unwrap(),
                    ruling,
                    facts,
                    labels,
                ));
            }
            Fact::Ruled(PolicyDecided::new(key, PolicyPoint::Output, ruling, &facts, labels))
        }),
        (key(), option(turn()), any::<u32>(), option(text())).prop_map(|(key, through, here, summary)| {
            let shorter = match summary {
                Some(text) => {
                    CompactionMethod::Summary { text, usage: Usage::default(), cost: None, estimate: None }
                }
                None => CompactionMethod::Results,
            };
            Fact::Compacted(CompactionRecord { key, through, here, shorter })
        }),
        vec((tool_use(), any::<bool>()), 0..3).prop_map(|calls| Fact::Repaired {
            calls: calls.into_iter().map(|(ask, restored)| RepairedCall { call: ask.id, restored }).collect()
        }),
        (claim(), verdict).prop_map(|(claim, verdict)| Fact::Settled(CallSettled { claim, verdict })),
        end().prop_map(|end| Fact::Ended { end }),
    ]
}

#[test]
fn generator_covers_every_fact_and_effect_kind() {
    let mut runner = TestRunner::deterministic();
    let mut names = BTreeSet::new();
    let mut effects = BTreeSet::new();
    for _ in 0..2_000 {
        let fact = fact().new_tree(&mut runner).unwrap().current();
        names.insert(fact.name());
        if let Fact::Performed(performed) = fact {
            effects.insert(performed.command.kind().name());
            assert_eq!(performed.outcome.kind(), performed.command.kind());
        }
    }
    assert_eq!((names.len(), effects.len()), (24, EffectKind::ALL.len()));
}
