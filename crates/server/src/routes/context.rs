//! `/v1/sessions/{session}/context`: the messages that a model would get now, and their size in tokens.
use crate::caller::{Caller, Reads};
use crate::extract::{Asked, At};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use outlast_ports::store::MAIN;
use outlast_runtime::context::{Ledger, tokens, who};
use outlast_vocab::SessionId;
use outlast_vocab::effect::Usage;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The number of characters that are shown of a message by default.
const LETTERS: usize = 200;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(show))
}

/// What a model would be shown.
#[derive(Serialize, ToSchema)]
pub(crate) struct Context {
    /// Tokens of all of it, about: a token is taken for four bytes.
    tokens: usize,
    /// Tokens of each part, the largest first.
    parts: Vec<Share>,
    /// The messages, in order.
    messages: Vec<Shown>,
    /// Files among them, which are not counted.
    files: usize,
    /// How often older messages were made shorter.
    compactions: usize,
    /// What the last call of a model read and wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    last_usage: Option<Usage>,
}

/// What one part takes.
#[derive(Serialize, ToSchema)]
pub(crate) struct Share {
    /// `user`, `assistant`, or the tool whose results they are.
    who: String,
    tokens: usize,
}

/// A message, in short.
#[derive(Serialize, ToSchema)]
pub(crate) struct Shown {
    /// `user`, `assistant`, or the tool whose result it is.
    who: String,
    tokens: usize,
    /// How it begins, or all of it.
    text: String,
}

impl Context {
    /// Converts a ledger, with at most `letters` characters of each message.
    fn of(ledger: &Ledger, letters: usize) -> Self {
        let mut parts: Vec<Share> =
            ledger.by_part().into_iter().map(|(who, tokens)| Share { who: who.to_owned(), tokens }).collect();
        parts.sort_by(|a, b| b.tokens.cmp(&a.tokens).then_with(|| a.who.cmp(&b.who)));
        let shown = ledger.messages.iter().map(|message| Shown {
            who: who(message).to_owned(),
            tokens: tokens(message),
            text: message.text().chars().take(letters).collect(),
        });
        let messages = shown.collect();
        let (tokens, files) = (ledger.tokens(), ledger.files());
        let Ledger { compactions, last_usage, .. } = *ledger;
        Self { tokens, parts, messages, files, compactions, last_usage }
    }
}

/// Of which head, and how much of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Of {
    /// Of which head; of the main one without it.
    head: Option<String>,
    /// All of each message, instead of how it begins.
    #[serde(default)]
    whole: bool,
}

/// What a model would be shown of a session now, and what each part of it takes.
#[utoipa::path(get, path = "/v1/sessions/{session}/context", tag = "sessions",
    params(("session" = String, Path), Of),
    responses((status = 200, body = Context), Problems), security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    At(session): At<SessionId>,
    Asked(Of { head, whole }): Asked<Of>,
) -> Answer<Json<Context>> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(session).await?;
    let ledger = Ledger::of(store, &session, head.as_deref().unwrap_or(MAIN)).await?;
    Ok(Json(Context::of(&ledger, if whole { usize::MAX } else { LETTERS })))
}
