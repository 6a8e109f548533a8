//! `/v1/sessions/{session}/context`: the messages that a model would get now, and their size in tokens.
use crate::server_state::ServerState;
use axum::Json;
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::branches::MAIN_HEAD;
use outlast_runtime::views::context_usage::{ContextUsage, tokens, who};
use outlast_vocab::SessionId;
use outlast_vocab::effect::Usage;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The number of characters that are shown of a message by default.
const EXCERPT_CHARS: usize = 200;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The messages that a model would get now, and their size.
#[derive(Serialize, ToSchema)]
#[schema(as = Context)]
pub(crate) struct ContextResource {
    /// The approximate number of tokens in total. One token is counted per four bytes.
    tokens: usize,
    /// The tokens of each part, largest first.
    parts: Vec<ContextPart>,
    /// The messages, in order.
    messages: Vec<ContextMessage>,
    /// The number of files in the messages. Files are not included in `tokens`.
    files: usize,
    /// How often older messages were compacted.
    compactions: usize,
    /// The tokens that the last model call used. Absent if there was no model call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    last_usage: Option<Usage>,
}

/// The tokens of one part of the context.
#[derive(Serialize, ToSchema)]
pub(crate) struct ContextPart {
    /// `user`, `assistant`, or the name of the tool that returned the results.
    who: String,
    /// The approximate number of tokens.
    tokens: usize,
}

/// A message of the context.
#[derive(Serialize, ToSchema)]
pub(crate) struct ContextMessage {
    /// `user`, `assistant`, or the name of the tool that returned the result.
    who: String,
    /// The approximate number of tokens.
    tokens: usize,
    /// The text of the message: its first 200 characters, or all of it with `whole`.
    text: String,
}

impl ContextResource {
    /// Converts a ledger, with at most `letters` characters of each message.
    fn of(ledger: &ContextUsage, letters: usize) -> Self {
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
        Self { tokens, parts, messages, files, compactions, last_usage }
    }
}

/// Parameters of the context.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ContextParams {
    /// The head to read. Defaults to the main head.
    head: Option<String>,
    /// Whether to return the whole text of each message instead of its start. Defaults to `false`.
    #[serde(default)]
    whole: bool,
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
    Ok(Json(ContextResource::of(&ledger, if whole { usize::MAX } else { EXCERPT_CHARS })))
}
