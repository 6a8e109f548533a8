//! Conversations: each is a session.
use super::error::OpenAiErrors;
use super::object::{Asked as Response, conversation_id, input_items, seconds};
use super::params::read;
use super::responses::{Page, no_conversation, session_of};
use crate::caller::{Caller, Operates, Reads, Runs};
use crate::extract::{Asked, At, Said};
use crate::shared::Shared;
use crate::wire::gather::Gathered;
use crate::wire::hearing::Past;
use crate::wire::leg::Leg;
use crate::wire::refusal::{Answer, Refusal};
use axum::Json;
use axum::extract::State;
use outlast_ports::store::SessionView;
use outlast_runtime::Runtime;
use outlast_vocab::{Error, Kind, SessionId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::str::FromStr;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Turns whose items are shown.
const TURNS: usize = 1_000;

/// These routes.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
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

/// A conversation to be opened.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CreateConversation {
    /// Not taken: send them with the first response.
    #[schema(value_type = Option<Vec<Object>>)]
    items: Option<Vec<Value>>,
    /// Not taken, unless it is empty: a session keeps none.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// Opens a session, as a conversation.
#[utoipa::path(post, path = "/openai/v1/conversations", tag = "openai", operation_id = "openai_create_conversation",
    request_body = CreateConversation,
    responses((status = 200, description = "The conversation.", body = Object), OpenAiErrors),
    security(("key" = ["run"])))]
async fn create(caller: Caller<Runs>, Said(body): Said<Value>) -> Answer<Json<Value>> {
    let CreateConversation { items, metadata } = read(body, "")?;
    if items.is_some_and(|items| !items.is_empty()) {
        return Err(Refusal::unsupported("items", "send them with the first response of the conversation"));
    }
    if metadata.is_some_and(|metadata| !metadata.is_empty()) {
        return Err(Refusal::unsupported("metadata", "a session keeps none; send it with a response"));
    }
    let session = caller.runtime.open_session(None).await?;
    Ok(Json(object(&found(&caller.runtime, session).await?)))
}

fn object(session: &SessionView) -> Value {
    json!({
        "id": conversation_id(session.id),
        "object": "conversation",
        "created_at": seconds(session.created),
        "metadata": {},
    })
}

async fn found(runtime: &Runtime, id: SessionId) -> Result<SessionView, Error> {
    runtime.store().session(id).await.map_err(|error| named(error, id))
}

/// An error in the words of this wire.
fn named(error: Error, id: SessionId) -> Error {
    if error.kind() == Kind::SessionNotFound { no_conversation(&conversation_id(id)) } else { error }
}

/// One conversation.
#[utoipa::path(get, path = "/openai/v1/conversations/{conversation}", tag = "openai",
    operation_id = "openai_conversation", params(("conversation" = String, Path)),
    responses((status = 200, description = "The conversation.", body = Object), OpenAiErrors),
    security(("key" = ["read"])))]
async fn show(caller: Caller<Reads>, At(ConversationId(id)): At<ConversationId>) -> Answer<Json<Value>> {
    Ok(Json(object(&found(&caller.runtime, id).await?)))
}

/// Deletes the session of a conversation, with everything only it uses.
#[utoipa::path(delete, path = "/openai/v1/conversations/{conversation}", tag = "openai",
    operation_id = "openai_delete_conversation", params(("conversation" = String, Path)),
    responses((status = 200, description = "It is gone.", body = Object), OpenAiErrors),
    security(("key" = ["operate"])))]
async fn delete(caller: Caller<Operates>, At(ConversationId(id)): At<ConversationId>) -> Answer<Json<Value>> {
    let runtime = &caller.runtime;
    runtime.store().delete(id, runtime.now()).await.map_err(|error| named(error, id))?;
    Ok(Json(json!({ "id": conversation_id(id), "object": "conversation.deleted", "deleted": true })))
}

/// What was said in a conversation, over all its turns.
#[utoipa::path(get, path = "/openai/v1/conversations/{conversation}/items", tag = "openai",
    operation_id = "openai_conversation_items", params(("conversation" = String, Path), Page),
    responses((status = 200, description = "The items.", body = Object), OpenAiErrors),
    security(("key" = ["read"])))]
async fn items(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(ConversationId(id)): At<ConversationId>,
    Asked(page): Asked<Page>,
) -> Answer<Json<Value>> {
    let runtime = &caller.runtime;
    found(runtime, id).await?;
    let mut items = Vec::new();
    for turn in runtime.store().turns(id, 0, TURNS).await? {
        let mut leg = Leg::first(turn.id);
        while let Some(past) = Past::of(runtime, leg).await? {
            let response = Response::of(leg, &past);
            items.extend(input_items(&response, &past));
            let gathered = Gathered::of(&past.told);
            items.extend(gathered.items.iter().enumerate().map(|(index, item)| response.item(index, item)));
            leg.number += 1;
        }
    }
    Ok(Json(page.of(items, &shared)?))
}
