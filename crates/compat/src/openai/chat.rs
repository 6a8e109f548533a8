//! Chat Completions. Its clients send the whole conversation with every request.
//!
//! If the messages match a session, the conversation continues there. Otherwise, a new session starts with
//! them ([`crate::session_match`]).
use super::error::{self, OpenAiErrors};
use super::input_parser::said;
use super::params::{check_choice, check_rest, format, function, read};
use super::response_object::seconds;
use crate::compat_error::{CompatError, CompatResult, ErrorContents};
use crate::compat_request::{CompatApi, CompatRequest};
use crate::content::MessageContent;
use crate::conversation_items::ConversationItems;
use crate::idempotency::{CompatHeaders, request_headers};
use crate::input_submission::{InputDestination, StartedSegment};
use crate::response_segment::ResponseSegment;
use crate::segment_answer::{BETWEEN_TEXTS, SegmentAnswer};
use crate::segment_event::{ClientCall, SegmentEvent, SegmentEventKind, SegmentOutcome};
use crate::stream::{self, StreamFormat, StreamLine};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use outlast_http::HttpState;
use outlast_http::caller::{Caller, Runs};
use outlast_http::extract::JsonBody;
use outlast_http::open_requests::DeliveredEnd;
use outlast_vocab::TurnId;
use outlast_vocab::effect::Usage;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::message::shown;
use outlast_vocab::tool::ClientTool;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The prefix of completion ids.
const COMPLETION: &str = "chatcmpl-";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new().routes(routes!(create))
}

/// A request for a chat completion. Parameters that are not listed here are rejected if they would change the
/// answer.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CreateCompletion {
    /// The name of the agent that answers.
    model: String,
    /// The conversation. Tool results (role `tool`) at its end continue the turn that requested them.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Map<String, Value>>,
    /// Functions that the client runs.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Map<String, Value>>>,
    /// How the model chooses tools. Only `auto` is supported.
    tool_choice: Option<Value>,
    /// Whether the model may request several calls at once. `false` is not supported together with `tools`.
    parallel_tool_calls: Option<bool>,
    /// The format of the answer: `text`, `json_object` or `json_schema`.
    response_format: Option<Value>,
    /// Whether to stream chunks. Defaults to `false`.
    stream: Option<bool>,
    /// Options of the stream. Only `include_usage` has an effect.
    #[schema(value_type = Option<Object>)]
    stream_options: Option<Map<String, Value>>,
    /// Metadata that is stored with the turn.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Other parameters. They are rejected unless they have no effect on the answer.
    #[serde(flatten)]
    #[schema(ignore)]
    rest: Map<String, Value>,
}

/// Create a chat completion.
///
/// The input is durable before the response starts, and the turn continues if the client disconnects.
/// Requests with the same `Idempotency-Key` share one turn.
#[utoipa::path(post, path = "/openai/v1/chat/completions", tag = "openai", operation_id = "openai_create_completion",
    params(("idempotency-key" = Option<String>, Header, description = "Requests with the same key return the same completion."),
        ("outlast-repeat" = Option<String>, Header, description = "`never` starts a new turn, even if the request repeats an earlier one.")),
    request_body = CreateCompletion,
    responses((status = 200, description = "The completion, or a stream of its chunks.",
        content((Object = "application/json"), (String = "text/event-stream"))), OpenAiErrors),
    security(("key" = ["run"])))]
async fn create(
    caller: Caller<Runs>,
    State(shared): State<HttpState>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Value>,
) -> CompatResult<Response> {
    let headers = request_headers(&headers, CompatApi::ChatCompletions, &body)?;
    let request: CreateCompletion = read(body)?;
    check_rest(&request.rest)?;
    let streams = request.stream == Some(true);
    let with_usage = request
        .stream_options
        .as_ref()
        .is_some_and(|options| options.get("include_usage") == Some(&json!(true)));
    let open = streams.then(|| shared.streams.open(caller.runtime.access(), &shared.limits)).transpose()?;
    let model = request.model.clone();
    let request = request.into_compat_request(headers, &shared.limits)?;
    let StartedSegment { segment, reader, delivery } = request.start(&shared, &caller.runtime).await?;
    let completion = ChatCompletion { segment, model };
    if let Some(open) = open {
        let chunks = CompletionStream { completion, with_usage, texts: 0, calls: 0 };
        return Ok(stream::response(&shared, open, reader, Some(delivery), chunks));
    }
    let answer = SegmentAnswer::complete(reader, segment, &shared).await;
    Ok(delivery.respond(answer.and_then(|answer| completion.whole(&answer)), DeliveredEnd::Answer))
}

impl CreateCompletion {
    fn into_compat_request(
        self,
        headers: CompatHeaders,
        limits: &ServerLimits,
    ) -> CompatResult<CompatRequest> {
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        check_choice(self.tool_choice.as_ref(), self.parallel_tool_calls, has_tools)?;
        let output = match &self.response_format {
            None | Some(Value::Null) => None,
            Some(said) => format(said, |said| said["json_schema"]["schema"].clone(), "response_format")?,
        };
        let client_tools = self.functions()?;
        let mut items = ConversationItems::default();
        for (index, message) in self.messages.iter().enumerate() {
            read_message(message, &format!("messages[{index}]"), &mut items)?;
        }
        let note = self.metadata.map(|metadata| json!({ "model": &self.model, "metadata": metadata }));
        Ok(CompatRequest {
            api: CompatApi::ChatCompletions,
            agent: Some(self.model),
            items,
            client_tools,
            output,
            note,
            destination: InputDestination::Matched,
            provider_wait_s: Some(limits.wire_provider_wait_s()),
            headers,
        })
    }

    fn functions(&self) -> CompatResult<Vec<ClientTool>> {
        let mut functions = Vec::new();
        for (index, tool) in self.tools.iter().flatten().enumerate() {
            let place = format!("tools[{index}]");
            let Some(Value::Object(said)) = tool.get("function") else {
                let kind = tool.get("type").and_then(Value::as_str).unwrap_or_default();
                let why = format!("only functions of the client are supported, not `{}`", shown(kind));
                return Err(CompatError::unsupported(format!("{place}.type"), why));
            };
            functions.push(function(said, &format!("{place}.function"))?);
        }
        Ok(functions)
    }
}

fn read_message(message: &Map<String, Value>, place: &str, into: &mut ConversationItems) -> CompatResult<()> {
    let member = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let content = message.get("content").filter(|content| !content.is_null());
    let said = content.map(|content| said(content, &format!("{place}.content"))).transpose()?;
    match member("role") {
        "tool" => {
            let texts = said.unwrap_or_default().into_iter();
            let texts = texts.map(|piece| piece.into_text(&format!("{place}.content")));
            let result = Value::String(texts.collect::<CompatResult<Vec<String>>>()?.concat());
            into.add_result(member("tool_call_id"), result, &format!("{place}.tool_call_id"))
        }
        role => {
            let calls =
                message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if !calls.is_empty() && role != "assistant" {
                return Err(CompatError::invalid_param(
                    format!("{place}.tool_calls"),
                    "only the assistant asks for tools",
                ));
            }
            match said {
                Some(said) if !is_empty_content(&said) || calls.is_empty() => {
                    into.add_message(role, said, place)?;
                }
                None if calls.is_empty() && role != "assistant" => {
                    return Err(CompatError::invalid_param(
                        format!("{place}.content"),
                        "expected a text, got nothing",
                    ));
                }
                _ => into.add_silent_reply(),
            }
            for (index, call) in calls.iter().enumerate() {
                let of = |name: &str| call["function"][name].as_str().unwrap_or_default();
                let place = format!("{place}.tool_calls[{index}]");
                into.add_call(call["id"].as_str().unwrap_or_default(), of("name"), of("arguments"), &place)?;
            }
            Ok(())
        }
    }
}

fn is_empty_content(said: &[MessageContent]) -> bool {
    said.iter().all(|piece| matches!(piece, MessageContent::Text(text) if text.is_empty()))
}

/// The fields of a completion that do not depend on its outcome.
struct ChatCompletion {
    segment: ResponseSegment,
    model: String,
}

impl ChatCompletion {
    fn base_fields(&self, object: &str) -> Value {
        json!({
            "id": self.segment.id(COMPLETION), "object": object, "created": seconds(self.segment.created()), "model": self.model,
            "service_tier": "default", "system_fingerprint": null,
        })
    }

    fn whole(&self, answer: &SegmentAnswer) -> CompatResult<Value> {
        let Some(over) = &answer.end else { return Ok(Value::Null) };
        let reason = reason(&over.outcome, self.segment.turn)?;
        let text = answer.text();
        let calls: Vec<Value> = answer.calls().map(tool_call).collect();
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null, "annotations": [] });
        if !calls.is_empty() {
            if text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = Value::Array(calls);
        }
        let mut completion = self.base_fields("chat.completion");
        completion["choices"] =
            json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": reason }]);
        completion["usage"] = usage(&over.usage);
        Ok(completion)
    }
}

/// Returns the finish reason of a completion. Fails if the API has none for this end.
fn reason(how: &SegmentOutcome, turn: TurnId) -> CompatResult<&'static str> {
    match how {
        SegmentOutcome::Answered => Ok("stop"),
        SegmentOutcome::ClientCalls => Ok("tool_calls"),
        SegmentOutcome::Refused => Ok("content_filter"),
        SegmentOutcome::Length => Ok("length"),
        SegmentOutcome::Cancelled(failure) | SegmentOutcome::Failed(failure) => {
            Err(CompatError::ended_turn(turn, failure))
        }
    }
}

fn tool_call(call: &ClientCall) -> Value {
    let function = json!({ "name": call.tool, "arguments": call.arguments.to_string() });
    json!({ "id": call.id.to_string(), "type": "function", "function": function })
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, cache_write, output, reasoning } = *usage;
    let (read, said) = (input + cache_read + cache_write, output + reasoning);
    json!({
        "prompt_tokens": read,
        "prompt_tokens_details": { "cached_tokens": cache_read },
        "completion_tokens": said,
        "completion_tokens_details": { "reasoning_tokens": reasoning },
        "total_tokens": read + said,
    })
}

/// Converts the events of a segment to chunks.
struct CompletionStream {
    completion: ChatCompletion,
    with_usage: bool,
    texts: usize,
    calls: usize,
}

impl CompletionStream {
    fn chunk(&self, delta: &Value, reason: Option<&str>) -> StreamLine {
        let mut chunk = self.completion.base_fields("chat.completion.chunk");
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]);
        StreamLine::data(&chunk)
    }
}

impl StreamFormat for CompletionStream {
    fn opening(&mut self) -> CompatResult<Vec<StreamLine>> {
        Ok(vec![self.chunk(&json!({ "role": "assistant", "content": "" }), None)])
    }

    fn convert(&mut self, event: &SegmentEvent) -> CompatResult<Vec<StreamLine>> {
        Ok(match &event.kind {
            SegmentEventKind::TextStarted => {
                self.texts += 1;
                let between =
                    (self.texts > 1).then(|| self.chunk(&json!({ "content": BETWEEN_TEXTS }), None));
                between.into_iter().collect()
            }
            SegmentEventKind::Text(piece) => vec![self.chunk(&json!({ "content": piece }), None)],
            SegmentEventKind::Call(call) => {
                let mut said = tool_call(call);
                said["index"] = json!(self.calls);
                self.calls += 1;
                vec![self.chunk(&json!({ "tool_calls": [said] }), None)]
            }
            SegmentEventKind::Ended(over) => {
                let mut lines =
                    vec![self.chunk(&json!({}), Some(reason(&over.outcome, self.completion.segment.turn)?))];
                if self.with_usage {
                    let mut chunk = self.completion.base_fields("chat.completion.chunk");
                    (chunk["choices"], chunk["usage"]) = (json!([]), usage(&over.usage));
                    lines.push(StreamLine::data(&chunk));
                }
                lines.push(StreamLine::text("[DONE]"));
                lines
            }
            SegmentEventKind::TextCompleted(_)
            | SegmentEventKind::ToolStarted(_)
            | SegmentEventKind::ToolFinished(_) => Vec::new(),
        })
    }

    fn failure(&mut self, contents: &ErrorContents<'_>) -> StreamLine {
        StreamLine::data(&error::body(contents))
    }
}
