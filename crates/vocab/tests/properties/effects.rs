//! Generates any effect with its outcome.
use crate::pieces::{
    failure, hash, json_value, key, parts, perhaps_json, resolution, result, seq, tool_use, turn,
};
use outlast_vocab::effect::{
    AwaitEvent, BatchCall, BatchOutcome, Boundary, Checkpoint, CheckpointOutcome, Command, DirectCall,
    DirectOutcome, DurableStep, Environment, Generation, InjectedMessage, JoinedInput, JournalPosition,
    ModelCall, ModelFailure, ModelOutcome, Outcome, RefusedCall, Reply, Sleep, SleepOutcome, StepOutcome,
    StopReason, SyncEnvironment, SyncOutcome, ToolBatch, ToolCall, ToolChoice, ToolOutcome, Usage,
};
use outlast_vocab::label::{Labels, Origin, Provenance, SinkArgument, UntrustedSource};
use outlast_vocab::message::{Message, ToolResult, ToolUse};
use outlast_vocab::policy::{PolicyDecision, RecordedDecision};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::{CallId, Hash, Millis};
use proptest::collection::{btree_map, vec};
use proptest::option::of as option;
use proptest::prelude::*;

/// Generates a request of any kind with an answer of the same kind.
pub(super) fn asked_and_answered() -> impl Strategy<Value = (Command, Outcome)> {
    let millis = || any::<u64>().prop_map(Millis);
    prop_oneof![
        (direct_call(), reply()).prop_map(|(call, outcome)| (call.into(), DirectOutcome(outcome).into())),
        (prepared(), tool_outcome()).prop_map(|(call, outcome)| (ToolCall { call }.into(), outcome.into())),
        (vec(batch_call(), 0..3), vec(tool_outcome(), 0..3))
            .prop_map(|(calls, outcomes)| (ToolBatch { calls }.into(), BatchOutcome(outcomes).into())),
        (model_call(), reply()).prop_map(|(call, outcome)| (call.into(), outcome.into())),
        (any::<String>(), json_value(), result()).prop_map(|(name, input, result)| {
            let outcome = match result {
                ToolResult::Ok(value) => StepOutcome::Value(value),
                ToolResult::Err(failure) => StepOutcome::Failed(failure),
            };
            (DurableStep { name, input }.into(), outcome.into())
        }),
        millis().prop_map(|until| (Sleep { until }.into(), SleepOutcome {}.into())),
        (key(), option(millis()), resolution())
            .prop_map(|(key, deadline, outcome)| (AwaitEvent { key, deadline }.into(), outcome.into())),
        (any::<bool>(), option(environment())).prop_map(|(may_change, environment)| {
            (SyncEnvironment { may_change }.into(), SyncOutcome(environment).into())
        }),
        (any::<bool>(), vec((turn(), parts()), 0..3), option(any::<String>()), messages()).prop_map(
            |(after_work, inputs, correction, messages)| {
                let boundary = if after_work { Boundary::AfterWork } else { Boundary::BeforeCompletion };
                let inputs = inputs.into_iter().map(|(turn, parts)| JoinedInput { turn, parts }).collect();
                (
                    Checkpoint { boundary }.into(),
                    CheckpointOutcome { inputs, correction, messages, ..CheckpointOutcome::default() }.into(),
                )
            }
        ),
    ]
}

pub(super) fn environment() -> impl Strategy<Value = Environment> {
    (hash(), perhaps_json()).prop_map(|(package, output)| Environment { package, output })
}

fn messages() -> impl Strategy<Value = Vec<InjectedMessage>> {
    let text = any::<String>;
    vec((text(), text()).prop_map(|(by, text)| InjectedMessage { by, text }), 0..2)
}

fn generation() -> impl Strategy<Value = Generation> {
    let word = || option(any::<String>());
    let numbers = any::<[Option<u32>; 4]>();
    let penalties = (any::<[Option<i32>; 2]>(), btree_map("[0-9]{1,6}", any::<i32>(), 0..3));
    let words = (word(), word(), word(), word(), word());
    let others = (vec(any::<String>(), 0..3), option(any::<i64>()), option(any::<bool>()));
    (numbers, penalties, words, others).prop_map(|(numbers, penalties, words, others)| {
        let [tokens_most, temperature_milli, top_p_milli, top_k] = numbers;
        let ([presence_penalty_milli, frequency_penalty_milli], logit_bias) = penalties;
        let (variant, summary, verbosity, service_tier, user) = words;
        let (stop, seed, parallel_tools) = others;
        Generation {
            tokens_most,
            temperature_milli,
            variant,
            top_p_milli,
            top_k,
            stop,
            seed,
            presence_penalty_milli,
            frequency_penalty_milli,
            logit_bias,
            parallel_tools,
            summary,
            verbosity,
            service_tier,
            user,
        }
    })
}

fn model_call() -> impl Strategy<Value = ModelCall> {
    let place = (seq(), hash()).prop_map(|(seq, hash)| JournalPosition { seq, hash });
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::Required),
        Just(ToolChoice::None),
        "[a-z]{1,9}".prop_map(|tool| ToolChoice::Only(tool.parse().unwrap())),
    ];
    (option(place), hash(), choice, generation(), perhaps_json()).prop_map(
        |(at, tools, choice, options, output)| ModelCall {
            model: "rehearsal/agent".parse().unwrap(),
            at,
            tools,
            choice,
            options,
            output,
        },
    )
}

fn reply() -> impl Strategy<Value = ModelOutcome> {
    let stop = prop_oneof![
        Just(StopReason::End),
        Just(StopReason::ToolUse),
        Just(StopReason::Length),
        Just(StopReason::Refusal)
    ];
    let usage = any::<[u64; 5]>().prop_map(|[input, cache_read, cache_write, output, reasoning]| Usage {
        input,
        cache_read,
        cache_write,
        output,
        reasoning,
    });
    let cost = option("[0-9]{1,6}\\.[0-9]{1,12}".prop_map(|dollars| dollars.parse().unwrap()));
    let stop = (stop, option(any::<String>()));
    let reply = (parts(), vec(tool_use(), 0..3), stop, usage, cost, any::<u32>()).prop_map(
        |(parts, calls, (stop, stop_sequence), usage, cost, attempt)| {
            let estimate = None;
            ModelOutcome::Reply(Reply { parts, calls, stop, stop_sequence, usage, cost, estimate, attempt })
        },
    );
    let failed = (failure(), any::<bool>())
        .prop_map(|(failure, streamed)| ModelOutcome::Failed(ModelFailure { failure, streamed }));
    prop_oneof![reply, failed]
}

fn provenance() -> Provenance {
    let one = |path: &str, origin| SinkArgument { path: path.to_owned(), origin };
    let tool = Origin::Tool("contacts".parse().unwrap());
    Provenance::from_iter([one("/to/0", Origin::User), one("/to/1", tool), one("/cc", Origin::Unknown)])
}

fn prepared() -> impl Strategy<Value = PreparedCall> {
    let class = prop_oneof![
        Just(EffectClass::Pure),
        Just(EffectClass::Idempotent),
        Just(EffectClass::AtMostOnce),
        Just(EffectClass::Transactional),
    ];
    let run = (any::<u128>(), tool_use(), class, json_value(), perhaps_json());
    run.prop_map(|(id, ToolUse { id: model_id, tool, .. }, class, arguments, payload)| {
        let id = CallId::from_u128(id);
        PreparedCall {
            id,
            model_id,
            tool,
            class,
            arguments,
            payload,
            ruling: None,
            labels: Labels::default(),
            provenance: provenance(),
        }
    })
}

pub(super) fn batch_call() -> impl Strategy<Value = BatchCall> {
    let refused = (tool_use(), failure(), any::<bool>()).prop_map(|(asked, failure, by_a_rule)| {
        let ToolUse { id: model_id, tool, .. } = asked;
        let decision = PolicyDecision::Deny { reason: failure.detail.clone() };
        let ruling = || Box::new(RecordedDecision::new("r".parse().unwrap(), Hash::ZERO, decision));
        BatchCall::Refused(RefusedCall {
            labels: Labels::from_iter(by_a_rule.then_some(UntrustedSource::Attachment)),
            ruling: by_a_rule.then(ruling),
            provenance: if by_a_rule { provenance() } else { Provenance::default() },
            ..RefusedCall::new(model_id, tool, failure)
        })
    });
    prop_oneof![prepared().prop_map(BatchCall::Run), refused]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        parts().prop_map(|parts| Message::User { parts }),
        (parts(), vec(tool_use(), 0..3)).prop_map(|(parts, calls)| Message::Assistant { parts, calls }),
        (tool_use(), result()).prop_map(|(ToolUse { id: call, tool, .. }, result)| Message::Tool {
            call,
            tool,
            result
        }),
    ]
}

fn direct_call() -> impl Strategy<Value = DirectCall> {
    let texts = (any::<String>(), any::<String>());
    (texts, vec(message(), 0..3), generation(), perhaps_json()).prop_map(
        |((usage_source, system), messages, options, output)| DirectCall {
            usage_source,
            model: "rehearsal/agent".parse().unwrap(),
            system,
            messages,
            options,
            output,
        },
    )
}

pub(super) fn tool_outcome() -> impl Strategy<Value = ToolOutcome> {
    prop_oneof![result().prop_map(ToolOutcome::Done), Just(ToolOutcome::Pending), Just(ToolOutcome::Unknown)]
}
