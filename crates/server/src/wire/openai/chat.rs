//! Chat Completions. Its clients send the whole conversation with every request.
//!
//! If the messages match a session, the conversation continues there. Otherwise, a new session starts with
//! them ([`crate::wire::talk`]).
use super::error::{self, OpenAiErrors};
use super::object::seconds;
use super::params::{check_choice, check_rest, format, function, read};
use super::said::said;
use crate::caller::{Caller, Runs};
use crate::extract::Said;
use crate::inputs::Marks;
use crate::shared::Shared;
use crate::wire::beside::Names;
use crate::wire::content::Content;
use crate::wire::conversed::Conversed;
use crate::wire::gather::{BETWEEN_TEXTS, Gathered};
use crate::wire::leg::Leg;
use crate::wire::refusal::{Answer, Complaint, Refusal};
use crate::wire::sending::Sent;
use crate::wire::stream::{self, Line, Voice};
use crate::wire::talk::Talk;
use crate::wire::told::{ClientCall, How, Told, What};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use outlast_runtime::Runtime;
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
pub(crate) fn routes() -> OpenApiRouter<Shared> {
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
    params(("idempotency-key" = Option<String>, Header, description = "Requests with the same key return the same completion.")),
    request_body = CreateCompletion,
    responses((status = 200, description = "The completion, or a stream of its chunks.",
        content((Object = "application/json"), (String = "text/event-stream"))), OpenAiErrors),
    security(("key" = ["run"])))]
async fn create(
    caller: Caller<Runs>,
    State(shared): State<Shared>,
    headers: HeaderMap,
    Said(body): Said<Value>,
) -> Answer<Response> {
    let marks = Marks::of(&headers)?.of_request("openai/chat", &body);
    let request: CreateCompletion = read(body)?;
    check_rest(&request.rest)?;
    let streams = request.stream == Some(true);
    let tells_usage = request
        .stream_options
        .as_ref()
        .is_some_and(|options| options.get("include_usage") == Some(&json!(true)));
    let open = streams.then(|| shared.streams.open(caller.runtime.access(), &shared.limits)).transpose()?;
    let model = request.model.clone();
    let Sent { leg, hearing } = request.send(&caller.runtime, &shared.limits, marks).await?;
    let completion = Completion { leg, model };
    if let Some(open) = open {
        let chunks = Chunks { completion, tells_usage, texts: 0, calls: 0 };
        return Ok(stream::response(&shared, open, hearing, chunks));
    }
    let gathered = Gathered::whole(hearing, leg, &shared).await?;
    Ok(Json(completion.whole(&gathered)?).into_response())
}

impl CreateCompletion {
    async fn send(self, runtime: &Runtime, limits: &ServerLimits, marks: Marks) -> Answer<Sent> {
        check_choice(self.tool_choice.as_ref(), self.parallel_tool_calls, self.tools.is_some())?;
        let output = match &self.response_format {
            None | Some(Value::Null) => None,
            Some(said) => format(said, |said| said["json_schema"]["schema"].clone(), "response_format")?,
        };
        let client_tools = self.functions()?;
        let mut conversed = Conversed::default();
        for (index, message) in self.messages.iter().enumerate() {
            read_message(message, &format!("messages[{index}]"), &mut conversed)?;
        }
        let instructions = std::mem::take(&mut conversed.instructions);
        let brought = conversed.brought("messages")?;
        let note = self.metadata.map(|metadata| json!({ "model": &self.model, "metadata": metadata }));
        let talk = Talk {
            wire: "openai",
            agent: self.model,
            instructions,
            output,
            note,
            client_tools,
            provider_wait_s: limits.wire_provider_wait_s(),
            names: Names { input: "messages", instructions: "messages", output: "response_format" },
        };
        talk.send(runtime, brought, marks).await
    }

    fn functions(&self) -> Answer<Vec<ClientTool>> {
        let mut functions = Vec::new();
        for (index, tool) in self.tools.iter().flatten().enumerate() {
            let place = format!("tools[{index}]");
            let Some(Value::Object(said)) = tool.get("function") else {
                let kind = tool.get("type").and_then(Value::as_str).unwrap_or_default();
                let why = format!("only functions of the client are, and this is `{}`", shown(kind));
                return Err(Refusal::unsupported(format!("{place}.type"), why));
            };
            functions.push(function(said, &format!("{place}.function"))?);
        }
        Ok(functions)
    }
}

fn read_message(message: &Map<String, Value>, place: &str, into: &mut Conversed) -> Answer<()> {
    let member = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let content = message.get("content").filter(|content| !content.is_null());
    let said = content.map(|content| said(content, &format!("{place}.content"))).transpose()?;
    match member("role") {
        "tool" => {
            let texts = said.unwrap_or_default().into_iter();
            let texts = texts.map(|piece| piece.into_text(&format!("{place}.content")));
            let result = Value::String(texts.collect::<Answer<Vec<String>>>()?.concat());
            into.result(member("tool_call_id"), result, &format!("{place}.tool_call_id"))
        }
        role => {
            let calls =
                message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if !calls.is_empty() && role != "assistant" {
                return Err(Refusal::wrong(
                    format!("{place}.tool_calls"),
                    "only the assistant asks for tools",
                ));
            }
            match said {
                Some(said) if !says_nothing(&said) || calls.is_empty() => into.say(role, said, place)?,
                None if calls.is_empty() => {
                    return Err(Refusal::wrong(format!("{place}.content"), "expected a text, got nothing"));
                }
                _ => into.silent_reply(),
            }
            for (index, call) in calls.iter().enumerate() {
                let of = |name: &str| call["function"][name].as_str().unwrap_or_default();
                let place = format!("{place}.tool_calls[{index}]");
                into.call(call["id"].as_str().unwrap_or_default(), of("name"), of("arguments"), &place)?;
            }
            Ok(())
        }
    }
}

fn says_nothing(said: &[Content]) -> bool {
    said.iter().all(|piece| matches!(piece, Content::Text(text) if text.is_empty()))
}

/// The fields of a completion that do not depend on its outcome.
struct Completion {
    leg: Leg,
    model: String,
}

impl Completion {
    fn head(&self, object: &str) -> Value {
        json!({
            "id": self.leg.id(COMPLETION), "object": object, "created": seconds(self.leg.made()), "model": self.model,
            "service_tier": "default", "system_fingerprint": null,
        })
    }

    fn whole(&self, gathered: &Gathered) -> Answer<Value> {
        let Some(over) = &gathered.over else { return Ok(Value::Null) };
        let reason = reason(&over.how, self.leg.turn)?;
        let text = gathered.text();
        let calls: Vec<Value> = gathered.calls().map(tool_call).collect();
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null, "annotations": [] });
        if !calls.is_empty() {
            if text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = Value::Array(calls);
        }
        let mut completion = self.head("chat.completion");
        completion["choices"] =
            json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": reason }]);
        completion["usage"] = usage(&over.usage);
        Ok(completion)
    }
}

/// Returns the finish reason of a completion. Fails if the API has none for this end.
fn reason(how: &How, turn: TurnId) -> Answer<&'static str> {
    match how {
        How::Answered => Ok("stop"),
        How::ForClient => Ok("tool_calls"),
        How::Refused => Ok("content_filter"),
        How::Length => Ok("length"),
        How::Cancelled => Err(Refusal::cancelled(turn)),
        How::Failed(failure) => Err(Refusal::failed(turn, failure)),
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
struct Chunks {
    completion: Completion,
    tells_usage: bool,
    texts: usize,
    calls: usize,
}

impl Chunks {
    fn chunk(&self, delta: &Value, reason: Option<&str>) -> Line {
        let mut chunk = self.completion.head("chat.completion.chunk");
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]);
        Line::data(&chunk)
    }
}

impl Voice for Chunks {
    fn begins(&mut self) -> Answer<Vec<Line>> {
        Ok(vec![self.chunk(&json!({ "role": "assistant", "content": "" }), None)])
    }

    fn says(&mut self, told: &Told) -> Answer<Vec<Line>> {
        Ok(match &told.what {
            What::TextBegins => {
                self.texts += 1;
                let between =
                    (self.texts > 1).then(|| self.chunk(&json!({ "content": BETWEEN_TEXTS }), None));
                between.into_iter().collect()
            }
            What::Text(piece) => vec![self.chunk(&json!({ "content": piece }), None)],
            What::Call(call) => {
                let mut said = tool_call(call);
                said["index"] = json!(self.calls);
                self.calls += 1;
                vec![self.chunk(&json!({ "tool_calls": [said] }), None)]
            }
            What::Over(over) => {
                let mut lines =
                    vec![self.chunk(&json!({}), Some(reason(&over.how, self.completion.leg.turn)?))];
                if self.tells_usage {
                    let mut chunk = self.completion.head("chat.completion.chunk");
                    (chunk["choices"], chunk["usage"]) = (json!([]), usage(&over.usage));
                    lines.push(Line::data(&chunk));
                }
                lines.push(Line::text("[DONE]"));
                lines
            }
            What::TextEnds(_) | What::ToolBegins(_) | What::ToolEnds(_) => Vec::new(),
        })
    }

    fn fails(&mut self, complaint: &Complaint<'_>) -> Line {
        Line::data(&error::body(complaint))
    }
}
