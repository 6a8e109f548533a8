//! `/v1/sessions/{session}/messages`: what was said, page by page (R12.7).
use crate::caller::{Caller, Reads};
use crate::cursor::Cursors;
use crate::extract::{Asked, At};
use crate::page::{self, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use outlast_ports::store::MAIN;
use outlast_runtime::messages::{self, Count, Said, Until};
use outlast_vocab::message::Message as Words;
use outlast_vocab::record::{NodeRef, Seq};
use outlast_vocab::{Error, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Pages of messages that one search looks at.
const SEARCHED: usize = 20;

/// These routes.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(count))
}

/// A message.
#[derive(Serialize, ToSchema)]
pub(crate) struct Message {
    /// The session it was said in: of a fork, perhaps the one it was forked from.
    #[schema(value_type = String)]
    session: SessionId,
    /// The turn it belongs to.
    #[schema(value_type = String)]
    turn: TurnId,
    /// Its number in that session, which fork and rewind take.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When it became durable.
    #[schema(value_type = u64)]
    at: Millis,
    /// `user`, `assistant` or `tool`.
    role: String,
    /// Its text, joined.
    text: String,
    /// Everything it says: `parts` and `calls` of people and models, `call`, `tool` and `result` of tools.
    #[schema(value_type = Object)]
    content: Value,
}

impl From<Said> for Message {
    fn from(Said { session, turn, seq, at, message }: Said) -> Self {
        let text = message.text().into_owned();
        let mut content = serde_json::to_value(&message).unwrap_or_default();
        let role = content.as_object_mut().and_then(|members| members.remove("role"));
        let role = role.and_then(|role| role.as_str().map(ToOwned::to_owned)).unwrap_or_default();
        if let Words::User { .. } | Words::Assistant { .. } = message
            && let Some(parts) = content.get_mut("parts").and_then(Value::as_array_mut)
        {
            // What only its provider can read is for nobody else.
            parts.retain(|part| part["type"] != "sealed");
        }
        Self { session, turn, seq, at, role, text, content }
    }
}

/// Which messages.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Find {
    /// Of which head; of the main one without it.
    head: Option<String>,
    /// Only those that hold this text, whatever its case.
    search: Option<String>,
    /// Only those of `user`, `assistant` or `tool`.
    role: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// The messages of a head, page by page from the newest; within a page the oldest first. A page holds whole turns. The first page
/// ends with what is not finished yet.
#[utoipa::path(get, path = "/v1/sessions/{session}/messages", tag = "sessions",
    params(("session" = String, Path), Find),
    responses((status = 200, body = Page<Message>), Problems), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(id): At<SessionId>,
    Asked(find): Asked<Find>,
) -> Answer<Json<Page<Message>>> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(id).await?;
    let head = find.head.as_deref().unwrap_or(MAIN);
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "messages");
    let place = page::place(find.cursor.as_deref(), &cursors)?;
    let mut until = place.map_or(Ok(Until::Newest), |place| node(&place, id).map(Until::Message))?;
    let search = find.search.as_ref().map(|text| text.to_lowercase());
    let fits = |message: &Message| {
        search.as_ref().is_none_or(|text| message.text.to_lowercase().contains(text))
            && find.role.as_ref().is_none_or(|role| message.role == *role)
    };
    for _ in 0..SEARCHED {
        let found = messages::page(store, &session, head, until).await?;
        let said = found.turns.into_iter().flat_map(|(_, said)| said).map(Message::from);
        let items: Vec<Message> = said.filter(|message| fits(message)).collect();
        let Some(before) = found.before else { return Ok(Json(Page::whole(items))) };
        if !items.is_empty() {
            return Ok(Json(Page { items, next: Some(cursors.sign(&spelled(id, before))) }));
        }
        until = Until::Message(before);
    }
    let Until::Message(before) = until else { return Ok(Json(Page::whole(Vec::new()))) };
    Ok(Json(Page { items: Vec::new(), next: Some(cursors.sign(&spelled(id, before))) }))
}

/// Of which head.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Of {
    /// Of which head; of the main one without it.
    head: Option<String>,
}

/// How many messages there are.
#[derive(Serialize, ToSchema)]
pub(crate) struct Counted {
    /// All of them.
    all: u64,
    /// Of whoever sends inputs.
    user: u64,
    /// Of models.
    assistant: u64,
    /// Results of tools.
    tool: u64,
}

/// How many messages a head has, with what is not finished yet.
#[utoipa::path(get, path = "/v1/sessions/{session}/messages/count", tag = "sessions",
    params(("session" = String, Path), Of),
    responses((status = 200, body = Counted), Problems), security(("key" = ["read"])))]
async fn count(
    caller: Caller<Reads>,
    At(id): At<SessionId>,
    Asked(Of { head }): Asked<Of>,
) -> Answer<Json<Counted>> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(id).await?;
    let Count { user, assistant, tool } =
        messages::count(store, &session, head.as_deref().unwrap_or(MAIN)).await?;
    Ok(Json(Counted { all: user + assistant + tool, user, assistant, tool }))
}

/// A place among the messages of a session.
fn spelled(of: SessionId, NodeRef { session, seq }: NodeRef) -> String {
    format!("{of} {session} {seq}")
}

fn node(place: &str, of: SessionId) -> Result<NodeRef, Error> {
    let wrong = || Error::new(Kind::InputInvalid, "the cursor is not one of this session; begin without one");
    let mut words = place.split(' ');
    let (whose, session, seq) = (words.next(), words.next(), words.next());
    let whose: SessionId = whose.ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    if whose != of {
        return Err(wrong());
    }
    let session = session.and_then(|session| session.parse().ok()).ok_or_else(wrong)?;
    let seq = seq.and_then(|seq| seq.parse().ok()).ok_or_else(wrong)?;
    Ok(NodeRef { session, seq: Seq(seq) })
}
