//! The effects of turns, and the requests of model calls.
use crate::sessions::WaitResource;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{ModelCall, Usage};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::Message;
use outlast_vocab::policy::RecordedDecision;
use outlast_vocab::record::Seq;
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{CallId, Millis, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// Parameters that select the turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EffectListParams {
    /// The index of the first turn, counted from 0. Defaults to 0.
    pub from: Option<u32>,
    /// The maximum number of turns whose effects are returned. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `from`.
    pub cursor: Option<String>,
}

/// Parameters that select a model call.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ModelCallParams {
    /// The path of the model call in the turn: the `key` of the effect.
    pub key: String,
}

/// An effect of a turn: a model call, a tool call or another request to the outside.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Effect)]
pub struct EffectResource {
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// The path of the effect in the turn. The path of an effect inside a call starts with the path of the
    /// call.
    pub key: String,
    /// The kind of effect: `model_call`, `tool_call`, `durable_step`, `sleep`, `await_event`, …
    pub kind: Cow<'static, str>,
    /// `open`, `waits`, `done`, `failed`, `refused` or `unknown`.
    pub state: Cow<'static, str>,
    /// The sequence number of the record with the request.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// The sequence number of the record with the outcome. Absent if there is no outcome yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub answered: Option<Seq>,
    /// When the effect was requested, as a Unix timestamp in milliseconds. If request and outcome were
    /// written together, the time of the previous record.
    #[schema(value_type = u64)]
    pub from: Millis,
    /// When the outcome became durable, as a Unix timestamp in milliseconds. Absent if there is no outcome
    /// yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub until: Option<Millis>,
    /// The number of the current attempt, or of the one that gave the outcome, counted from 1. For a model
    /// call, failed attempts count, but not attempts that ended because their process died.
    pub attempts: u32,
    /// The request. Empty for a model call that has not been sent yet, because something delays it or an
    /// attempt failed.
    #[schema(value_type = Object)]
    pub request: Value,
    /// The outcome. Absent if there is no outcome yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub outcome: Option<Value>,
    /// Details of a tool call. Absent for other effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<ToolCallResource>,
    /// Policy decisions about the effect at points other than the tool call: before a model call, about its
    /// answer, or about what a call does. Absent if there are no such decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<PolicyDecisionResource>,
    /// The tokens that a model call used. Absent for other effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub usage: Option<Usage>,
    /// The cost in US dollars. Absent if the price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cost: Option<Cost>,
    /// The names of the hooks that changed the effect. Absent if no hook did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// What the effect waits for. Absent if it does not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitResource>,
    /// Incidents before the outcome, in order. Absent if there were no incidents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<EffectIncidentResource>,
    /// How often the effect was answered from the journal after another lease resumed the turn. Absent if
    /// never.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub replays: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero_count(times: &usize) -> bool {
    *times == 0
}

/// An incident of an effect before its outcome.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EffectIncident)]
pub struct EffectIncidentResource {
    /// The sequence number of the record of the incident.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When the incident happened, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// The kind of incident.
    ///
    /// - `again`: the effect was started again.
    /// - `failed`: an attempt to call a model failed.
    /// - `paced`: a rate limit delayed, admitted or rejected the effect.
    /// - `payment`: a payment of the effect changed its state.
    /// - `stuck`: the turn got stuck at the effect.
    pub what: Cow<'static, str>,
    /// The number of the attempt that started or failed, counted from 1. Absent for other incidents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When the failed attempt started, as a Unix timestamp in milliseconds. Absent for other incidents.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub from: Option<Millis>,
    /// Details from the record. Absent for `again`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<Value>,
}

/// A policy decision at a point of a turn.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PolicyDecision)]
pub struct PolicyDecisionResource {
    /// The path of the subject of the decision: the turn, a model call, its answer, or what a call does.
    pub key: String,
    /// The sequence number of the record of the decision.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When the decision was written, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// The policy point: `turn`, `model`, `output`, `egress`, `secret`, `process` or `payment`.
    pub point: Cow<'static, str>,
    /// `allow`, `deny`, `ask`, `modify`, `interrupt` or `defer`.
    pub decision: Cow<'static, str>,
    /// The reason for the decision. Absent if the rule gives no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The whole decision, with its rule and the version of the policy.
    #[schema(value_type = Object)]
    pub ruling: RecordedDecision,
    /// The untrusted sources that may have caused it. Absent if there are no such sources.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub labels: Labels,
}

/// Details of a tool call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ToolCall)]
pub struct ToolCallResource {
    /// Outlast's id of the call, which is also its idempotency key for external services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<CallId>,
    /// The name of the tool.
    pub tool: String,
    /// The effect class of the tool: `pure`, `idempotent`, `at_most_once` or `transactional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Cow<'static, str>>,
    /// The policy decision about the call, with its rule and the version of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub ruling: Option<RecordedDecision>,
    /// The untrusted sources that may have caused the call.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub labels: Labels,
    /// The origins of its sink arguments, each with a JSON pointer: `user`, `agent`, `tool:NAME`, `unknown`
    /// or `call`.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub provenance: Provenance,
}

/// The request of a model call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ModelRequest)]
pub struct ModelRequestResource {
    /// The name of the model.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The contracts of the tools. Absent for turns that ran before contracts were stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<ToolContract>>,
    /// The settings of the call: whether the model may, must or must not call tools, its generation options,
    /// and the schema of its answer.
    #[schema(value_type = Object)]
    pub call: ModelCall,
    /// The messages, in order.
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<Message>,
}
