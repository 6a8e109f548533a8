//! The effects of turns as a timeline, and the requests of model calls.
use crate::caller::{Caller, Reads};
use crate::cursor::Cursors;
use crate::extract::{Asked, At};
use crate::page::{self, Page};
use crate::problem::{Answer, Problems};
use crate::routes::sessions::Waiting;
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use outlast_runtime::shown::{self, Shown};
use outlast_runtime::timeline::{self, Befell, CallView, Decided, EffectView, Incident};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::ModelCall;
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{Message, Part};
use outlast_vocab::policy::Ruling;
use outlast_vocab::record::{FailedAttempt, Seq};
use outlast_vocab::tool::Contract;
use outlast_vocab::{CallId, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(of_turn)).routes(routes!(request)).routes(routes!(of_session))
}

/// One request to the world.
#[derive(Serialize, ToSchema)]
pub(crate) struct Effect {
    /// The turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// Its path in the turn. One that was asked for within a call begins with the path of the call.
    key: String,
    /// `model_call`, `tool_call`, `durable_step`, `sleep`, `await_event`, …
    kind: &'static str,
    /// `open`, `waits`, `done`, `failed`, `refused` or `unknown`.
    state: &'static str,
    /// The record that asked.
    #[schema(value_type = u64)]
    seq: Seq,
    /// The record with its outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    answered: Option<Seq>,
    /// When it was asked, or at the earliest was.
    #[schema(value_type = u64)]
    from: Millis,
    /// When its outcome became durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    until: Option<Millis>,
    /// The attempt that gave the outcome, or runs; counted from 1. Of a model call, those that failed are counted, and not those that
    /// ended with their process.
    attempts: u32,
    /// What was asked; empty where a model was not asked yet, because something holds the call up or an attempt failed.
    #[schema(value_type = Object)]
    request: Value,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    outcome: Option<Value>,
    /// What is known of a call of a tool beside that.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<Call>,
    /// What a policy decided of it at other points than that of a call: before the model was asked, of its answer, of what a call
    /// does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<PointDecision>,
    /// Tokens, where a model was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    usage: Option<outlast_vocab::effect::Usage>,
    /// Dollars, where the price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cost: Option<Cost>,
    /// The hooks that changed it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<String>,
    /// What it holds still for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<Waiting>,
    /// What befell it on the way to its outcome, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    incidents: Vec<Befallen>,
    /// How often it was answered from the journal, because another lease went on with the turn.
    #[serde(skip_serializing_if = "is_never")]
    replays: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_never(times: &usize) -> bool {
    *times == 0
}

/// Something that befell an effect on the way to its outcome.
#[derive(Serialize, ToSchema)]
pub(crate) struct Befallen {
    /// The record of it.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When it happened.
    #[schema(value_type = u64)]
    at: Millis,
    /// `again`: it was begun once more. `failed`: an attempt to ask a model failed. `paced`: a rate made it wait, let it go or refused it. `payment`: a payment of it came this
    /// far. `stuck`: the turn could not go on here.
    what: &'static str,
    /// Which attempt began, or failed; counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// When the attempt that failed began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    from: Option<Millis>,
    /// What the record says beside that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    detail: Option<Value>,
}

impl From<Incident> for Befallen {
    fn from(Incident { seq, at, what }: Incident) -> Self {
        let name = what.name();
        let (attempt, from, detail) = match what {
            Befell::Again { attempt } => (Some(attempt), None, None),
            Befell::Failed(FailedAttempt { attempt, from, failure, .. }) => {
                (Some(attempt), Some(from), Some(serde_json::to_value(failure)))
            }
            Befell::Paced(paced) => (None, None, Some(serde_json::to_value(paced))),
            Befell::Payment(payment) => (None, None, Some(serde_json::to_value(payment))),
            Befell::Stuck(failure) => (None, None, Some(serde_json::to_value(failure))),
        };
        Self { seq, at, what: name, attempt, from, detail: detail.and_then(Result::ok) }
    }
}

/// What a policy decided at a point of a turn.
#[derive(Serialize, ToSchema)]
pub(crate) struct PointDecision {
    /// What it is about: the path of the turn, of a model call, of its answer, of what a call does.
    key: String,
    /// The record of it.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When it was written.
    #[schema(value_type = u64)]
    at: Millis,
    /// `turn`, `model`, `output`, `egress`, `secret`, `process` or `payment`.
    point: &'static str,
    /// `allow`, `deny`, `ask`, `modify`, `interrupt` or `defer`.
    decision: &'static str,
    /// Why, where the rule says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The rule, the version of its policy, and everything that it decided.
    #[schema(value_type = Object)]
    ruling: Ruling,
    /// The untrusted sources that may have asked for it.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
}

impl From<Decided> for PointDecision {
    fn from(Decided { key, seq, at, point, ruling, labels }: Decided) -> Self {
        let (decision, reason) = (ruling.decision.name(), ruling.decision.reason().map(ToOwned::to_owned));
        Self { key: key.as_str().to_owned(), seq, at, point: point.name(), decision, reason, ruling, labels }
    }
}

/// A call of a tool.
#[derive(Serialize, ToSchema)]
pub(crate) struct Call {
    /// Our id of it, and its idempotency key towards the outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    id: Option<CallId>,
    /// The tool.
    tool: String,
    /// `pure`, `idempotent`, `at_most_once` or `transactional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    /// The rule that fits it, the version of its policy, and what it decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    ruling: Option<Ruling>,
    /// The untrusted sources that may have asked for it.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
    /// Where the values of its sink arguments come from: a JSON pointer and `user`, `agent`, `tool:NAME`, `unknown` or `call` each.
    #[serde(skip_serializing_if = "Provenance::is_empty")]
    #[schema(value_type = Vec<Object>)]
    provenance: Provenance,
}

impl Effect {
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
            call: call.map(Call::from),
            decisions: decisions.into_iter().map(PointDecision::from).collect(),
            usage,
            cost,
            hooks: hooks.iter().map(ToString::to_string).collect(),
            waits: waits.iter().map(Waiting::from).collect(),
            incidents: incidents.into_iter().map(Befallen::from).collect(),
            replays,
        }
    }
}

impl From<CallView> for Call {
    fn from(CallView { id, tool, class, ruling, labels, provenance }: CallView) -> Self {
        let class = class.map(outlast_vocab::tool::EffectClass::name);
        Self { id, tool, class, ruling, labels, provenance }
    }
}

/// The effects of a turn, in the order they were asked for.
#[utoipa::path(get, path = "/v1/turns/{turn}/effects", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = Page<Effect>), Problems), security(("key" = ["read"])))]
async fn of_turn(caller: Caller<Reads>, At(turn): At<TurnId>) -> Answer<Json<Page<Effect>>> {
    let records = caller.runtime.store().turn_records(turn).await?;
    let effects = timeline::of_turn(&records).effects.into_iter();
    // `model_calls`, `tools_per_reply` and the limits of a call (`nested_per_call`, `steps_per_call`) bound
    // the length.
    Ok(Json(Page::whole(effects.map(|effect| Effect::new(turn, effect)).collect())))
}

/// Which model call.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Its path in the turn, as `key` of the effect says it.
    key: String,
}

/// What a model was shown.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelRequest {
    /// Which model.
    model: String,
    /// What it was told before the first message.
    system: String,
    /// What it was told of its tools; missing for turns from before that was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Contract>>,
    /// Whether it might, had to or was not to ask for tools, how it was to generate, and what its answer had to fit.
    #[schema(value_type = Object)]
    call: ModelCall,
    /// The messages, in order.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Message>,
}

impl From<Shown> for ModelRequest {
    fn from(Shown { call, system, tools, mut messages }: Shown) -> Self {
        for message in &mut messages {
            if let Message::User { parts } | Message::Assistant { parts, .. } = message {
                // Sealed parts are readable only for their provider.
                parts.retain(|part| !matches!(part, Part::Sealed { .. }));
            }
        }
        Self { model: call.model.to_string(), system, tools, call, messages }
    }
}

/// Everything that one model call was shown: its prompt, its tools, every message.
///
/// Put together again from the place that its record names, the package of the turn and what hooks changed. Older messages that
/// no longer fitted into the model's window are as they were made shorter.
#[utoipa::path(get, path = "/v1/turns/{turn}/effects/request", tag = "turns", params(("turn" = String, Path), Which),
    responses((status = 200, body = ModelRequest), Problems), security(("key" = ["read"])))]
async fn request(
    caller: Caller<Reads>,
    At(turn): At<TurnId>,
    Asked(Which { key }): Asked<Which>,
) -> Answer<Json<ModelRequest>> {
    Ok(Json(shown::to_model(caller.runtime.store().as_ref(), turn, &key).await?.into()))
}

/// Which turns.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Find {
    /// From this turn of the session on, counted from 0.
    from: Option<u32>,
    /// Of how many turns at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` of the page before; counts for more than `from`.
    cursor: Option<String>,
}

/// The effects of a session's turns, in the order the turns were accepted.
#[utoipa::path(get, path = "/v1/sessions/{session}/effects", tag = "sessions",
    params(("session" = String, Path), Find),
    responses((status = 200, body = Page<Effect>), Problems), security(("key" = ["read"])))]
async fn of_session(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(session): At<SessionId>,
    Asked(Find { from, limit, cursor }): Asked<Find>,
) -> Answer<Json<Page<Effect>>> {
    let store = caller.runtime.store();
    let limit = page::size(limit, &shared.limits)?;
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "effects");
    let from = page::behind(cursor.as_deref(), &cursors)?.or(from).unwrap_or(0);
    let mut turns = store.turns(session, from, limit + 1).await?;
    let next = turns.get(limit).map(|next| page::goes_on(&next.index, &cursors));
    turns.truncate(limit);
    let mut items = Vec::new();
    for turn in turns {
        let effects = timeline::of_turn(&store.turn_records(turn.id).await?).effects;
        items.extend(effects.into_iter().map(|effect| Effect::new(turn.id, effect)));
    }
    Ok(Json(Page { items, next }))
}
