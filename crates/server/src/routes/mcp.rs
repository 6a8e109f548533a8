//! `/mcp`: agents as MCP tools and sessions as MCP resources, over streamable HTTP.
//!
//! Clients authenticate as for the API. Reading needs the scope `read`, calling an agent `run`, and approving
//! `approve`.
use crate::server_state::ServerState;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use outlast_api::problem::Problem;
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::read_body;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_http::strict_json;
use outlast_mcp_server::McpCaller;
use tracing::Span;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(post_message, open_stream, end_session))
}

/// Send an MCP message.
///
/// The response is JSON or an event stream, as the protocol defines. Errors also follow the protocol once the
/// message has been parsed.
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    params(("mcp-session-id" = Option<String>, Header, description = "The id of the session that `initialize` opened.")),
    responses((status = 200, description = "The response of the protocol.",
        content((Object = "application/json"), (Object = "text/event-stream"))),
        (status = 202, description = "The message was accepted."), ProblemResponses,
        (status = 400, description = "The message is not a valid MCP message.",
            content((Problem = "application/problem+json"), (Object = "application/json"), (String = "text/plain"))),
        (status = 404, description = "The session or method does not exist.",
            content((Problem = "application/problem+json"), (Object = "application/json"), (String = "text/plain"))),
        (status = 406, description = "The client does not accept the media types of the protocol.", body = String, content_type = "text/plain"),
        (status = 415, description = "The message is not JSON.", body = String, content_type = "text/plain")),
    security(("key" = ["read"])))]
async fn post_message(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    request: Request,
) -> ApiResult<Response> {
    let (parts, body) = request.into_parts();
    let bytes = read_body(&parts, body, &shared.http.limits).await?;
    // The protocol library accepts duplicate members.
    let message = strict_json::value(&bytes)?;
    if message["method"] == "initialize" {
        shared.mcp.check_limits(caller.runtime.access()).await?;
    }
    answer_counted(caller, &shared, Request::from_parts(parts, Body::from(bytes))).await
}

/// Open a stream of messages from the server to an MCP client.
#[utoipa::path(get, path = "/mcp", tag = "mcp",
    params(("mcp-session-id" = Option<String>, Header, description = "The id of the session that `initialize` opened.")),
    responses((status = 200, description = "A stream of messages.", content((Object = "text/event-stream"))),
        ProblemResponses,
        (status = 400, description = "The session id is missing or invalid.",
            content((Problem = "application/problem+json"), (Object = "application/json"), (String = "text/plain"))),
        (status = 404, description = "The session does not exist.",
            content((Problem = "application/problem+json"), (String = "text/plain"))),
        (status = 406, description = "The client does not accept event streams.", body = String, content_type = "text/plain")),
    security(("key" = ["read"])))]
async fn open_stream(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    request: Request,
) -> ApiResult<Response> {
    answer_counted(caller, &shared, request).await
}

/// End the session of an MCP client.
///
/// Turns that its calls started continue.
#[utoipa::path(delete, path = "/mcp", tag = "mcp",
    params(("mcp-session-id" = Option<String>, Header, description = "The id of the session that `initialize` opened.")),
    responses((status = 202, description = "The session has ended."), (status = 204, description = "The session has ended."),
        ProblemResponses,
        (status = 400, description = "The session id is missing or invalid.",
            content((Problem = "application/problem+json"), (Object = "application/json"), (String = "text/plain"))),
        (status = 404, description = "The session does not exist.",
            content((Problem = "application/problem+json"), (String = "text/plain")))),
    security(("key" = ["read"])))]
async fn end_session(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    request: Request,
) -> ApiResult<Response> {
    pass_to_endpoint(caller, &shared, request).await
}

/// Answers a request, possibly with a stream, which counts as open until the client stops reading.
async fn answer_counted(
    caller: Caller<Reads>,
    shared: &ServerState,
    request: Request,
) -> ApiResult<Response> {
    let open = shared.http.streams.open(caller.runtime.access(), &shared.http.limits)?;
    let response = pass_to_endpoint(caller, shared, request).await?;
    Ok(response.map(|body| Body::from_stream(open.hold_during(body.into_data_stream()))))
}

async fn pass_to_endpoint(
    caller: Caller<Reads>,
    shared: &ServerState,
    request: Request,
) -> ApiResult<Response> {
    let mut response =
        shared.mcp.answer(McpCaller { runtime: caller.runtime, span: Span::current() }, request).await?;
    // Error responses of the protocol library are plain text without a content type.
    if response.status().is_client_error() {
        let words = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().entry(header::CONTENT_TYPE).or_insert(words);
    }
    Ok(response.map(Body::new))
}
