//! Checks a requested call before it runs: hooks, arguments, labels, policy, and the tool's own preparation.
//!
//! Every call passes here, whether a model or another tool requests it, so no request skips a check.
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::catalogue::unknown;
use crate::policy::hooks::{EffectHooks, before_tool};
use crate::turn::cancel::CancelSignal;
use outlast_kernel::policy::with_values_set;
use outlast_kernel::provenance::TrustedText;
use outlast_vocab::effect::{BatchCall, RefusedCall};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::limits;
use outlast_vocab::message::{CallArguments, ToolUse};
use outlast_vocab::policy::{PolicyDecision, PolicyFacts, PolicyPoint, RecordedDecision, TurnCircumstances};
use outlast_vocab::record::Fact;
use outlast_vocab::tool::{EffectClass, PreparedCall, ToolContract};
use outlast_vocab::{CallId, Error, Failure, Kind};
use serde_json::Value;
use std::borrow::Cow;

/// A requested call, and what the policy knows about it.
#[derive(Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    pub(crate) ask: &'a ToolUse,
    /// The untrusted sources that may have caused it.
    pub(crate) labels: &'a Labels,
    /// The trusted text that sink values are compared with.
    pub(crate) trusted: &'a TrustedText<'a>,
    /// The facts about the turn that rules may test.
    pub(crate) around: &'a TurnCircumstances,
    /// Cancellation of the turn.
    pub(crate) cancel: &'a CancelSignal,
}

/// A request that was checked.
pub(crate) struct CheckedRequest<'a> {
    /// The request as the hooks left it.
    pub(crate) ask: Cow<'a, ToolUse>,
    /// The call, or why it is refused.
    pub(crate) call: BatchCall,
}

/// A call that passed all checks.
struct CheckedCall {
    arguments: Value,
    class: EffectClass,
    payload: Option<Value>,
    ruling: Option<RecordedDecision>,
}

/// Why a call may not run.
struct CallRefusal {
    error: Error,
    /// The policy's decision, if that is the reason.
    ruling: Option<Box<RecordedDecision>>,
}

impl From<Error> for CallRefusal {
    fn from(error: Error) -> Self {
        Self { error, ruling: None }
    }
}

/// Checks a request: it will run, or the caller gets the reason why not. Changes of hooks are added to `changes`.
///
/// A tool that the agent does not have counts as unknown.
pub(crate) async fn prepare<'a>(
    hooks: EffectHooks<'_>,
    request: CallRequest<'a>,
    held: &AttachmentResolver,
    changes: &mut Vec<Fact>,
) -> CheckedRequest<'a> {
    let CallRequest { ask, labels, .. } = request;
    let refused = |error: &Error| RefusedCall::new(ask.id.clone(), ask.tool.clone(), Failure::from(error));
    let ask = match before_tool(hooks, ask, changes).await {
        Ok(ask) => ask,
        Err(error) => {
            return CheckedRequest { ask: Cow::Borrowed(ask), call: BatchCall::Refused(refused(&error)) };
        }
    };
    let mut provenance = Provenance::default();
    let checked = check(hooks, CallRequest { ask: &ask, ..request }, held, &mut provenance).await;
    let labels = labels.clone();
    let call = match checked {
        Ok(CheckedCall { arguments, class, payload, ruling }) => BatchCall::Run(PreparedCall {
            id: CallId::derived(&[&hooks.caller.turn.to_u128().to_be_bytes(), hooks.key.as_str().as_bytes()]),
            model_id: ask.id.clone(),
            tool: ask.tool.clone(),
            class,
            arguments,
            payload,
            ruling,
            labels,
            provenance,
        }),
        Err(CallRefusal { error, ruling }) => {
            BatchCall::Refused(RefusedCall { ruling, labels, provenance, ..refused(&error) })
        }
    };
    CheckedRequest { ask, call }
}

async fn check(
    hooks: EffectHooks<'_>,
    request: CallRequest<'_>,
    held: &AttachmentResolver,
    provenance: &mut Provenance,
) -> Result<CheckedCall, CallRefusal> {
    let CallRequest { ask, labels, trusted, around, cancel } = request;
    let (agent, limits) = (hooks.resolved_agent, hooks.limits());
    let contract = agent.contract_of(&ask.tool).ok_or_else(|| unknown(&ask.tool, &agent.shown))?;
    if agent.catalogue.provider(&ask.tool).is_err() {
        return Err(unknown(&ask.tool, &agent.shown).into());
    }
    let CallArguments::Json(arguments) = &ask.arguments else {
        return Err(Error::new(Kind::ToolArgsInvalid, "the arguments must be JSON").into());
    };
    let whole = whole_arguments(hooks, contract, arguments, held, cancel).await?;
    if !labels.is_empty() {
        *provenance = outlast_kernel::provenance::provenance(Some(contract), &whole, trusted);
    }
    let provenance = &*provenance;
    let facts = PolicyFacts {
        at: PolicyPoint::Tool,
        tool: Some(&ask.tool),
        value: &whole,
        labels,
        provenance,
        circumstances: around,
    };
    let mut ruling = agent.rule(&facts).await;
    if let Some(error) = ruling.as_ref().and_then(RecordedDecision::refusal) {
        return Err(CallRefusal { error, ruling: ruling.map(Box::new) });
    }
    let arguments = match ruling.as_ref().and_then(RecordedDecision::change) {
        Some((set, _)) => with_values_set(arguments, set),
        None => arguments.clone(),
    };
    let whole = whole_arguments(hooks, contract, &arguments, held, cancel).await?;
    if let Some(RecordedDecision { decision: PolicyDecision::Ask(_), preview, .. }) = &mut ruling {
        // A preview is optional: if it fails, the call is not held up.
        let text = async { agent.catalogue.provider(&ask.tool)?.preview(&ask.tool, &whole).await };
        let deadline = contract.deadline.unwrap_or(limits.tool_deadline);
        let text = agent.run_within_deadline(text, deadline, cancel).await.ok().flatten();
        *preview = text.map(|text| text[..text.floor_char_boundary(limits.preview_bytes)].into());
    }
    let payload = payload(hooks, contract, &whole, cancel).await?;
    Ok(CheckedCall { arguments, class: contract.class, payload, ruling })
}

/// Returns arguments with the references in them replaced by the content, if they fit the tool.
pub(crate) async fn whole_arguments<'v>(
    hooks: EffectHooks<'_>,
    contract: &ToolContract,
    arguments: &'v Value,
    held: &AttachmentResolver,
    cancel: &CancelSignal,
) -> Result<Cow<'v, Value>, Error> {
    limits::check_depth("json_depth", arguments, hooks.limits().json_depth)?;
    let whole = held.project(arguments, &contract.input).await?;
    tokio::select! {
        biased;
        fit = hooks.resolved_agent.catalogue.takes(&contract.name, &whole, hooks.org) => fit?,
        reason = cancel.requested() => return Err(Error::new(Kind::ToolCancelled, reason)),
    }
    Ok(whole)
}

/// Returns the payload that the tool prepares for a call with these arguments.
pub(crate) async fn payload(
    hooks: EffectHooks<'_>,
    contract: &ToolContract,
    whole: &Value,
    cancel: &CancelSignal,
) -> Result<Option<Value>, Error> {
    let agent = hooks.resolved_agent;
    let provider = agent.catalogue.provider(&contract.name)?;
    let deadline = contract.deadline.unwrap_or(hooks.limits().tool_deadline);
    let prepared = async { provider.prepare(hooks.caller.session, &contract.name, whole).await };
    agent.run_within_deadline(prepared, deadline, cancel).await
}
