//! `/v1/sinks`: where outputs are delivered, and pending and failed deliveries, which can be retried.
use crate::caller::{Caller, Operates};
use crate::cursor::Cursors;
use crate::extract::{Asked, At, Word};
use crate::page::{Most, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use outlast_ports::outbox::{DeliveryView, SinkView};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Failure, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The start of the error message for other organisations.
const WHOSE: &str = "outputs of every organisation go to the sinks";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(sinks))
        .routes(routes!(deliveries))
        .routes(routes!(retry))
        .routes(routes!(test))
}

/// A sink, and how it stands.
#[derive(Serialize, ToSchema)]
pub(crate) struct Sink {
    /// What it is called.
    name: String,
    /// Where it delivers to; absent if this server does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// Since when the database knows it.
    #[schema(value_type = u64)]
    since: Millis,
    /// Records that it has not looked at.
    behind: u64,
    /// Outputs that are to be delivered.
    due: u64,
    /// Outputs that were given up.
    dead: u64,
    /// Outputs that were delivered so far.
    delivered: u64,
}

/// All sinks, by name. For keys of the default organisation.
#[utoipa::path(get, path = "/v1/sinks", tag = "sinks", responses((status = 200, body = Page<Sink>), Problems),
    security(("key" = ["operate"])))]
async fn sinks(caller: Caller<Operates>, State(shared): State<Shared>) -> Answer<Json<Page<Sink>>> {
    let runtime = caller.operator(&shared, WHOSE)?;
    let sink = |SinkView { name, since, behind, due, dead, delivered }: SinkView| {
        let outlet = runtime.outlets().iter().find(|outlet| outlet.subscription.name == name);
        let place = outlet.map(|outlet| outlet.sink.place());
        Sink { name, place, since, behind, due, dead, delivered }
    };
    // Not paginated: there are only as many as configurations have ever named.
    Ok(Json(Page::whole(runtime.store().sinks().await?.into_iter().map(sink).collect())))
}

/// An output that a sink has not taken yet.
#[derive(Serialize, ToSchema)]
pub(crate) struct Delivery {
    #[schema(value_type = String)]
    id: DeliveryId,
    #[schema(value_type = String)]
    session: SessionId,
    #[schema(value_type = String)]
    turn: TurnId,
    /// What is told of the turn: `turn.ended`, `approval.requested`, …
    topic: &'static str,
    /// How often it was tried.
    attempts: u32,
    /// When it is due; absent if it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    due: Option<Millis>,
    /// Why it was not taken the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    failure: Option<Failure>,
}

impl From<DeliveryView> for Delivery {
    fn from(view: DeliveryView) -> Self {
        let DeliveryView { id, session, turn, topic, attempts, due_at, failure } = view;
        Self { id, session, turn, topic: topic.name(), attempts, due: due_at, failure }
    }
}

/// What a sink has not taken yet, the oldest first; what was given up is among it. For keys of the default organisation.
#[utoipa::path(get, path = "/v1/sinks/{name}", tag = "sinks", params(("name" = String, Path), Most),
    responses((status = 200, body = Page<Delivery>), Problems), security(("key" = ["operate"])))]
async fn deliveries(
    caller: Caller<Operates>,
    State(shared): State<Shared>,
    At(Word(name)): At<Word>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Delivery>>> {
    let runtime = caller.operator(&shared, WHOSE)?;
    let cursors = Cursors::of(&shared.secret, runtime.access().reach, "deliveries");
    let (after, limit) = most.read(&cursors, &shared.limits)?;
    Ok(Json(Page::of(runtime.store().deliveries_after(name, after, limit).await?, &cursors)))
}

/// Which of them.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only this delivery, which may also be waiting for its next attempt; all that were given up without it.
    #[param(value_type = Option<String>)]
    delivery: Option<DeliveryId>,
}

/// What is tried again.
#[derive(Serialize, ToSchema)]
pub(crate) struct Revived {
    /// How many outputs are to be delivered again.
    revived: u64,
}

/// Delivers again what a sink was given up for. For keys of the default organisation.
#[utoipa::path(post, path = "/v1/sinks/{name}/retry", tag = "sinks", params(("name" = String, Path), Which),
    responses((status = 200, body = Revived), Problems), security(("key" = ["operate"])))]
async fn retry(
    caller: Caller<Operates>,
    State(shared): State<Shared>,
    At(Word(name)): At<Word>,
    Asked(Which { delivery }): Asked<Which>,
) -> Answer<Json<Revived>> {
    let revived = caller.operator(&shared, WHOSE)?.redeliver(&name, delivery).await?;
    Ok(Json(Revived { revived }))
}

/// What the other side said to a test.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tested {
    /// Whether it would have taken an output.
    taken: bool,
    /// Its status and the beginning of its answer, or why there was none.
    answered: String,
}

/// Sends one signed message of the type `outlast.test` to a webhook of this server, past whatever waits for it, and tells what was
/// answered. For keys of the default organisation.
#[utoipa::path(post, path = "/v1/sinks/{name}/test", tag = "sinks", params(("name" = String, Path)),
    responses((status = 200, body = Tested), Problems), security(("key" = ["operate"])))]
async fn test(
    caller: Caller<Operates>,
    State(shared): State<Shared>,
    At(Word(name)): At<Word>,
) -> Answer<Json<Tested>> {
    let tried = caller.operator(&shared, WHOSE)?.try_sink(&name).await;
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
    Ok(Json(Tested { taken, answered }))
}
