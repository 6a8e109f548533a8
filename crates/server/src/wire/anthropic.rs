//! The Anthropic-compatible API: Messages and models, under `/anthropic/v1`.
mod blocks;
pub(crate) mod error;
mod messages;
mod models;
mod said;

use crate::shared::Shared;
use utoipa_axum::router::OpenApiRouter;

/// Returns the routes of this API.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().merge(models::routes()).merge(messages::routes())
}
