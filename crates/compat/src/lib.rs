//! APIs of other providers on top of sessions: each agent is a model, and each answer is part of a durable
//! turn.
//!
//! The server mounts [`routes`] and wraps all its routes in [`format_errors`]. The APIs share these modules:
//!
//! - `response_segment`: segments of a turn. Between two segments, the client runs its own tools.
//! - `segment_projector` and `segment_event`: convert the events of a turn to the events of one segment.
//! - `segment_answer` and `stream`: return an answer as a whole, or stream it.
//! - `compat_request`: a request in the form that all APIs share, and how it starts a segment.
//! - `content`, `conversation_items` and `follow_up`: the parts of a request.
//! - `input_submission` and `session_match`: find the session or turn of a request.
//! - `idempotency`: what an idempotency key covers.
//! - `compat_error`: errors.
//!
//! `openai` and `anthropic` convert between these and the formats of their APIs.

mod answer_delivery;
mod anthropic;
mod compat_error;
mod compat_request;
mod content;
mod conversation_items;
mod follow_up;
mod idempotency;
mod input_submission;
mod openai;
mod repeat;
mod response_segment;
mod segment_answer;
mod segment_event;
mod segment_projector;
mod segment_reader;
mod session_match;
mod stream;
mod text_pieces;

pub use compat_error::{format_errors, is_compat_path};

use outlast_http::HttpState;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// The schemas of errors. Every route refers to them by name.
#[derive(OpenApi)]
#[openapi(components(schemas(openai::error::OpenAiError, anthropic::error::AnthropicError)))]
struct ErrorSchemas;

/// Returns the routes of all compatible APIs.
pub fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::with_openapi(ErrorSchemas::openapi()).merge(openai::routes()).merge(anthropic::routes())
}
