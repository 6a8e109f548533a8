//! `/v1/sessions/{session}/messages`: the messages of a session, page by page.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::list_page::ListPage;
use outlast_api::messages::{MessageCountParams, MessageCounts, MessageParams, MessageResource};
use outlast_http::caller::{Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::branches::MAIN_HEAD;
use outlast_runtime::views::messages::{self, MessageCount, MessagePageEnd, SessionMessage};
use outlast_views::{TurnState, TurnView};
use outlast_vocab::message::{Message as Words, shown};
use outlast_vocab::record::NodeRef;
use outlast_vocab::{Error, Kind, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The maximum number of pages that one search reads.
const SEARCHED_PAGES: usize = 20;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(count))
}

fn message_resource(SessionMessage { session, turn, seq, at, message }: SessionMessage) -> MessageResource {
    let text = message.text().into_owned();
    let mut content = serde_json::to_value(&message).unwrap_or_default();
    let role = content.as_object_mut().and_then(|members| members.remove("role"));
    let role = role.and_then(|role| role.as_str().map(ToOwned::to_owned)).unwrap_or_default();
    if let Words::User { .. } | Words::Assistant { .. } = message
        && let Some(parts) = content.get_mut("parts").and_then(Value::as_array_mut)
    {
        // Sealed parts are readable only for their provider.
        parts.retain(|part| part["type"] != "sealed");
    }
    MessageResource { session, turn, seq, at, role, text, content }
}

/// The roles of messages.
const ROLES: [&str; 3] = ["user", "assistant", "tool"];

/// The position at which a page continues.
#[derive(Serialize, Deserialize)]
struct MessagePosition {
    /// The session of the cursor.
    of: SessionId,
    /// The last message of the part of the session to read. Without it, the newest message of the head.
    until: Option<NodeRef>,
    /// The oldest returned message of that part: its record, and its index in that record.
    before: Option<(NodeRef, usize)>,
}

/// Returns the messages of a head, page by page from the newest.
///
/// Within a page, the oldest message comes first. Without `limit`, a page contains whole turns. The first
/// page includes the messages of turns that have not ended.
#[utoipa::path(get, path = "/v1/sessions/{session}/messages", tag = "sessions",
    params(("session" = String, Path), MessageParams),
    responses((status = 200, body = ListPage<MessageResource>), ProblemResponses), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(id): PathParam<SessionId>,
    QueryParams(find): QueryParams<MessageParams>,
) -> ApiResult<Json<ListPage<MessageResource>>> {
    let most = find.limit.map(|limit| list_page::page_limit(Some(limit), &shared.http.limits)).transpose()?;
    if let Some(role) = find.role.as_deref().filter(|role| !ROLES.contains(role)) {
        let detail = format!("expected a `role` of {}, got `{}`", ROLES.join(", "), shown(role));
        return Err(Error::new(Kind::InputInvalid, detail).into());
    }
    let store = caller.runtime.store().as_ref();
    let session = store.session(id).await?;
    let head = find.head.as_deref().unwrap_or(MAIN_HEAD);
    let stands_at = session.heads.iter().find_map(|(name, at)| (name == head).then_some(*at)).flatten();
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "messages");
    let MessagePosition { mut until, mut before, .. } = start_position(find.cursor.as_deref(), id, &cursors)?;
    let goes_on =
        |until, before| Some(list_page::encode_cursor(&MessagePosition { of: id, until, before }, &cursors));
    let search = find.search.as_ref().map(|text| text.to_lowercase());
    let fits = |message: &MessageResource| {
        search.as_ref().is_none_or(|text| message.text.to_lowercase().contains(text))
            && find.role.as_ref().is_none_or(|role| message.role == *role)
    };
    for _ in 0..SEARCHED_PAGES {
        let found = messages::page(
            store,
            &session,
            head,
            until.map_or(MessagePageEnd::Newest, MessagePageEnd::Message),
        )
        .await?;
        let mut said = with_positions(found.turns);
        if let Some(given) = before {
            // If the message is not on this page, it is older than all of it: the session has grown since.
            let at = said.iter().position(|said| said.place == given);
            said.truncate(at.unwrap_or(0));
            before = before.filter(|_| at.is_none());
        }
        said.retain(|said| fits(&said.message));
        let more = most.and_then(|most| said.len().checked_sub(most)).filter(|more| *more > 0);
        if let Some(more) = more {
            said.drain(..more);
        }
        let next = match (more.and(said.first()), found.before) {
            // A turn that has ended keeps its place, even if the head is rewound.
            (Some(oldest), _) if oldest.ended => goes_on(until.or(stands_at), Some(oldest.place)),
            (Some(oldest), _) => goes_on(until, Some(oldest.place)),
            (None, Some(older)) => goes_on(Some(older), before),
            (None, None) => None,
        };
        if !said.is_empty() || next.is_none() {
            let items = said.into_iter().map(|said| said.message).collect();
            return Ok(Json(ListPage { items, next }));
        }
        until = found.before;
    }
    Ok(Json(ListPage { items: Vec::new(), next: goes_on(until, before) }))
}

/// A message with its position.
struct PositionedMessage {
    message: MessageResource,
    /// Its record, and its index in that record.
    place: (NodeRef, usize),
    /// Whether its turn has ended.
    ended: bool,
}

fn with_positions(turns: Vec<(TurnView, Vec<SessionMessage>)>) -> Vec<PositionedMessage> {
    let mut all: Vec<PositionedMessage> = Vec::new();
    for (turn, said) in turns {
        for said in said {
            let node = NodeRef { session: said.session, seq: said.seq };
            let number = match all.last() {
                Some(PositionedMessage { place: (last, number), .. }) if *last == node => number + 1,
                _ => 0,
            };
            let ended = turn.state == TurnState::Ended;
            all.push(PositionedMessage { message: message_resource(said), place: (node, number), ended });
        }
    }
    all
}

/// Returns the position of a cursor, or the newest message without one.
fn start_position(
    cursor: Option<&str>,
    id: SessionId,
    cursors: &CursorSigner<'_>,
) -> Result<MessagePosition, Error> {
    let place: Option<MessagePosition> = list_page::decode_cursor(cursor, cursors)?;
    let place = place.unwrap_or(MessagePosition { of: id, until: None, before: None });
    if place.of != id {
        let detail = "the cursor does not belong to this session; start without a cursor";
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    Ok(place)
}

/// Returns the number of messages of a head, including turns that have not ended.
#[utoipa::path(get, path = "/v1/sessions/{session}/messages/count", tag = "sessions",
    params(("session" = String, Path), MessageCountParams),
    responses((status = 200, body = MessageCounts), ProblemResponses), security(("key" = ["read"])))]
async fn count(
    caller: Caller<Reads>,
    PathParam(id): PathParam<SessionId>,
    QueryParams(MessageCountParams { head }): QueryParams<MessageCountParams>,
) -> ApiResult<Json<MessageCounts>> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(id).await?;
    let MessageCount { user, assistant, tool } =
        messages::count(store, &session, head.as_deref().unwrap_or(MAIN_HEAD)).await?;
    Ok(Json(MessageCounts { all: user + assistant + tool, user, assistant, tool }))
}
