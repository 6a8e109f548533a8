//! `/v1/search`: full-text search of messages, in one session or in all that the caller may see.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::list_page::ListPage;
use outlast_api::messages::{SearchHit, SearchParams};
use outlast_http::caller::{Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::QueryParams;
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::journal::FeedCursor;
use outlast_ports::search::{MessageMatch, SearchQuery};
use outlast_vocab::search_terms::{EXCERPT, SearchTerms};
use outlast_vocab::{Error, Kind};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(search))
}

fn search_hit(found: &MessageMatch, wanted: &SearchTerms) -> SearchHit {
    let MessageMatch { session, turn, seq, at, is_input, text, .. } = found;
    let role = if *is_input { "user" } else { "assistant" };
    let excerpt = wanted.excerpt(text, EXCERPT);
    SearchHit { session: *session, turn: *turn, seq: *seq, at: *at, role: role.into(), excerpt }
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
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "search");
    let before = list_page::cursor_position(query.cursor.as_deref(), &cursors)?
        .map(|place| position(&place))
        .transpose()?;
    let wanted = SearchTerms::parse(&query.q)?;
    let session = query.session.as_deref().map(str::parse).transpose()?;
    let find = SearchQuery { terms: wanted.clone(), session, before, limit };
    let found = caller.runtime.store().find(find).await?;
    let next = found.last().filter(|_| found.len() == limit);
    let next = next.map(|last| cursors.sign(&last.position.0.to_string()));
    Ok(Json(ListPage { items: found.iter().map(|found| search_hit(found, &wanted)).collect(), next }))
}

fn position(place: &str) -> Result<FeedCursor, Error> {
    let wrong =
        |_| Error::new(Kind::InputInvalid, "the cursor does not belong to this list; start without a cursor");
    place.parse().map(FeedCursor).map_err(wrong)
}
