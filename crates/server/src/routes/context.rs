//! `/v1/sessions/{session}/context`: the messages that a model would get now, and their size in tokens.
use crate::server_state::ServerState;
use axum::Json;
use outlast_api::context::{ContextMessage, ContextParams, ContextPart, ContextResource};
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::branches::MAIN_HEAD;
use outlast_runtime::views::context_usage::{ContextUsage, tokens, who};
use outlast_vocab::SessionId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The number of characters that are shown of a message by default.
const EXCERPT_CHARS: usize = 200;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// Describes the usage, with at most `letters` characters of each message.
fn resource(ledger: &ContextUsage, letters: usize) -> ContextResource {
    let mut parts: Vec<ContextPart> = ledger
        .by_part()
        .into_iter()
        .map(|(who, tokens)| ContextPart { who: who.to_owned(), tokens })
        .collect();
    parts.sort_by(|a, b| b.tokens.cmp(&a.tokens).then_with(|| a.who.cmp(&b.who)));
    let shown = ledger.messages.iter().map(|message| ContextMessage {
        who: who(message).to_owned(),
        tokens: tokens(message),
        text: message.text().chars().take(letters).collect(),
    });
    let messages = shown.collect();
    let (tokens, files) = (ledger.tokens(), ledger.files());
    let ContextUsage { compactions, last_usage, .. } = *ledger;
    ContextResource { tokens, parts, messages, files, compactions, last_usage }
}

/// Returns the context that a model would get now, and the tokens of each part.
#[utoipa::path(get, path = "/v1/sessions/{session}/context", tag = "sessions",
    params(("session" = String, Path), ContextParams),
    responses((status = 200, body = ContextResource), ProblemResponses), security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    PathParam(session): PathParam<SessionId>,
    QueryParams(ContextParams { head, whole }): QueryParams<ContextParams>,
) -> ApiResult<Json<ContextResource>> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(session).await?;
    let ledger = ContextUsage::of(store, &session, head.as_deref().unwrap_or(MAIN_HEAD)).await?;
    Ok(Json(resource(&ledger, if whole { usize::MAX } else { EXCERPT_CHARS })))
}
