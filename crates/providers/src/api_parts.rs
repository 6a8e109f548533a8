//! Parts that the APIs share: names and ids, streamed calls, attachments and schemas.
pub(crate) mod attachment_parts;
pub(crate) mod signatures;
pub(crate) mod streaming_calls;
pub(crate) mod strict_schema;
pub(crate) mod tool_names;

use crate::api_error::ProviderLabel;
use crate::model_table::ModelTraits;
use outlast_ports::model::ModelRequest;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Hash};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::VecDeque;
use tool_names::ApiToolNames;

/// A request to one API.
#[derive(Clone, Copy)]
pub(crate) struct ApiRequest<'a> {
    /// The request.
    pub(crate) request: ModelRequest<'a>,
    /// The provider.
    pub(crate) provider: ProviderLabel<'a>,
    /// The provider's own name of the model.
    pub(crate) model: &'a str,
    /// The properties of the model.
    pub(crate) traits: ModelTraits,
    /// Whether this is the API of its maker and not a compatible server.
    pub(crate) is_vendor_api: bool,
    /// The names of tools in the API.
    pub(crate) names: &'a ApiToolNames<'a>,
}

impl ApiRequest<'_> {
    /// Returns a schema in the form that the server accepts.
    pub(crate) fn schema(&self, schema: &Value) -> Value {
        if self.is_vendor_api {
            strict_schema::without_metadata(schema)
        } else {
            strict_schema::with_types(schema)
        }
    }
}

/// A rendered request.
pub(crate) struct RenderedRequest {
    /// The body.
    pub(crate) body: Vec<u8>,
    /// The parts that a provider's cache depends on, in order: tools, system prompt, messages.
    pub(crate) prefix: Vec<PromptItem>,
    /// The information needed to decode the reply.
    pub(crate) decode_settings: DecodeSettings,
}

/// The information needed to decode a reply.
#[derive(Default)]
pub(crate) struct DecodeSettings {
    /// Text that was withheld from the model because the API rejects it. The model may repeat it.
    pub(crate) withheld: String,
    /// The tool whose arguments are the answer, if the API has no other way to enforce a schema.
    pub(crate) answer_tool: Option<String>,
}

/// A part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PromptItem {
    /// Its position.
    pub(crate) position: PromptPosition,
    /// The hash of its content.
    pub(crate) hash: Hash,
}

/// The position of a part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptPosition {
    /// The tools.
    Tools,
    /// The system prompt.
    System,
    /// A message, counted from 1 in the order of the request.
    Message(usize),
}

/// Renders a part of a body once.
pub(crate) fn raw_json(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what is sent is plain data")
}

/// Returns the parts that a provider's cache depends on.
pub(crate) fn cache_prefix(
    tools: Option<&RawValue>,
    system: Option<&RawValue>,
    messages: &[Box<RawValue>],
) -> Vec<PromptItem> {
    let item = |place, part: &RawValue| PromptItem { position: place, hash: Hash::of(part.get().as_bytes()) };
    let head = tools.map(|part| item(PromptPosition::Tools, part));
    let system = system.map(|part| item(PromptPosition::System, part));
    let messages = messages.iter().zip(1..).map(|(part, number)| item(PromptPosition::Message(number), part));
    head.into_iter().chain(system).chain(messages).collect()
}

/// Converts the events of an API to model events.
pub(crate) trait ReplyDecoder: Send {
    /// Handles an event.
    fn event(&mut self, name: Option<&str>, data: &str, out: &mut PendingEvents) -> Result<(), Error>;

    /// Handles the end of the body. A complete reply without an explicit end is ended here; any other was cut.
    fn close(&mut self, out: &mut PendingEvents);
}

/// Events that wait to be read.
pub(crate) type PendingEvents = VecDeque<ModelEvent>;

/// Emits text, unless it is empty.
pub(crate) fn push_text(text: &str, out: &mut PendingEvents) {
    if !text.is_empty() {
        out.push_back(ModelEvent::Text(text.to_owned()));
    }
}

/// Emits reasoning, unless it is empty.
pub(crate) fn push_reasoning(text: &str, out: &mut PendingEvents) {
    if !text.is_empty() {
        out.push_back(ModelEvent::Reasoning { text: text.to_owned(), signature: None });
    }
}

#[cfg(test)]
mod tests {
    use super::tool_names::tests::contract;
    use super::*;
    use crate::{Api, chat, gemini, messages, responses};
    use outlast_ports::model::AttachmentContents;
    use outlast_vocab::effect::{Generation, ModelCall, ToolChoice};
    use outlast_vocab::id::AttachmentId;
    use outlast_vocab::message::{
        Attachment, CallArguments, Link, LinkKind, Message, Part, ToolResult, ToolUse,
    };
    use outlast_vocab::{Failure, Kind};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    /// Generates text with characters that JSON escapes.
    fn text() -> impl Strategy<Value = String> {
        "[a\"\\\\\u{1}\n\tä]{0,20}"
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec((text(), inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({})),
            Just(json!(true)),
            Just(json!({ "type": "string" })),
            Just(json!({ "type": ["integer", "null"], "minimum": 0 })),
            text().prop_map(|text| json!({ "description": text })),
        ];
        let object = |properties: Vec<(String, Value)>| {
            let names: Vec<String> = properties.iter().map(|(name, _)| name.clone()).collect();
            let properties = Value::Object(properties.into_iter().collect());
            json!({ "type": "object", "properties": properties, "required": names })
        };
        let part = leaf.prop_recursive(2, 8, 3, move |inner| {
            prop_oneof![
                vec(("[a-z\"]{1,9}", inner.clone()), 0..4).prop_map(object),
                inner.prop_map(|items| json!({ "type": "array", "items": items })),
            ]
        });
        vec(("[a-z]{1,9}", part), 0..4).prop_map(object)
    }

    fn attachment(content: Hash) -> impl Strategy<Value = Part> {
        let types = prop::sample::select(vec!["image/png", "application/pdf", "text/plain", "audio/wav"]);
        (types, prop::option::of(text()), any::<bool>()).prop_map(move |(media_type, name, there)| {
            let media_type = media_type.to_owned().try_into().unwrap();
            let content = if there { content } else { Hash::ZERO };
            Part::Attachment {
                attachment: Attachment { id: AttachmentId::from_u128(1), content, media_type, name },
            }
        })
    }

    fn link() -> impl Strategy<Value = Part> {
        let kind = prop::sample::select(vec![LinkKind::Image, LinkKind::File]);
        (text(), kind, prop::option::of(text()), prop::option::of(text()))
            .prop_map(|(url, kind, name, detail)| Part::Link { link: Link { url, kind, name, detail } })
    }

    fn part(content: Hash) -> impl Strategy<Value = Part> {
        prop_oneof![
            text().prop_map(Part::text),
            (text(), prop::option::of(text())).prop_map(|(text, proof)| Part::Reasoning {
                text,
                signature: proof.map(|proof| signatures::tag_signature("p", &proof))
            }),
            value().prop_map(|data| Part::Sealed { provider: "p".to_owned(), data }),
            value().prop_map(|item| Part::Sealed { provider: "p".to_owned(), data: json!({ "item": item }) }),
            attachment(content),
            text().prop_map(|text| Part::Instruction { text }),
            link(),
        ]
    }

    fn message(content: Hash) -> impl Strategy<Value = Message> {
        let id = || "[a\"]{1,9}".prop_map(|id| id.parse().unwrap());
        let tool =
            || prop::sample::select(vec!["pay", "bank.pay", "gone"]).prop_map(|tool| tool.parse().unwrap());
        let arguments =
            prop_oneof![value().prop_map(CallArguments::Json), text().prop_map(CallArguments::Broken)];
        let asked =
            (id(), tool(), arguments, prop::option::of(text())).prop_map(|(id, tool, arguments, proof)| {
                ToolUse {
                    signature: proof.map(|proof| signatures::tag_signature("p", &proof)),
                    ..ToolUse::new(id, tool, arguments)
                }
            });
        let failed = |text: String| ToolResult::Err(Failure::new(Kind::ToolFailed, text));
        let result = prop_oneof![value().prop_map(ToolResult::Ok), text().prop_map(failed)];
        prop_oneof![
            vec(part(content), 0..4).prop_map(|parts| Message::User { parts }),
            (vec(part(content), 0..4), vec(asked, 0..3))
                .prop_map(|(parts, calls)| Message::Assistant { parts, calls }),
            (id(), tool(), result).prop_map(|(call, tool, result)| Message::Tool { call, tool, result }),
        ]
    }

    proptest! {
        /// What is reserved for reading a request is what the bytes of its body bound.
        #[test]
        fn request_never_exceeds_its_estimated_size(
            content in vec(prop_oneof![Just(1_u8), Just(b'"'), any::<u8>()], 0..40),
            seed in vec(message(Hash::ZERO), 0..1),
            system in text(),
            said in text(),
            schemas in vec((text(), schema()), 0..3),
            output in prop::option::of(schema()),
            variant in prop::option::of(Just("high".to_owned())),
            at_home in any::<bool>(),
            turn in vec(message(Hash::of(b"\"\"\n")), 0..5),
        ) {
            let mut files = AttachmentContents::default();
            files.insert(Hash::of(b"\"\"\n"), content.into());
            let history = seed;
            let tools: Vec<_> = schemas
                .into_iter()
                .zip(["pay", "bank.pay", "bank_pay"])
                .map(|((text, input), name)| outlast_vocab::tool::ToolContract { description: text, ..contract(name, input) })
                .collect();
            let call = ModelCall {
                model: "p/claude-sonnet-4-5".parse().unwrap(),
                at: None,
                tools: Hash::ZERO,
                choice: ToolChoice::Only("pay".parse().unwrap()),
                options: Generation {
                    tokens_most: Some(u32::MAX),
                    temperature_milli: Some(250),
                    variant,
                    ..Generation::default()
                },
                output,
            };
            let request = ModelRequest {
                system: &system,
                history: &history,
                turn: &turn,
                tools: &tools,
                files: &files,
                partial_text: &said,
                ..ModelRequest::empty(&call)
            };
            let names = ApiToolNames::of(&tools);
            let traits = ModelTraits {
                window_tokens: 1,
                reply_tokens: None,
                prices: None,
                thinks: true,
                supports_prefill: true,
            };
            for api in Api::ALL {
                let provider = ProviderLabel { name: "p", api: *api, key: "k", model: "m", windows: None };
                let ask = ApiRequest { request, provider, model: "claude-sonnet-4-5", traits, is_vendor_api: at_home, names: &names };
                let body = match api {
                    Api::OpenAi | Api::OpenAiCompatible => chat::render(&ask).body,
                    Api::OpenAiResponses => responses::render(&ask).body,
                    Api::Anthropic => messages::render(&ask).body,
                    Api::Gemini => gemini::render(&ask).body,
                };
                // Small attachments are counted with more than their size.
                prop_assert!(body.len() <= request.bytes_max(), "{} bytes for {api:?}", body.len());
            }
        }
    }
}
