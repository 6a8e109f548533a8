//! What must hold for every value: canonical JSON has one spelling, and a record reads back as it was written.
use outlast_vocab::effect::{
    AwaitEvent, BatchCall, Boundary, Checkpoint, Command, DurableStep, Generation, Joined, JoinedInput,
    ModelCall, ModelFailure, ModelOutcome, Outcome, Place, RefusedCall, Reply, Sleep, Slept, StepOutcome,
    StopReason, ToolBatch, ToolChoice, ToolOutcome, Usage,
};
use outlast_vocab::message::{Arguments, Part, ToolResult, ToolUse};
use outlast_vocab::record::{
    Accepted, Answered, Asked, ClaimRef, Delivery, End, Fact, NodeRef, Performed, Reclaimed, RepairedCall,
    Seq, Settled, Started, Verdict,
};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{CallId, Failure, Hash, Kind, Millis, ReplayKey, SessionId, TurnId, canon};
use proptest::collection::vec;
use proptest::option::of as option;
use proptest::prelude::*;
use serde_json::{Value, json};

fn json_value() -> impl Strategy<Value = Value> {
    let float = proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        float.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The value as JSON text whose members stand in falling instead of rising order.
fn backwards(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(backwards).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| b.cmp(a));
            let member = |(name, value): (&String, &Value)| format!("{} : {}", json!(name), backwards(value));
            format!("{{{}}}", sorted.into_iter().map(member).collect::<Vec<_>>().join(" , "))
        }
        leaf => leaf.to_string(),
    }
}

fn seq() -> impl Strategy<Value = Seq> {
    any::<u64>().prop_map(Seq)
}

fn node() -> impl Strategy<Value = NodeRef> {
    (any::<u128>(), seq()).prop_map(|(session, seq)| NodeRef { session: SessionId::from_u128(session), seq })
}

fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash::from_bytes)
}

fn turn() -> impl Strategy<Value = TurnId> {
    any::<u128>().prop_map(TurnId::from_u128)
}

fn claim() -> impl Strategy<Value = ClaimRef> {
    (seq(), any::<u32>()).prop_map(|(asked, child)| ClaimRef { asked, child })
}

fn key() -> impl Strategy<Value = ReplayKey> {
    (any::<u32>(), any::<usize>(), any::<String>(), any::<String>()).prop_map(|(turn, child, call, step)| {
        let call = ReplayKey::turn(turn).tools(0).child(child, &call);
        if step.is_empty() { call.completion() } else { call.step(&step) }
    })
}

fn failure() -> impl Strategy<Value = Failure> {
    (0..Kind::ALL.len(), any::<String>()).prop_map(|(kind, detail)| Failure::new(Kind::ALL[kind], detail))
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        any::<String>().prop_map(Part::text),
        (any::<String>(), option(any::<String>()))
            .prop_map(|(text, signature)| Part::Reasoning { text, signature }),
    ];
    vec(part, 0..4)
}

fn result() -> impl Strategy<Value = ToolResult> {
    prop_oneof![json_value().prop_map(ToolResult::Ok), failure().prop_map(ToolResult::Err)]
}

fn resolution() -> impl Strategy<Value = Resolution> {
    prop_oneof![
        json_value().prop_map(Resolution::Ok),
        failure().prop_map(Resolution::Err),
        Just(Resolution::Timeout),
        Just(Resolution::Cancelled),
    ]
}

fn tool_use() -> impl Strategy<Value = ToolUse> {
    let arguments =
        prop_oneof![json_value().prop_map(Arguments::Json), any::<String>().prop_map(Arguments::Broken)];
    ("[a-z0-9_:/. ]{1,40}", "[A-Za-z0-9_.-]{1,64}", arguments).prop_map(|(id, tool, arguments)| ToolUse {
        id: id.parse().unwrap(),
        tool: tool.parse().unwrap(),
        arguments,
    })
}

fn batch_call() -> impl Strategy<Value = BatchCall> {
    let class = prop_oneof![
        Just(EffectClass::Pure),
        Just(EffectClass::Idempotent),
        Just(EffectClass::AtMostOnce),
        Just(EffectClass::Transactional),
    ];
    let run = (any::<u128>(), tool_use(), class, json_value(), option(json_value()));
    // A payload of `null` is the same as none.
    let run = run.prop_map(|(id, ToolUse { id: model_id, tool, .. }, class, arguments, payload)| {
        let (id, payload) = (CallId::from_u128(id), payload.filter(|payload| !payload.is_null()));
        BatchCall::Run(PreparedCall { id, model_id, tool, class, arguments, payload })
    });
    let refused = (tool_use(), failure()).prop_map(|(ToolUse { id: model_id, tool, .. }, failure)| {
        BatchCall::Refused(RefusedCall { model_id, tool, failure })
    });
    prop_oneof![run, refused]
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
    let reply = (parts(), vec(tool_use(), 0..3), stop, usage, any::<u32>()).prop_map(
        |(parts, calls, stop, usage, attempt)| {
            ModelOutcome::Reply(Reply { parts, calls, stop, usage, attempt })
        },
    );
    let failed = (failure(), any::<bool>())
        .prop_map(|(failure, streamed)| ModelOutcome::Failed(ModelFailure { failure, streamed }));
    prop_oneof![reply, failed]
}

fn model_call() -> impl Strategy<Value = ModelCall> {
    let place = (seq(), hash()).prop_map(|(seq, hash)| Place { seq, hash });
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::Required),
        Just(ToolChoice::None),
        "[a-z]{1,9}".prop_map(|tool| ToolChoice::Only(tool.parse().unwrap())),
    ];
    let options = (option(any::<u32>()), option(any::<u32>()), option(any::<String>())).prop_map(
        |(tokens_most, temperature_milli, variant)| Generation { tokens_most, temperature_milli, variant },
    );
    (option(place), hash(), choice, options).prop_map(|(at, tools, choice, options)| ModelCall {
        model: "rehearsal/agent".parse().unwrap(),
        at,
        tools,
        choice,
        options,
        output: None,
    })
}

fn asked_and_answered() -> impl Strategy<Value = (Command, Outcome)> {
    let millis = || any::<u64>().prop_map(Millis);
    prop_oneof![
        (model_call(), reply()).prop_map(|(call, outcome)| (call.into(), outcome.into())),
        (any::<String>(), json_value(), result()).prop_map(|(name, input, result)| {
            let outcome = match result {
                ToolResult::Ok(value) => StepOutcome::Value(value),
                ToolResult::Err(failure) => StepOutcome::Failed(failure),
            };
            (DurableStep { name, input }.into(), outcome.into())
        }),
        millis().prop_map(|until| (Sleep { until }.into(), Slept {}.into())),
        (key(), option(millis()), resolution())
            .prop_map(|(key, deadline, outcome)| (AwaitEvent { key, deadline }.into(), outcome.into())),
        (any::<bool>(), vec((turn(), parts()), 0..3)).prop_map(|(after_work, inputs)| {
            let boundary = if after_work { Boundary::AfterWork } else { Boundary::BeforeCompletion };
            let inputs = inputs.into_iter().map(|(turn, parts)| JoinedInput { turn, parts }).collect();
            (Checkpoint { boundary }.into(), Joined { inputs }.into())
        }),
    ]
}

fn end() -> impl Strategy<Value = End> {
    let text = any::<String>;
    prop_oneof![
        text().prop_map(|text| End::Answered { text }),
        text().prop_map(|text| End::Refused { text }),
        any::<u32>().prop_map(|limit| End::OutOfModelCalls { limit }),
        text().prop_map(|budget| End::OutOfBudget { budget }),
        text().prop_map(|reason| End::Cancelled { reason }),
        failure().prop_map(|failure| End::Failed { failure }),
        any::<u32>().prop_map(|claims| End::Sealed { claims }),
        turn().prop_map(|into| End::Joined { into }),
    ]
}

fn fact() -> impl Strategy<Value = Fact> {
    let text = any::<String>;
    let delivery = prop_oneof![Just(Delivery::Next), Just(Delivery::Join)];
    let outcome = prop_oneof![
        result().prop_map(ToolOutcome::Done),
        Just(ToolOutcome::Pending),
        Just(ToolOutcome::Unknown)
    ];
    let verdict = prop_oneof![result().prop_map(Verdict::Happened), Just(Verdict::DidNotHappen)];
    let wait = (key(), option(any::<u64>().prop_map(Millis))).prop_map(|(key, deadline)| Wait {
        key,
        kind: WaitKind::Event,
        deadline,
    });
    prop_oneof![
        (option(text()), option(node())).prop_map(|(key, forked_from)| Fact::Opened { key, forked_from }),
        (text(), option(node())).prop_map(|(head, to)| Fact::HeadMoved { head, to }),
        (parts(), option(text()), delivery).prop_map(|(parts, key, delivery)| Fact::Accepted(Accepted {
            parts,
            key,
            delivery,
            package: None
        })),
        (any::<u32>(), hash(), text(), option(node())).prop_map(|(kernel, package, head, parent)| {
            Fact::Started(Started { kernel, package, head, parent })
        }),
        (key(), vec(batch_call(), 0..4))
            .prop_map(|(key, calls)| { Fact::Asked(Asked { key, command: ToolBatch { calls }.into() }) }),
        (claim(), outcome)
            .prop_map(|(claim, outcome)| Fact::Answered(Answered { claim, outcome: outcome.into() })),
        (key(), asked_and_answered())
            .prop_map(|(key, (command, outcome))| { Fact::Performed(Performed { key, command, outcome }) }),
        (claim(), any::<u32>()).prop_map(|(claim, attempt)| Fact::Reclaimed(Reclaimed { claim, attempt })),
        vec(wait, 0..3).prop_map(|waits| Fact::Parked { waits }),
        failure().prop_map(|failure| Fact::Stuck { failure }),
        (key(), resolution()).prop_map(|(key, resolution)| Fact::Resolved { key, resolution }),
        text().prop_map(|reason| Fact::CancelRequested { reason }),
        vec((tool_use(), any::<bool>()), 0..3).prop_map(|calls| Fact::Repaired {
            calls: calls.into_iter().map(|(ask, restored)| RepairedCall { call: ask.id, restored }).collect()
        }),
        (claim(), verdict).prop_map(|(claim, verdict)| Fact::Settled(Settled { claim, verdict })),
        end().prop_map(|end| Fact::Ended { end }),
    ]
}

proptest! {
    #[test]
    fn canonical_json_is_its_own_canonical_form(value in json_value()) {
        let once = canon::to_string(&value);
        let read: Value = serde_json::from_str(&once).unwrap();
        prop_assert_eq!(canon::to_string(&read), once);
    }

    #[test]
    fn canonical_json_does_not_depend_on_order_or_spaces(value in json_value()) {
        let other: Value = serde_json::from_str(&backwards(&value)).unwrap();
        prop_assert_eq!(canon::fingerprint(&other), canon::fingerprint(&value));
    }

    #[test]
    fn two_integers_never_share_a_canonical_form(a in any::<u64>(), b in any::<u64>(), c in any::<i64>()) {
        prop_assert_eq!(canon::to_string(&a) == canon::to_string(&b), a == b);
        prop_assert_eq!(canon::to_string(&a) == canon::to_string(&c), i128::from(a) == i128::from(c));
    }

    #[test]
    fn a_record_reads_back_as_it_was_written(fact in fact()) {
        let body = fact.encode();
        prop_assert_eq!(Fact::decode(&body).unwrap(), fact);
    }

    #[test]
    fn bytes_from_anywhere_are_a_fact_or_an_error(bytes in vec(any::<u8>(), 0..64), fact in fact(), at in any::<usize>()) {
        let _ = Fact::decode(&bytes);
        let mut damaged = fact.encode();
        let at = at % damaged.len();
        damaged[at] ^= 1 << (at % 8);
        // What still reads has one meaning: it is written and read again without a change.
        if let Ok(read) = Fact::decode(&damaged) {
            prop_assert_eq!(Fact::decode(&read.encode()).unwrap(), read);
        }
    }
}
