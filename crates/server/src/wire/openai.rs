//! The OpenAI-compatible API: Chat Completions, Responses, conversations and models, under `/openai/v1`.
mod chat;
mod conversations;
pub(crate) mod error;
mod models;
mod object;
pub(crate) mod params;
mod responses;
mod said;
mod voice;

use crate::shared::Shared;
use utoipa_axum::router::OpenApiRouter;

/// Returns the routes of this API.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .merge(models::routes())
        .merge(chat::routes())
        .merge(responses::routes())
        .merge(conversations::routes())
}
