//! `/v1/sinks`: where outputs are delivered, and pending and failed deliveries, which can be retried.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::list_page::{ListPage, PageParams};
use outlast_api::sinks::{
    DeliveryResource, RetryDeliveryParams, RetryDeliveryResult, SinkResource, SinkTestResult,
};
use outlast_http::caller::{Caller, Operates};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams, TextParam};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_views::SinkView;
use outlast_vocab::Kind;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The start of the error message for other organisations.
const OPERATOR_ONLY: &str = "outputs of every organisation go to the sinks";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(sinks))
        .routes(routes!(deliveries))
        .routes(routes!(retry))
        .routes(routes!(test))
}

/// Returns all sinks, by name.
///
/// Requires a key of the default organisation.
#[utoipa::path(get, path = "/v1/sinks", tag = "sinks", responses((status = 200, body = ListPage<SinkResource>), ProblemResponses),
    security(("key" = ["operate"])))]
async fn sinks(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
) -> ApiResult<Json<ListPage<SinkResource>>> {
    let runtime = caller.operator(&shared.http, OPERATOR_ONLY)?;
    let sink = |view: SinkView| {
        let outlet = runtime.outlets().iter().find(|outlet| outlet.subscription.name == view.name);
        SinkResource::new(view, outlet.map(|outlet| outlet.sink.place()))
    };
    // Not paginated: there are only as many as configurations have ever named.
    Ok(Json(ListPage::single(runtime.store().sinks().await?.into_iter().map(sink).collect())))
}

/// Returns the outputs that a sink has not received yet, oldest first.
///
/// The list includes deliveries that were given up. Requires a key of the default organisation.
#[utoipa::path(get, path = "/v1/sinks/{name}", tag = "sinks", params(("name" = String, Path), PageParams),
    responses((status = 200, body = ListPage<DeliveryResource>), ProblemResponses), security(("key" = ["operate"])))]
async fn deliveries(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
    PathParam(TextParam(name)): PathParam<TextParam>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<DeliveryResource>>> {
    let runtime = caller.operator(&shared.http, OPERATOR_ONLY)?;
    let cursors = CursorSigner::of(&shared.secret, runtime.access().visibility, "deliveries");
    let (after, limit) = list_page::read(&most, &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(runtime.store().deliveries_after(name, after, limit).await?, &cursors)))
}

/// Retry deliveries that were given up.
///
/// Requires a key of the default organisation.
#[utoipa::path(post, path = "/v1/sinks/{name}/retry", tag = "sinks", params(("name" = String, Path), RetryDeliveryParams),
    responses((status = 200, body = RetryDeliveryResult), ProblemResponses), security(("key" = ["operate"])))]
async fn retry(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
    PathParam(TextParam(name)): PathParam<TextParam>,
    QueryParams(RetryDeliveryParams { delivery }): QueryParams<RetryDeliveryParams>,
) -> ApiResult<Json<RetryDeliveryResult>> {
    let revived = caller.operator(&shared.http, OPERATOR_ONLY)?.redeliver(&name, delivery).await?;
    Ok(Json(RetryDeliveryResult { revived }))
}

/// Send a test message to a webhook.
///
/// Sends one signed message of the type `outlast.test`, ahead of pending deliveries, and returns the response
/// of the receiver. The webhook must be configured on this server. Requires a key of the default
/// organisation.
#[utoipa::path(post, path = "/v1/sinks/{name}/test", tag = "sinks", params(("name" = String, Path)),
    responses((status = 200, body = SinkTestResult), ProblemResponses), security(("key" = ["operate"])))]
async fn test(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
    PathParam(TextParam(name)): PathParam<TextParam>,
) -> ApiResult<Json<SinkTestResult>> {
    let tried = caller.operator(&shared.http, OPERATOR_ONLY)?.try_sink(&name).await;
    let (taken, answered) = match tried {
        Ok(answered) => (true, answered),
        // The reaction of the receiver is the result of the test, not a failure of this server.
        Err(error)
            if matches!(error.kind(), Kind::DeliveryFailed | Kind::DeliveryGone | Kind::EgressDenied) =>
        {
            (false, error.detail().to_owned())
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Json(SinkTestResult { taken, answered }))
}
