//! The Responses API: a response is a segment of a durable turn, and a conversation is a session.
use super::error::OpenAiErrors;
use super::input_parser;
use super::params::{check_choice, check_rest, format, function, read};
use super::response_object::{CONVERSATION, OpenAiResponse as Response, RESPONSE, input_items};
use super::response_stream::ResponseStream;
use crate::answer_delivery::delivered_end;
use crate::compat_error::{CompatError, CompatResult};
use crate::compat_request::{CompatApi, CompatRequest};
use crate::conversation_items::ConversationItems;
use crate::idempotency::{CompatHeaders, request_headers};
use crate::input_submission::{InputDestination, StartedSegment};
use crate::response_segment::ResponseSegment;
use crate::segment_answer::SegmentAnswer;
use crate::segment_reader::{RecordedSegment, SegmentReader};
use crate::stream;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response as Reply};
use outlast_http::HttpState;
use outlast_http::caller::{Caller, Reads, Runs};
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::open_requests::DeliveredEnd;
use outlast_runtime::Runtime;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind, SessionId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::str::FromStr;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The cancellation reason of turns that are cancelled here.
const CANCELLED: &str = "cancelled over the Responses API";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show))
        .routes(routes!(cancel))
        .routes(routes!(items))
}

/// A request for a response. Parameters that are not listed here are rejected if they would change the
/// answer.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CreateResponse {
    /// The name of the agent that answers. Defaults to the server's default agent.
    model: Option<String>,
    /// The input: a text, or a list of items. Results of function calls (`function_call_output`) at its end
    /// continue the turn that requested them.
    #[serde(default)]
    input: Value,
    /// Instructions for the model in addition to those of the agent, for this turn only.
    instructions: Option<String>,
    /// Functions that the client runs.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Map<String, Value>>>,
    /// How the model chooses tools. Only `auto` is supported.
    tool_choice: Option<Value>,
    /// Whether the model may request several calls at once. `false` is not supported together with `tools`.
    parallel_tool_calls: Option<bool>,
    /// The format of the answer: a `format` of the type `text`, `json_object` or `json_schema`.
    #[schema(value_type = Option<Object>)]
    text: Option<Map<String, Value>>,
    /// Whether to stream events. Defaults to `false`.
    stream: Option<bool>,
    /// Whether to respond immediately, before the turn has ended. Defaults to `false`.
    background: Option<bool>,
    /// The id of the response that this one follows. If other responses already follow it, the new one goes
    /// to a fork of its session. Not allowed together with `conversation`.
    previous_response_id: Option<String>,
    /// The conversation: its id, or an object with an `id`. Not allowed together with `previous_response_id`.
    conversation: Option<Value>,
    /// Metadata that is returned with the response.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
    /// Other parameters. They are rejected unless they have no effect on the answer.
    #[serde(flatten)]
    #[schema(ignore)]
    rest: Map<String, Value>,
}

/// The id of a response.
pub(crate) struct ResponseId(ResponseSegment);

impl FromStr for ResponseId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        ResponseSegment::from_id(text, RESPONSE).map(Self).ok_or_else(|| no_response(text))
    }
}

fn no_response(id: &str) -> Error {
    Error::new(Kind::TurnNotFound, format!("no response has the id `{}`", shown(id)))
}

/// Returns the session of a conversation id.
pub(crate) fn session_of(id: &str) -> Option<SessionId> {
    let hex = id.strip_prefix(CONVERSATION)?;
    format!("{}_{hex}", SessionId::NOUN.prefix).parse().ok()
}

/// Create a response.
///
/// The input is durable before the response starts. Without `stream` and `background`, the response arrives
/// when the turn has ended or needs the client to run a function. After `wire_wait`, it arrives with the
/// status `in_progress`. You can read a stream again at `GET /openai/v1/responses/{response}?stream=true`,
/// even after a crash of the server.
#[utoipa::path(post, path = "/openai/v1/responses", tag = "openai", operation_id = "openai_create_response",
    params(("idempotency-key" = Option<String>, Header, description = "Requests with the same key return the same response."),
        ("outlast-repeat" = Option<String>, Header, description = "`never` starts a new turn, even if the request repeats an earlier one.")),
    request_body = CreateResponse,
    responses((status = 200, description = "The response, or a stream of its events.",
        content((Object = "application/json"), (String = "text/event-stream"))), OpenAiErrors),
    security(("key" = ["run"])))]
async fn create(
    caller: Caller<Runs>,
    State(shared): State<HttpState>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Value>,
) -> CompatResult<Reply> {
    let headers = request_headers(&headers, CompatApi::Responses, &body)?;
    let request: CreateResponse = read(body)?;
    check_rest(&request.rest)?;
    let (streams, background) = (request.stream == Some(true), request.background == Some(true));
    let open = streams.then(|| shared.streams.open(caller.runtime.access(), &shared.limits)).transpose()?;
    let request = request.into_compat_request(headers, &shared.limits)?;
    let StartedSegment { segment, mut reader, delivery } = request.start(&shared, &caller.runtime).await?;
    let past = match started_segment(&caller.runtime, segment).await {
        Ok(past) => past,
        Err(error) => return Ok(delivery.respond(Err(error), DeliveredEnd::NoAnswer)),
    };
    let response = Response::of(segment, &past);
    if let Some(open) = open {
        let events = ResponseStream::new(response, None);
        return Ok(stream::response(&shared, open, reader, Some(delivery), events));
    }
    if background {
        // The client fetches the answer by its id, so a second request is another one.
        let answer = SegmentAnswer::of(&past.segment_events);
        return Ok(delivery.respond(Ok(response.response(&answer)), DeliveredEnd::Answer));
    }
    let mut answer = SegmentAnswer::default();
    let read = answer.read_until_end(&mut reader, &shared).await.map_err(CompatError::from);
    let end = delivered_end(answer.end.as_ref());
    Ok(delivery.respond(read.map(|_| response.response(&answer)), end))
}

/// Returns the recorded part of a segment that was just started.
async fn started_segment(runtime: &Runtime, segment: ResponseSegment) -> CompatResult<RecordedSegment> {
    let past = RecordedSegment::of(runtime, segment).await?;
    past.ok_or_else(|| no_response(&segment.id(RESPONSE)).into())
}

impl CreateResponse {
    fn into_compat_request(
        self,
        headers: CompatHeaders,
        limits: &ServerLimits,
    ) -> CompatResult<CompatRequest> {
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        check_choice(self.tool_choice.as_ref(), self.parallel_tool_calls, has_tools)?;
        let note = Some(self.note());
        let destination = self.destination()?;
        let output = self.output()?;
        let client_tools = self.functions()?;
        let mut items = ConversationItems::with_instructions(self.instructions);
        input_parser::input(&self.input, &mut items)?;
        // Clients fetch background responses later, so those wait for the provider without this limit.
        let provider_wait_s = (self.background != Some(true)).then(|| limits.wire_provider_wait_s());
        Ok(CompatRequest {
            api: CompatApi::Responses,
            agent: self.model,
            items,
            client_tools,
            output,
            note,
            destination,
            provider_wait_s,
            headers,
        })
    }

    /// Returns the parameters that the response repeats.
    fn note(&self) -> Value {
        let mut note = Map::new();
        let mut keep = |name: &str, value: Option<Value>| {
            if let Some(value) = value.filter(|value| !value.is_null()) {
                note.insert(name.to_owned(), value);
            }
        };
        keep("model", self.model.clone().map(Value::String));
        keep("instructions", self.instructions.clone().map(Value::String));
        keep("tools", self.tools.as_ref().map(|tools| json!(tools)));
        keep("text", self.text.as_ref().map(|text| json!(text)));
        keep("background", self.background.map(Value::Bool));
        keep("previous_response_id", self.previous_response_id.clone().map(Value::String));
        keep("metadata", self.metadata.as_ref().map(|metadata| json!(metadata)));
        Value::Object(note)
    }

    /// Returns where the input goes.
    fn destination(&self) -> CompatResult<InputDestination> {
        let conversation = match self.conversation.as_ref() {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id.as_str()),
            Some(object) => Some(object.get("id").and_then(Value::as_str).unwrap_or_default()),
        };
        match (conversation, self.previous_response_id.as_deref()) {
            (Some(_), Some(_)) => {
                let detail = "expected `conversation` or `previous_response_id`, got both";
                Err(CompatError::invalid_param("previous_response_id", detail))
            }
            (Some(id), None) => {
                let session =
                    session_of(id).ok_or_else(|| about_param(no_conversation(id), "conversation"))?;
                Ok(InputDestination::Session(session))
            }
            (None, Some(id)) => {
                let ResponseId(segment) =
                    id.parse().map_err(|error| about_param(error, "previous_response_id"))?;
                Ok(InputDestination::After(segment))
            }
            (None, None) => Ok(InputDestination::Matched),
        }
    }

    fn output(&self) -> CompatResult<Option<Value>> {
        let Some(text) = &self.text else { return Ok(None) };
        for (name, value) in text.iter().filter(|(name, _)| *name != "format") {
            if !value.is_null() && *value != json!("medium") {
                return Err(CompatError::unsupported(format!("text.{name}"), "the agent decides it"));
            }
        }
        match text.get("format") {
            None | Some(Value::Null) => Ok(None),
            Some(said) => format(said, |said| said["schema"].clone(), "text.format"),
        }
    }

    fn functions(&self) -> CompatResult<Vec<outlast_vocab::tool::ClientTool>> {
        let mut functions = Vec::new();
        for (index, tool) in self.tools.iter().flatten().enumerate() {
            let place = format!("tools[{index}]");
            let kind = tool.get("type").and_then(Value::as_str).unwrap_or_default();
            if kind != "function" {
                let why = format!("only functions of the client are supported, not `{}`", shown(kind));
                return Err(CompatError::unsupported(format!("{place}.type"), why));
            }
            functions.push(function(tool, &place)?);
        }
        Ok(functions)
    }
}

/// Adds to an error the parameter that it is about.
fn about_param(error: Error, param: &'static str) -> CompatError {
    CompatError::from(error).about(param)
}

pub(crate) fn no_conversation(id: &str) -> Error {
    Error::new(Kind::SessionNotFound, format!("no conversation has the id `{}`", shown(id)))
}

/// Parameters for reading a response.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResponseParams {
    /// Whether to stream the events of the response, from its beginning or after the event `starting_after`.
    /// Defaults to `false`.
    stream: Option<bool>,
    /// The `sequence_number` of the last event that the client has received.
    starting_after: Option<u64>,
}

async fn recorded_segment(runtime: &Runtime, segment: ResponseSegment) -> Result<RecordedSegment, Error> {
    let missing = || no_response(&segment.id(RESPONSE));
    match RecordedSegment::of(runtime, segment).await {
        Err(error) if error.kind() == Kind::TurnNotFound => Err(missing()),
        past => past?.ok_or_else(missing),
    }
}

/// Returns a response, or a stream of its events.
#[utoipa::path(get, path = "/openai/v1/responses/{response}", tag = "openai", operation_id = "openai_response",
    params(("response" = String, Path), ResponseParams),
    responses((status = 200, description = "The response, or a stream of its events.",
        content((Object = "application/json"), (String = "text/event-stream"))), OpenAiErrors),
    security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    State(shared): State<HttpState>,
    PathParam(ResponseId(segment)): PathParam<ResponseId>,
    QueryParams(look): QueryParams<ResponseParams>,
) -> CompatResult<Reply> {
    let past = recorded_segment(&caller.runtime, segment).await?;
    let response = Response::of(segment, &past);
    if look.stream == Some(true) {
        let open = shared.streams.open(caller.runtime.access(), &shared.limits)?;
        let reader = SegmentReader::for_segment(&caller.runtime, segment).await?;
        let events = ResponseStream::new(response, look.starting_after);
        return Ok(stream::response(&shared, open, reader, None, events));
    }
    Ok(Json(response.response(&SegmentAnswer::of(&past.segment_events))).into_response())
}

/// Cancel a response that is in progress.
#[utoipa::path(post, path = "/openai/v1/responses/{response}/cancel", tag = "openai",
    operation_id = "openai_cancel_response", params(("response" = String, Path)),
    responses((status = 200, description = "The response.", body = Object), OpenAiErrors),
    security(("key" = ["run"])))]
async fn cancel(
    caller: Caller<Runs>,
    State(shared): State<HttpState>,
    PathParam(ResponseId(segment)): PathParam<ResponseId>,
) -> CompatResult<Json<Value>> {
    recorded_segment(&caller.runtime, segment).await?;
    caller.runtime.cancel(segment.turn, CANCELLED).await?;
    // The turn stops at its next step. After the timeout, the response is still in progress.
    let _ = tokio::time::timeout(shared.limits.wait_most, caller.runtime.outcome(segment.turn)).await;
    let past = recorded_segment(&caller.runtime, segment).await?;
    Ok(Json(Response::of(segment, &past).response(&SegmentAnswer::of(&past.segment_events))))
}

/// Pagination parameters.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ItemListParams {
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// `desc` for newest first, or `asc`. Defaults to `desc`.
    order: Option<String>,
    /// Return items after the item with this id.
    pub(crate) after: Option<String>,
}

impl ItemListParams {
    /// Returns whether the newest item comes first.
    pub(crate) fn newest_first(&self) -> CompatResult<bool> {
        match self.order.as_deref() {
            Some("asc") => Ok(false),
            None | Some("desc") => Ok(true),
            Some(other) => {
                let detail = format!("expected `asc` or `desc`, got `{}`", shown(other));
                Err(CompatError::invalid_param("order", detail))
            }
        }
    }

    /// Returns the maximum number of items.
    pub(crate) fn limit(&self, shared: &HttpState) -> CompatResult<usize> {
        Ok(outlast_http::list_page::page_limit(self.limit, &shared.limits)?)
    }

    /// Returns a page of these items, which are in order, as a list object.
    fn page_of(self, mut items: Vec<Value>, shared: &HttpState) -> CompatResult<Value> {
        if self.newest_first()? {
            items.reverse();
        }
        let from = match &self.after {
            None => 0,
            Some(after) => match items.iter().position(|item| item["id"] == json!(after)) {
                Some(index) => index + 1,
                None => return Err(no_item(after)),
            },
        };
        Ok(list(items.split_off(from), self.limit(shared)?))
    }
}

/// Returns the error for an unknown item in `after`.
pub(crate) fn no_item(id: &str) -> CompatError {
    CompatError::invalid_param("after", format!("no item has the id `{}`", shown(id)))
}

/// Returns a list object with the first `limit` items.
pub(crate) fn list(items: Vec<Value>, limit: usize) -> Value {
    let (has_more, data): (bool, Vec<Value>) = (items.len() > limit, items.into_iter().take(limit).collect());
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    json!({
        "object": "list", "first_id": id(data.first()), "last_id": id(data.last()), "has_more": has_more,
        "data": data,
    })
}

/// Returns the input items of a response.
#[utoipa::path(get, path = "/openai/v1/responses/{response}/input_items", tag = "openai",
    operation_id = "openai_input_items", params(("response" = String, Path), ItemListParams),
    responses((status = 200, description = "The items.", body = Object), OpenAiErrors),
    security(("key" = ["read"])))]
async fn items(
    caller: Caller<Reads>,
    State(shared): State<HttpState>,
    PathParam(ResponseId(segment)): PathParam<ResponseId>,
    QueryParams(page): QueryParams<ItemListParams>,
) -> CompatResult<Json<Value>> {
    let past = recorded_segment(&caller.runtime, segment).await?;
    let items = input_items(&Response::of(segment, &past), &past);
    Ok(Json(page.page_of(items, &shared)?))
}
