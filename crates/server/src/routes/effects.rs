//! The effects of turns as a timeline, and the requests of model calls.
use crate::routes::sessions::WaitResource;
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_http::caller::{Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::list_page::{self, ListPage};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_runtime::turn::prompt_snapshot::{self, PromptSnapshot};
use outlast_runtime::views::timeline::{
    self, CallView, DecisionView, EffectIncident, EffectView, IncidentKind,
};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::ModelCall;
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{Message, Part};
use outlast_vocab::policy::RecordedDecision;
use outlast_vocab::record::{FailedAttempt, Seq};
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{CallId, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(of_turn)).routes(routes!(request)).routes(routes!(of_session))
}

/// An effect of a turn: a model call, a tool call or another request to the outside.
#[derive(Serialize, ToSchema)]
#[schema(as = Effect)]
pub(crate) struct EffectResource {
    /// The id of the turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// The path of the effect in the turn. The path of an effect inside a call starts with the path of the
    /// call.
    key: String,
    /// The kind of effect: `model_call`, `tool_call`, `durable_step`, `sleep`, `await_event`, …
    kind: &'static str,
    /// `open`, `waits`, `done`, `failed`, `refused` or `unknown`.
    state: &'static str,
    /// The sequence number of the record with the request.
    #[schema(value_type = u64)]
    seq: Seq,
    /// The sequence number of the record with the outcome. Absent if there is no outcome yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    answered: Option<Seq>,
    /// When the effect was requested, as a Unix timestamp in milliseconds. If request and outcome were
    /// written together, the time of the previous record.
    #[schema(value_type = u64)]
    from: Millis,
    /// When the outcome became durable, as a Unix timestamp in milliseconds. Absent if there is no outcome
    /// yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    until: Option<Millis>,
    /// The number of the current attempt, or of the one that gave the outcome, counted from 1. For a model
    /// call, failed attempts count, but not attempts that ended because their process died.
    attempts: u32,
    /// The request. Empty for a model call that has not been sent yet, because something delays it or an
    /// attempt failed.
    #[schema(value_type = Object)]
    request: Value,
    /// The outcome. Absent if there is no outcome yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    outcome: Option<Value>,
    /// Details of a tool call. Absent for other effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<ToolCallResource>,
    /// Policy decisions about the effect at points other than the tool call: before a model call, about its
    /// answer, or about what a call does. Absent if there are no such decisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<PolicyDecisionResource>,
    /// The tokens that a model call used. Absent for other effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage: Option<outlast_vocab::effect::Usage>,
    /// The cost in US dollars. Absent if the price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cost: Option<Cost>,
    /// The names of the hooks that changed the effect. Absent if no hook did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<String>,
    /// What the effect waits for. Absent if it does not wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<WaitResource>,
    /// Incidents before the outcome, in order. Absent if there were no incidents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incidents: Vec<EffectIncidentResource>,
    /// How often the effect was answered from the journal after another lease resumed the turn. Absent if
    /// never.
    #[serde(skip_serializing_if = "is_zero_count")]
    replays: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero_count(times: &usize) -> bool {
    *times == 0
}

/// An incident of an effect before its outcome.
#[derive(Serialize, ToSchema)]
#[schema(as = EffectIncident)]
pub(crate) struct EffectIncidentResource {
    /// The sequence number of the record of the incident.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When the incident happened, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
    /// The kind of incident.
    ///
    /// - `again`: the effect was started again.
    /// - `failed`: an attempt to call a model failed.
    /// - `paced`: a rate limit delayed, admitted or rejected the effect.
    /// - `payment`: a payment of the effect changed its state.
    /// - `stuck`: the turn got stuck at the effect.
    what: &'static str,
    /// The number of the attempt that started or failed, counted from 1. Absent for other incidents.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// When the failed attempt started, as a Unix timestamp in milliseconds. Absent for other incidents.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    from: Option<Millis>,
    /// Details from the record. Absent for `again`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    detail: Option<Value>,
}

impl From<EffectIncident> for EffectIncidentResource {
    fn from(EffectIncident { seq, at, what }: EffectIncident) -> Self {
        let name = what.name();
        let (attempt, from, detail) = match what {
            IncidentKind::Again { attempt } => (Some(attempt), None, None),
            IncidentKind::Failed(FailedAttempt { attempt, from, failure, .. }) => {
                (Some(attempt), Some(from), Some(serde_json::to_value(failure)))
            }
            IncidentKind::Paced(paced) => (None, None, Some(serde_json::to_value(paced))),
            IncidentKind::Payment(payment) => (None, None, Some(serde_json::to_value(payment))),
            IncidentKind::Stuck(failure) => (None, None, Some(serde_json::to_value(failure))),
        };
        Self { seq, at, what: name, attempt, from, detail: detail.and_then(Result::ok) }
    }
}

/// A policy decision at a point of a turn.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyDecision)]
pub(crate) struct PolicyDecisionResource {
    /// The path of the subject of the decision: the turn, a model call, its answer, or what a call does.
    key: String,
    /// The sequence number of the record of the decision.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When the decision was written, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
    /// The policy point: `turn`, `model`, `output`, `egress`, `secret`, `process` or `payment`.
    point: &'static str,
    /// `allow`, `deny`, `ask`, `modify`, `interrupt` or `defer`.
    decision: &'static str,
    /// The reason for the decision. Absent if the rule gives no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The whole decision, with its rule and the version of the policy.
    #[schema(value_type = Object)]
    ruling: RecordedDecision,
    /// The untrusted sources that may have caused it. Absent if there are no such sources.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
}

impl From<DecisionView> for PolicyDecisionResource {
    fn from(DecisionView { key, seq, at, point, ruling, labels }: DecisionView) -> Self {
        let (decision, reason) = (ruling.decision.name(), ruling.decision.reason().map(ToOwned::to_owned));
        Self { key: key.as_str().to_owned(), seq, at, point: point.name(), decision, reason, ruling, labels }
    }
}

/// Details of a tool call.
#[derive(Serialize, ToSchema)]
#[schema(as = ToolCall)]
pub(crate) struct ToolCallResource {
    /// Outlast's id of the call, which is also its idempotency key for external services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    id: Option<CallId>,
    /// The name of the tool.
    tool: String,
    /// The effect class of the tool: `pure`, `idempotent`, `at_most_once` or `transactional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    /// The policy decision about the call, with its rule and the version of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    ruling: Option<RecordedDecision>,
    /// The untrusted sources that may have caused the call.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
    /// The origins of its sink arguments, each with a JSON pointer: `user`, `agent`, `tool:NAME`, `unknown`
    /// or `call`.
    #[serde(skip_serializing_if = "Provenance::is_empty")]
    #[schema(value_type = Vec<Object>)]
    provenance: Provenance,
}

impl EffectResource {
    fn new(turn: TurnId, effect: EffectView) -> Self {
        let EffectView { key, kind, seq, answered, from, until, state, .. } = effect;
        let EffectView { attempts, request, outcome, call, decisions, usage, cost, .. } = effect;
        let EffectView { hooks, waits, incidents, replays, .. } = effect;
        Self {
            turn,
            key: key.as_str().to_owned(),
            kind: kind.name(),
            state: state.name(),
            seq,
            answered,
            from,
            until,
            attempts,
            request,
            outcome,
            call: call.map(ToolCallResource::from),
            decisions: decisions.into_iter().map(PolicyDecisionResource::from).collect(),
            usage,
            cost,
            hooks: hooks.iter().map(ToString::to_string).collect(),
            waits: waits.iter().map(WaitResource::from).collect(),
            incidents: incidents.into_iter().map(EffectIncidentResource::from).collect(),
            replays,
        }
    }
}

impl From<CallView> for ToolCallResource {
    fn from(CallView { id, tool, class, ruling, labels, provenance }: CallView) -> Self {
        let class = class.map(outlast_vocab::tool::EffectClass::name);
        Self { id, tool, class, ruling, labels, provenance }
    }
}

/// Returns the effects of a turn, in the order in which they were requested.
#[utoipa::path(get, path = "/v1/turns/{turn}/effects", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = ListPage<EffectResource>), ProblemResponses), security(("key" = ["read"])))]
async fn of_turn(
    caller: Caller<Reads>,
    PathParam(turn): PathParam<TurnId>,
) -> ApiResult<Json<ListPage<EffectResource>>> {
    let records = caller.runtime.store().turn_records(turn).await?;
    let effects = timeline::of_turn(&records).effects.into_iter();
    // `model_calls`, `tools_per_reply` and the limits of a call (`nested_per_call`, `steps_per_call`) bound
    // the length.
    Ok(Json(ListPage::single(effects.map(|effect| EffectResource::new(turn, effect)).collect())))
}

/// Parameters that select a model call.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ModelCallParams {
    /// The path of the model call in the turn: the `key` of the effect.
    key: String,
}

/// The request of a model call.
#[derive(Serialize, ToSchema)]
#[schema(as = ModelRequest)]
pub(crate) struct ModelRequestResource {
    /// The name of the model.
    model: String,
    /// The system prompt.
    system: String,
    /// The contracts of the tools. Absent for turns that ran before contracts were stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<ToolContract>>,
    /// The settings of the call: whether the model may, must or must not call tools, its generation options,
    /// and the schema of its answer.
    #[schema(value_type = Object)]
    call: ModelCall,
    /// The messages, in order.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Message>,
}

impl From<PromptSnapshot> for ModelRequestResource {
    fn from(PromptSnapshot { call, system, tools, mut messages }: PromptSnapshot) -> Self {
        for message in &mut messages {
            if let Message::User { parts } | Message::Assistant { parts, .. } = message {
                // Sealed parts are readable only for their provider.
                parts.retain(|part| !matches!(part, Part::Sealed { .. }));
            }
        }
        Self { model: call.model.to_string(), system, tools, call, messages }
    }
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
    Ok(Json(prompt_snapshot::to_model(caller.runtime.store().as_ref(), turn, &key).await?.into()))
}

/// Parameters that select the turns.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EffectListParams {
    /// The index of the first turn, counted from 0. Defaults to 0.
    from: Option<u32>,
    /// The maximum number of turns whose effects are returned. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `from`.
    cursor: Option<String>,
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
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "effects");
    let from = list_page::decode_cursor(cursor.as_deref(), &cursors)?.or(from).unwrap_or(0);
    let mut turns = store.turns(session, from, limit + 1).await?;
    let next = turns.get(limit).map(|next| list_page::encode_cursor(&next.index, &cursors));
    turns.truncate(limit);
    let mut items = Vec::new();
    for turn in turns {
        let effects = timeline::of_turn(&store.turn_records(turn.id).await?).effects;
        items.extend(effects.into_iter().map(|effect| EffectResource::new(turn.id, effect)));
    }
    Ok(Json(ListPage { items, next }))
}
