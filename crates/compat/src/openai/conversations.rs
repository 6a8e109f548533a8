//! Conversations. Each is a session.
use super::error::OpenAiErrors;
use super::params::read;
use super::response_object::{OpenAiResponse as Response, conversation_id, input_items, seconds};
use super::responses::{ItemListParams, list, no_conversation, no_item, session_of};
use crate::compat_error::{CompatError, CompatResult};
use crate::response_segment::ResponseSegment;
use crate::segment_answer::SegmentAnswer;
use crate::segment_reader::RecordedSegment;
use axum::Json;
use axum::extract::State;
use outlast_http::HttpState;
use outlast_http::caller::{Caller, Operates, Reads, Runs};
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_runtime::Runtime;
use outlast_views::SessionView;
use outlast_vocab::{Error, Kind, SessionId, TurnId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::str::FromStr;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(show, delete)).routes(routes!(items))
}

/// The id of a conversation.
pub(crate) struct ConversationId(SessionId);

impl FromStr for ConversationId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        session_of(text).map(Self).ok_or_else(|| no_conversation(text))
    }
}

/// A conversation to create.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CreateConversation {
    /// Must be empty. Send items with the first response instead.
    #[schema(value_type = Option<Vec<Object>>)]
    items: Option<Vec<Value>>,
    /// Must be empty, because sessions store no metadata. Send it with a response instead.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Create a conversation.
///
/// A conversation is a session.
#[utoipa::path(post, path = "/openai/v1/conversations", tag = "openai", operation_id = "openai_create_conversation",
    request_body = CreateConversation,
    responses((status = 200, description = "The conversation.", body = Object), OpenAiErrors),
    security(("key" = ["run"])))]
async fn create(caller: Caller<Runs>, JsonBody(body): JsonBody<Value>) -> CompatResult<Json<Value>> {
    let CreateConversation { items, metadata } = read(body)?;
    if items.is_some_and(|items| !items.is_empty()) {
        return Err(CompatError::unsupported(
            "items",
            "send them with the first response of the conversation",
        ));
    }
    if metadata.is_some_and(|metadata| !metadata.is_empty()) {
        return Err(CompatError::unsupported(
            "metadata",
            "a session stores no metadata; send it with a response",
        ));
    }
    let session = caller.runtime.open_session(None).await?;
    Ok(Json(object(&find_conversation(&caller.runtime, session).await?)))
}

fn object(session: &SessionView) -> Value {
    json!({
        "id": conversation_id(session.id),
        "object": "conversation",
        "created_at": seconds(session.created),
        "metadata": {},
    })
}

async fn find_conversation(runtime: &Runtime, id: SessionId) -> Result<SessionView, Error> {
    runtime.store().session(id).await.map_err(|error| as_conversation_error(error, id))
}

/// Converts an error to one about a conversation.
fn as_conversation_error(error: Error, id: SessionId) -> Error {
    if error.kind() == Kind::SessionNotFound { no_conversation(&conversation_id(id)) } else { error }
}

/// Returns a conversation.
#[utoipa::path(get, path = "/openai/v1/conversations/{conversation}", tag = "openai",
    operation_id = "openai_conversation", params(("conversation" = String, Path)),
    responses((status = 200, description = "The conversation.", body = Object), OpenAiErrors),
    security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    PathParam(ConversationId(id)): PathParam<ConversationId>,
) -> CompatResult<Json<Value>> {
    Ok(Json(object(&find_conversation(&caller.runtime, id).await?)))
}

/// Delete a conversation, its session and everything that only the session uses.
#[utoipa::path(delete, path = "/openai/v1/conversations/{conversation}", tag = "openai",
    operation_id = "openai_delete_conversation", params(("conversation" = String, Path)),
    responses((status = 200, description = "The conversation was deleted.", body = Object), OpenAiErrors),
    security(("key" = ["operate"])))]
async fn delete(
    caller: Caller<Operates>,
    PathParam(ConversationId(id)): PathParam<ConversationId>,
) -> CompatResult<Json<Value>> {
    let runtime = &caller.runtime;
    runtime.store().delete(id, runtime.now()).await.map_err(|error| as_conversation_error(error, id))?;
    Ok(Json(json!({ "id": conversation_id(id), "object": "conversation.deleted", "deleted": true })))
}

/// Returns the items of a conversation, from all its turns.
#[utoipa::path(get, path = "/openai/v1/conversations/{conversation}/items", tag = "openai",
    operation_id = "openai_conversation_items", params(("conversation" = String, Path), ItemListParams),
    responses((status = 200, description = "The items.", body = Object), OpenAiErrors),
    security(("key" = ["read"])))]
async fn items(
    caller: Caller<Reads>,
    State(shared): State<HttpState>,
    PathParam(ConversationId(id)): PathParam<ConversationId>,
    QueryParams(page): QueryParams<ItemListParams>,
) -> CompatResult<Json<Value>> {
    let runtime = &caller.runtime;
    let session = find_conversation(runtime, id).await?;
    let newest_first = page.newest_first()?;
    let after = page.after.as_deref().map(|after| (after, turn_of(after)));
    let mut walk =
        TurnWalk { next: if newest_first { session.turns.checked_sub(1) } else { Some(0) }, newest_first };
    if let Some((name, turn)) = after {
        let turn = turn.ok_or_else(|| no_item(name))?;
        let view = runtime.store().turn(turn).await.map_err(|_| no_item(name))?;
        if view.session != id {
            return Err(no_item(name));
        }
        walk.next = Some(view.index);
    }
    let limit = page.limit(&shared)?;
    let mut items: Vec<Value> = Vec::new();
    let mut skips = after.map(|(name, _)| json!(name));
    while items.len() <= limit
        && let Some(index) = walk.next(session.turns)
    {
        let turns = runtime.store().turns(id, index, 1).await?;
        let Some(turn) = turns.first() else { break };
        let mut said = items_of(runtime, turn.id).await?;
        if newest_first {
            said.reverse();
        }
        if let Some(name) = skips.take() {
            let place = said.iter().position(|item| item["id"] == name);
            let place = place.ok_or_else(|| no_item(name.as_str().unwrap_or_default()))?;
            said.drain(..=place);
        }
        items.extend(said);
    }
    Ok(Json(list(items, limit)))
}

/// Iterates over the turns of a session, from either end.
struct TurnWalk {
    next: Option<u32>,
    newest_first: bool,
}

impl TurnWalk {
    fn next(&mut self, turns: u32) -> Option<u32> {
        let index = self.next.filter(|index| *index < turns)?;
        self.next = if self.newest_first { index.checked_sub(1) } else { index.checked_add(1) };
        Some(index)
    }
}

/// Returns the turn in the id of an item.
fn turn_of(item: &str) -> Option<TurnId> {
    let hex = item.split('_').nth(1)?;
    format!("{}_{hex}", TurnId::NOUN.prefix).parse().ok()
}

/// Returns the items of a turn, of all its segments.
async fn items_of(runtime: &Runtime, turn: TurnId) -> Result<Vec<Value>, Error> {
    let (mut items, mut segment) = (Vec::new(), ResponseSegment::first(turn));
    while let Some(past) = RecordedSegment::of(runtime, segment).await? {
        let response = Response::of(segment, &past);
        items.extend(input_items(&response, &past));
        let answer = SegmentAnswer::of(&past.segment_events);
        items.extend(answer.items.iter().enumerate().map(|(index, item)| response.item(index, item)));
        segment.number += 1;
    }
    Ok(items)
}
