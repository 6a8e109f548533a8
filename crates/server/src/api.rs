//! The router with all routes, and the OpenAPI document that describes them.
use crate::error_statuses;
use crate::parameter_formats;
use crate::request_middleware::handle_request;
use crate::routes;
use crate::server_state::ServerState;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::header::{self, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use outlast_api::problem::Problem;
use outlast_http::problem::ApiError;
use outlast_vocab::{Error, Kind};
use std::any::Any;
use std::sync::OnceLock;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

/// The parts of the OpenAPI document that are not routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Outlast",
        description = "The API for sessions and turns of durable agents. Times are Unix timestamps in milliseconds. The prefix of an id names its type. Errors are RFC 9457 problems with a stable `code`; their `type` is the path of a page that explains them."
    ),
    components(schemas(Problem)),
    modifiers(&KeySecurityScheme),
    tags(
        (name = "sessions", description = "Durable conversations. Create, read, fork, rewind and delete them."),
        (name = "turns", description = "An input and everything that is done to answer it."),
        (name = "events", description = "Events of sessions, as a stream or in pages."),
        (name = "waits", description = "External actions that turns wait for: completions, approvals, and calls with an unknown outcome."),
        (name = "agents", description = "Agents of the server, and configurations in the database."),
        (name = "costs", description = "Costs, budgets and rate limits."),
        (name = "sinks", description = "Destinations of outputs, with pending and failed deliveries. Requires a key of the default organisation, which operates the server."),
        (name = "mcp", description = "Agents as tools for MCP clients."),
        (name = "access", description = "Organisations, API keys and the audit log."),
        (name = "openai", description = "An OpenAI-compatible API for the same sessions. Each agent is a model, and each response is a durable turn."),
        (name = "anthropic", description = "An Anthropic-compatible API for the same sessions. Each agent is a model."),
        (name = "about", description = "Health, metrics and other information about the server.")
    )
)]
struct OpenApiBase;

struct KeySecurityScheme;

impl Modify for KeySecurityScheme {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("olk_…");
        let scheme = scheme.description(Some(
            "An API key. Each operation lists the scope that it requires. A server on the loopback interface requires no key if the host of the request is `localhost`, `127.0.0.1` or `[::1]`.",
        ));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme.build()));
    }
}

fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .merge(routes::sessions::routes())
        .merge(routes::turns::routes())
        .merge(routes::messages::routes())
        .merge(routes::search::routes())
        .merge(routes::context::routes())
        .merge(routes::archive::routes())
        .merge(routes::verify::routes())
        .merge(routes::effects::routes())
        .merge(routes::why::routes())
        .merge(routes::events::routes())
        .merge(routes::waits::routes())
        .merge(routes::grants::routes())
        .merge(routes::attachments::routes())
        .merge(routes::agents::routes())
        .merge(routes::cost_control::routes())
        .merge(routes::sinks::routes())
        .merge(routes::orgs::routes())
        .merge(routes::access::routes())
        .merge(routes::mcp::routes())
        .merge(routes::about::routes())
}

/// Returns the OpenAPI document of this version.
pub fn document() -> Document {
    let mut document = OpenApiRouter::with_openapi(OpenApiBase::openapi()).merge(routes()).into_openapi();
    document.merge(outlast_compat::routes().into_openapi());
    parameter_formats::add_formats(&mut document);
    error_statuses::add_error_statuses(&mut document);
    parameter_formats::name(&mut document);
    document
}

/// Serves the OpenAPI document as JSON. Builds it on the first request, so that a server that never serves it
/// spends neither time nor memory on it.
async fn openapi() -> Result<impl IntoResponse, ApiError> {
    static SENT: OnceLock<Bytes> = OnceLock::new();
    let sent = if let Some(sent) = SENT.get() {
        sent.clone()
    } else {
        let no_json =
            |cause| Error::new(Kind::Internal, "the document cannot be written as JSON").because(cause);
        let made = document().to_json().map_err(no_json)?;
        SENT.get_or_init(|| made.into()).clone()
    };
    Ok(([(CONTENT_TYPE, "application/json")], sent))
}

/// Builds the router of a server.
pub(crate) fn router(shared: ServerState) -> Router {
    let (router, _) = routes().split_for_parts();
    let (compat, _) = outlast_compat::routes().split_for_parts();
    router
        .merge(compat.with_state(shared.http.clone()))
        .route("/openapi.json", get(openapi))
        .merge(crate::console::routes())
        .merge(crate::approval_pages::routes())
        .fallback(route_not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // Each extractor has its own limit.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state(shared.clone(), handle_request))
        // No content sniffing, no framing, no caching, unless the handler says otherwise.
        .layer((
            default_header(header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            default_header(header::X_FRAME_OPTIONS, "DENY"),
            default_header(header::REFERRER_POLICY, "no-referrer"),
            default_header(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
            default_header(header::CACHE_CONTROL, "no-store"),
        ))
        .layer(from_fn(outlast_compat::format_errors))
        .with_state(shared)
}

/// Returns the response to a request whose handler panicked, so that the connection stays open.
fn panic_response(_: Box<dyn Any + Send>) -> Response {
    ApiError::from(Error::new(Kind::Internal, "a handler panicked")).into_response()
}

/// Sets a header of all responses whose handlers did not set it.
fn default_header(name: HeaderName, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value))
}

async fn route_not_found(uri: Uri) -> ApiError {
    let path = outlast_vocab::message::shown(uri.path()).into_owned();
    Error::new(Kind::RouteNotFound, format!("there is no route `{path}`; /openapi.json lists them")).into()
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let path = outlast_vocab::message::shown(uri.path()).into_owned();
    Error::new(Kind::RouteMethod, format!("`{path}` does not support the method {method}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::extract::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    #[tokio::test]
    async fn handler_panic_returns_a_problem_response() {
        async fn breaks() -> &'static str {
            panic!("a bug")
        }
        let router: Router =
            Router::new().route("/", get(breaks)).layer(CatchPanicLayer::custom(panic_response));
        let answer = TowerToHyperService::new(router).call(Request::new(Body::empty())).await;
        let answer = answer.unwrap_or_else(|never| match never {});
        assert_eq!(answer.status(), 500);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
}
