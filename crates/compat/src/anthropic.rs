//! The Anthropic-compatible API: Messages and models, under `/anthropic/v1`.
mod blocks;
pub(crate) mod error;
mod message_parser;
mod messages;
mod models;

use outlast_http::HttpState;
use utoipa_axum::router::OpenApiRouter;

/// Returns the routes of this API.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new().merge(models::routes()).merge(messages::routes())
}
