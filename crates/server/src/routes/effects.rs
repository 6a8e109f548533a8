//! The effects of turns as a timeline, and the requests of model calls.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::effects::{
    EffectIncidentResource, EffectListParams, EffectResource, ModelCallParams, ModelRequestResource,
    PolicyDecisionResource, ToolCallResource,
};
use outlast_api::list_page::ListPage;
use outlast_api::sessions::WaitResource;
use outlast_http::caller::{Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_runtime::turn::prompt_snapshot::{self, PromptSnapshot};
use outlast_runtime::views::timeline::{
    self, CallView, DecisionView, EffectIncident, EffectView, IncidentKind,
};
use outlast_vocab::message::{Message, Part};
use outlast_vocab::record::FailedAttempt;
use outlast_vocab::{SessionId, TurnId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(of_turn)).routes(routes!(request)).routes(routes!(of_session))
}

fn effect_resource(turn: TurnId, effect: EffectView) -> EffectResource {
    let EffectView { key, kind, seq, answered, from, until, state, .. } = effect;
    let EffectView { attempts, request, outcome, call, decisions, usage, cost, .. } = effect;
    let EffectView { hooks, waits, incidents, replays, .. } = effect;
    EffectResource {
        turn,
        key: key.as_str().to_owned(),
        kind: kind.name().into(),
        state: state.name().into(),
        seq,
        answered,
        from,
        until,
        attempts,
        request,
        outcome,
        call: call.map(call_resource),
        decisions: decisions.into_iter().map(decision_resource).collect(),
        usage,
        cost,
        hooks: hooks.iter().map(ToString::to_string).collect(),
        waits: waits.into_iter().map(WaitResource::from).collect(),
        incidents: incidents.into_iter().map(incident_resource).collect(),
        replays,
    }
}

fn call_resource(CallView { id, tool, class, ruling, labels, provenance }: CallView) -> ToolCallResource {
    let class = class.map(|class| class.name().into());
    ToolCallResource { id, tool, class, ruling, labels, provenance }
}

/// Describes a policy decision.
pub(crate) fn decision_resource(decision: DecisionView) -> PolicyDecisionResource {
    let DecisionView { key, seq, at, point, ruling, labels } = decision;
    PolicyDecisionResource {
        key: key.as_str().to_owned(),
        seq,
        at,
        point: point.name().into(),
        decision: ruling.decision.name().into(),
        reason: ruling.decision.reason().map(ToOwned::to_owned),
        ruling,
        labels,
    }
}

fn incident_resource(EffectIncident { seq, at, what }: EffectIncident) -> EffectIncidentResource {
    let name = what.name().into();
    let (attempt, from, detail) = match what {
        IncidentKind::Again { attempt } => (Some(attempt), None, None),
        IncidentKind::Failed(FailedAttempt { attempt, from, failure, .. }) => {
            (Some(attempt), Some(from), Some(serde_json::to_value(failure)))
        }
        IncidentKind::Paced(paced) => (None, None, Some(serde_json::to_value(paced))),
        IncidentKind::Payment(payment) => (None, None, Some(serde_json::to_value(payment))),
        IncidentKind::Stuck(failure) => (None, None, Some(serde_json::to_value(failure))),
    };
    EffectIncidentResource { seq, at, what: name, attempt, from, detail: detail.and_then(Result::ok) }
}

/// Returns the effects of a turn, in the order in which they were requested.
#[utoipa::path(get, path = "/v1/turns/{turn}/effects", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = ListPage<EffectResource>), ProblemResponses), security(("key" = ["read"])))]
async fn of_turn(
    caller: Caller<Reads>,
    PathParam(turn): PathParam<TurnId>,
) -> ApiResult<Json<ListPage<EffectResource>>> {
    let records = caller.runtime.store().turn_records(turn).await?;
    let effects = timeline::of_turn(records).effects.into_iter();
    // `model_calls`, `tools_per_reply` and the limits of a call (`nested_per_call`, `steps_per_call`) bound
    // the length.
    Ok(Json(ListPage::single(effects.map(|effect| effect_resource(turn, effect)).collect())))
}

fn model_request(
    PromptSnapshot { call, system, tools, mut messages }: PromptSnapshot,
) -> ModelRequestResource {
    for message in &mut messages {
        if let Message::User { parts } | Message::Assistant { parts, .. } = message {
            // Sealed parts are readable only for their provider.
            parts.retain(|part| !matches!(part, Part::Sealed { .. }));
        }
    }
    ModelRequestResource { model: call.model.to_string(), system, tools, call, messages }
}

/// Returns the request of a model call: its prompt, tools and messages.
///
/// The request is reconstructed from the record of the call, the package of the turn and the changes that
/// hooks made. Older messages that no longer fitted into the model's context window appear in their compacted
/// form.
#[utoipa::path(get, path = "/v1/turns/{turn}/effects/request", tag = "turns", params(("turn" = String, Path), ModelCallParams),
    responses((status = 200, body = ModelRequestResource), ProblemResponses), security(("key" = ["read"])))]
async fn request(
    caller: Caller<Reads>,
    PathParam(turn): PathParam<TurnId>,
    QueryParams(ModelCallParams { key }): QueryParams<ModelCallParams>,
) -> ApiResult<Json<ModelRequestResource>> {
    let snapshot = prompt_snapshot::to_model(caller.runtime.store().as_ref(), turn, &key).await?;
    Ok(Json(model_request(snapshot)))
}

/// Returns the effects of a session's turns, in the order in which the turns were accepted.
#[utoipa::path(get, path = "/v1/sessions/{session}/effects", tag = "sessions",
    params(("session" = String, Path), EffectListParams),
    responses((status = 200, body = ListPage<EffectResource>), ProblemResponses), security(("key" = ["read"])))]
async fn of_session(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
    QueryParams(EffectListParams { from, limit, cursor }): QueryParams<EffectListParams>,
) -> ApiResult<Json<ListPage<EffectResource>>> {
    let store = caller.runtime.store();
    let limit = list_page::page_limit(limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "effects");
    let from = list_page::decode_cursor(cursor.as_deref(), &cursors)?.or(from).unwrap_or(0);
    let mut turns = store.turns(session, from, limit + 1).await?;
    let next = turns.get(limit).map(|next| list_page::encode_cursor(&next.index, &cursors));
    turns.truncate(limit);
    let mut items = Vec::new();
    for turn in turns {
        let effects = timeline::of_turn(store.turn_records(turn.id).await?).effects;
        items.extend(effects.into_iter().map(|effect| effect_resource(turn.id, effect)));
    }
    Ok(Json(ListPage { items, next }))
}
