//! Generators for the parts of facts.
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{
    Attachment, CallArguments, Link, LinkKind, MediaType, Part, ToolResult, ToolUse,
};
use outlast_vocab::record::{ClaimRef, NodeRef, Seq};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Failure, Hash, Kind, ReplayKey, SessionId, TurnId};
use proptest::collection::vec;
use proptest::option::of as option;
use proptest::prelude::*;
use serde_json::Value;

pub(crate) fn json_value() -> impl Strategy<Value = Value> {
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

/// Generates a value that may be absent. `null` means absent.
pub(super) fn perhaps_json() -> impl Strategy<Value = Option<Value>> {
    option(json_value()).prop_map(|value| value.filter(|value| !value.is_null()))
}

pub(super) fn seq() -> impl Strategy<Value = Seq> {
    any::<u64>().prop_map(Seq)
}

pub(super) fn node() -> impl Strategy<Value = NodeRef> {
    (any::<u128>(), seq()).prop_map(|(session, seq)| NodeRef { session: SessionId::from_u128(session), seq })
}

pub(super) fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash::from_bytes)
}

pub(super) fn turn() -> impl Strategy<Value = TurnId> {
    any::<u128>().prop_map(TurnId::from_u128)
}

pub(super) fn claim() -> impl Strategy<Value = ClaimRef> {
    (seq(), any::<u32>()).prop_map(|(asked, child)| ClaimRef { asked, child })
}

pub(super) fn key() -> impl Strategy<Value = ReplayKey> {
    (any::<u32>(), any::<usize>(), any::<String>(), any::<String>()).prop_map(|(turn, child, call, step)| {
        let call = ReplayKey::turn(turn).tools(0).child(child, &call);
        if step.is_empty() { call.completion() } else { call.step(&step) }
    })
}

pub(super) fn failure() -> impl Strategy<Value = Failure> {
    (0..Kind::ALL.len(), any::<String>(), option(any::<String>())).prop_map(|(kind, detail, policy)| {
        Failure { policy: policy.map(Into::into), ..Failure::new(Kind::ALL[kind], detail) }
    })
}

pub(super) fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        any::<String>().prop_map(Part::text),
        (any::<String>(), option(any::<String>()))
            .prop_map(|(text, signature)| Part::Reasoning { text, signature }),
        ("[a-z]{1,9}", json_value()).prop_map(|(provider, data)| Part::Sealed { provider, data }),
        attachment().prop_map(|attachment| Part::Attachment { attachment }),
        any::<String>().prop_map(|text| Part::Instruction { text }),
        link().prop_map(|link| Part::Link { link }),
    ];
    vec(part, 0..4)
}

fn link() -> impl Strategy<Value = Link> {
    let kind = prop_oneof![Just(LinkKind::Image), Just(LinkKind::File)];
    (any::<String>(), kind, option(any::<String>()), option(any::<String>()))
        .prop_map(|(url, kind, name, detail)| Link { url, kind, name, detail })
}

fn attachment() -> impl Strategy<Value = Attachment> {
    (any::<u128>(), hash(), "[a-z]{1,9}/[a-z0-9.+-]{1,20}", option(any::<String>())).prop_map(
        |(id, content, media_type, name)| Attachment {
            id: AttachmentId::from_u128(id),
            content,
            media_type: MediaType::try_from(media_type).unwrap(),
            name,
        },
    )
}

pub(super) fn result() -> impl Strategy<Value = ToolResult> {
    prop_oneof![json_value().prop_map(ToolResult::Ok), failure().prop_map(ToolResult::Err)]
}

pub(super) fn resolution() -> impl Strategy<Value = Resolution> {
    prop_oneof![
        json_value().prop_map(Resolution::Ok),
        failure().prop_map(Resolution::Err),
        Just(Resolution::Timeout),
        Just(Resolution::Cancelled),
    ]
}

pub(super) fn tool_use() -> impl Strategy<Value = ToolUse> {
    let arguments = prop_oneof![
        json_value().prop_map(CallArguments::Json),
        any::<String>().prop_map(CallArguments::Broken)
    ];
    ("[a-z0-9_:/. ]{1,40}", "[A-Za-z0-9_.-]{1,64}", arguments, option(any::<String>())).prop_map(
        |(id, tool, arguments, signature)| ToolUse {
            id: id.parse().unwrap(),
            tool: tool.parse().unwrap(),
            arguments,
            signature,
        },
    )
}
