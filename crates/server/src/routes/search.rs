//! `/v1/search`: full-text search of messages, in one session or in all that the caller may see.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_http::caller::{Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::QueryParams;
use outlast_http::list_page::{self, ListPage};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::journal::FeedCursor;
use outlast_ports::search::{MessageMatch, SearchQuery};
use outlast_vocab::record::Seq;
use outlast_vocab::search_terms::{EXCERPT, SearchTerms};
use outlast_vocab::{Error, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(search))
}

/// A search query.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParams {
    /// The words to find, ignoring case. A message must contain all of them. The last word may be a prefix.
    q: String,
    /// Only search this session.
    session: Option<String>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    cursor: Option<String>,
}

/// A message that matches the query.
#[derive(Serialize, ToSchema)]
pub(crate) struct SearchHit {
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// The sequence number of the message in its session, for fork and rewind.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When the message became durable, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
    /// `user` or `assistant`.
    role: &'static str,
    /// The text around the first match.
    excerpt: String,
}

impl SearchHit {
    fn of(found: &MessageMatch, wanted: &SearchTerms) -> Self {
        let MessageMatch { session, turn, seq, at, is_input, text, .. } = found;
        let role = if *is_input { "user" } else { "assistant" };
        Self {
            session: *session,
            turn: *turn,
            seq: *seq,
            at: *at,
            role,
            excerpt: wanted.excerpt(text, EXCERPT),
        }
    }
}

/// Search messages for words, newest first.
///
/// Searches inputs and replies of all sessions, or of one session.
#[utoipa::path(get, path = "/v1/search", tag = "sessions", params(SearchParams),
    responses((status = 200, body = ListPage<SearchHit>), ProblemResponses), security(("key" = ["read"])))]
async fn search(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(query): QueryParams<SearchParams>,
) -> ApiResult<Json<ListPage<SearchHit>>> {
    let limit = list_page::page_limit(query.limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "search");
    let before = list_page::cursor_position(query.cursor.as_deref(), &cursors)?
        .map(|place| position(&place))
        .transpose()?;
    let wanted = SearchTerms::parse(&query.q)?;
    let session = query.session.as_deref().map(str::parse).transpose()?;
    let find = SearchQuery { terms: wanted.clone(), session, before, limit };
    let found = caller.runtime.store().find(find).await?;
    let next = found.last().filter(|_| found.len() == limit);
    let next = next.map(|last| cursors.sign(&last.position.0.to_string()));
    Ok(Json(ListPage { items: found.iter().map(|found| SearchHit::of(found, &wanted)).collect(), next }))
}

fn position(place: &str) -> Result<FeedCursor, Error> {
    let wrong = |_| Error::new(Kind::InputInvalid, "the cursor is not one of this list; begin without one");
    place.parse().map(FeedCursor).map_err(wrong)
}
