//! `/v1/sinks`: where outputs are delivered, and pending and failed deliveries, which can be retried.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_http::caller::{Caller, Operates};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams, TextParam};
use outlast_http::list_page::{ListPage, PageParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_views::{DeliveryView, SinkView};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Failure, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
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

/// A sink and its state.
#[derive(Serialize, ToSchema)]
#[schema(as = Sink)]
pub(crate) struct SinkResource {
    /// The name of the sink.
    name: String,
    /// The destination of the outputs. Absent if the sink is not configured on this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// When the sink was first registered, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    since: Millis,
    /// The number of records that were not yet scanned for outputs.
    behind: u64,
    /// The number of pending outputs.
    due: u64,
    /// The number of outputs whose delivery was given up.
    dead: u64,
    /// The number of outputs delivered so far.
    delivered: u64,
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
    let sink = |SinkView { name, since, behind, due, dead, delivered }: SinkView| {
        let outlet = runtime.outlets().iter().find(|outlet| outlet.subscription.name == name);
        let place = outlet.map(|outlet| outlet.sink.place());
        SinkResource { name, place, since, behind, due, dead, delivered }
    };
    // Not paginated: there are only as many as configurations have ever named.
    Ok(Json(ListPage::single(runtime.store().sinks().await?.into_iter().map(sink).collect())))
}

/// An output that has not been delivered yet.
#[derive(Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct DeliveryResource {
    /// The id of the delivery.
    #[schema(value_type = String)]
    id: DeliveryId,
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// The topic of the output: `turn.ended`, `approval.requested`, …
    topic: &'static str,
    /// The number of attempts so far.
    attempts: u32,
    /// When the next attempt is due, as a Unix timestamp in milliseconds. Absent if the delivery was given
    /// up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    due: Option<Millis>,
    /// Why the last attempt failed. Absent if no attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    failure: Option<Failure>,
}

impl From<DeliveryView> for DeliveryResource {
    fn from(view: DeliveryView) -> Self {
        let DeliveryView { id, session, turn, topic, attempts, due_at, failure } = view;
        Self { id, session, turn, topic: topic.name(), attempts, due: due_at, failure }
    }
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
    let cursors = CursorSigner::of(&shared.secret, runtime.access().reach, "deliveries");
    let (after, limit) = most.read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(runtime.store().deliveries_after(name, after, limit).await?, &cursors)))
}

/// Parameters that select deliveries.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RetryDeliveryParams {
    /// The id of the delivery to retry, which may also be waiting for its next attempt. Defaults to all
    /// deliveries that were given up.
    #[param(value_type = Option<String>)]
    delivery: Option<DeliveryId>,
}

/// The result of a retry.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetryDeliveryResult {
    /// The number of outputs that will be delivered again.
    revived: u64,
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

/// The result of a test.
#[derive(Serialize, ToSchema)]
pub(crate) struct SinkTestResult {
    /// Whether the receiver would have accepted an output.
    taken: bool,
    /// The status and the start of the receiver's response, or why it did not respond.
    answered: String,
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
