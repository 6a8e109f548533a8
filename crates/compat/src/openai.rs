//! The OpenAI-compatible API: Chat Completions, Responses, conversations and models, under `/openai/v1`.
mod chat;
mod conversations;
pub(crate) mod error;
mod input_parser;
mod models;
pub(crate) mod params;
mod response_object;
mod response_stream;
mod responses;

use outlast_http::HttpState;
use utoipa_axum::router::OpenApiRouter;

/// Returns the routes of this API.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new()
        .merge(models::routes())
        .merge(chat::routes())
        .merge(responses::routes())
        .merge(conversations::routes())
}
