//! Applies the changes of hooks to model calls, tool calls and checkpoints.
use super::{EffectHooks, HookFailure, HookLabels, HookResults};
use crate::turn::host::TurnJournal;
use crate::turn::turn_run::TurnRun;
use outlast_kernel::step::{CallModelStep, CheckpointStep};
use outlast_ports::hook::{
    AfterModel, AfterTool, AtCheckpoint as JoinsAtCheckpoint, BeforeCompletion, BeforeContext, BeforeModel,
    BeforeTool,
};
use outlast_vocab::effect::{Generation, InjectedMessage, JournalPosition, ModelCall, ModelOutcome, Reply};
use outlast_vocab::hook::{
    AnswerHookInput, CallHookInput, CallPatch, CheckpointHookInput, ContextHookInput, HookPatch,
    ModelHookInput, ReplyHookInput, ResultHookInput, ResultPatch,
};
use outlast_vocab::message::{CallArguments, Message, Part, ToolResult, ToolUse, text_of};
use outlast_vocab::policy::PolicyPoint;
use outlast_vocab::record::{Fact, HookApplied};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use serde_json::json;
use std::borrow::Cow;

/// A model request as the hooks left it.
pub(crate) struct HookedModelRequest<'a> {
    /// The system prompt.
    pub(crate) system: Cow<'a, str>,
    /// Messages that only this call shows the model.
    pub(crate) added: Vec<Message>,
    /// The generation options.
    pub(crate) options: Generation,
}

impl HookedModelRequest<'_> {
    /// Returns how many bytes the hooks added to the request.
    pub(crate) fn bytes_over(&self, system: &str) -> usize {
        let added: usize = self.added.iter().map(Message::size).sum();
        added + self.system.len().saturating_sub(system.len())
    }

    /// Builds the model call with the changed options.
    pub(crate) fn effect(&self, ask: &CallModelStep, at: Option<JournalPosition>) -> ModelCall {
        ModelCall { options: self.options.clone(), ..ask.effect(at) }
    }
}

impl EffectHooks<'_> {
    /// Applies the recorded changes of hooks to the request.
    pub(crate) fn as_recorded(&self, effect: ModelCall) -> ModelCall {
        let options = self.recorded::<BeforeModel>().filter_map(|patch| patch.options).last();
        ModelCall { options: options.unwrap_or(effect.options), ..effect }
    }
}

/// Runs the hooks before a model call. Their changes are recorded with the call.
pub(crate) async fn before_model<'t, H: TurnJournal>(
    run: &TurnRun<'t>,
    hook_labels: &HookLabels,
    ask: &CallModelStep,
    host: &mut H,
) -> Result<HookedModelRequest<'t>, Error> {
    let package = &run.agent.package;
    let mut shaped = HookedModelRequest {
        system: Cow::Borrowed(&package.system),
        added: Vec::new(),
        options: ask.effect(None).options,
    };
    let hooks = EffectHooks::of(run, hook_labels, host.history(), host.store(), ask.key());
    let mut facts = Vec::new();
    if hooks.any::<BeforeContext>() {
        let seen = ContextHookInput { system: package.system.clone(), messages: ask.messages().to_vec() };
        let HookResults { mut seen, .. } = hooks.run::<BeforeContext>(seen, &mut facts).await?;
        shaped.added = seen.messages.split_off(ask.messages().len());
        shaped.system = Cow::Owned(seen.system);
    }
    if hooks.any::<BeforeModel>() {
        let system = shaped.system.into_owned();
        let seen = ModelHookInput { model: package.model.clone(), system, options: shaped.options };
        let HookResults { seen, .. } = hooks.run::<BeforeModel>(seen, &mut facts).await?;
        (shaped.system, shaped.options) = (Cow::Owned(seen.system), seen.options);
    }
    host.buffer_facts(facts);
    Ok(shaped)
}

/// Runs the hooks after a model call, and returns the outcome to record.
///
/// If the hooks replace text that watchers have seen, the reply counts as one more attempt. If answers are judged first,
/// no watcher has seen it.
pub(crate) async fn after_model<H: TurnJournal>(
    run: &TurnRun<'_>,
    hook_labels: &HookLabels,
    key: &ReplayKey,
    outcome: ModelOutcome,
    host: &mut H,
) -> ModelOutcome {
    let (history, store) = (host.history().clone(), host.store().cloned());
    let hooks = EffectHooks::of(run, hook_labels, &history, store.as_ref(), key);
    let reply = match outcome {
        ModelOutcome::Reply(reply) if hooks.any::<AfterModel>() => reply,
        ModelOutcome::Failed(failed) => {
            hooks.on_error(&failed.failure).await;
            return ModelOutcome::Failed(failed);
        }
        outcome @ ModelOutcome::Reply(_) => return outcome,
    };
    let mut facts = Vec::new();
    let text = text_of(&reply.parts).into_owned();
    let seen = ReplyHookInput { text, calls: reply.calls.clone(), stop: reply.stop };
    let after = hooks.run::<AfterModel>(seen, &mut facts).await;
    host.buffer_facts(facts);
    match after {
        Ok(HookResults { patches, .. }) if patches.is_empty() => ModelOutcome::Reply(reply),
        Ok(HookResults { seen, .. }) => {
            let was_seen = !run.agent.decides_at(PolicyPoint::Output);
            let attempt = reply.attempt.saturating_add(u32::from(was_seen));
            ModelOutcome::Reply(Reply { attempt, ..reworded(reply, seen.text) })
        }
        Err(HookFailure { error, .. }) => {
            hooks.on_error(&Failure::from(&error)).await;
            crate::turn::model_request::failed(&error, true)
        }
    }
}

/// Replaces the text of a reply.
pub(crate) fn reworded(reply: Reply, text: String) -> Reply {
    let at = reply.parts.iter().position(|part| part.as_text().is_some()).unwrap_or(reply.parts.len());
    let (before, behind) = reply.parts.split_at(at);
    let unspoken = behind.iter().filter(|part| part.as_text().is_none());
    let parts = before.iter().cloned().chain([Part::text(text)]).chain(unspoken.cloned()).collect();
    Reply { parts, ..reply }
}

/// Runs the hooks before a tool call. Returns the changed call, or the reason why it is refused.
pub(crate) async fn before_tool<'c>(
    hooks: EffectHooks<'_>,
    ask: &'c ToolUse,
    facts: &mut Vec<Fact>,
) -> Result<Cow<'c, ToolUse>, Error> {
    let is_there = hooks.resolved_agent.contracts.iter().any(|contract| contract.name == ask.tool);
    let CallArguments::Json(arguments) = &ask.arguments else { return Ok(Cow::Borrowed(ask)) };
    if !is_there || !hooks.any::<BeforeTool>() {
        return Ok(Cow::Borrowed(ask));
    }
    let seen = CallHookInput { call: ask.id.clone(), tool: ask.tool.clone(), arguments: arguments.clone() };
    let HookResults { seen, mut patches } = hooks.run::<BeforeTool>(seen, facts).await?;
    match patches.pop() {
        None => Ok(Cow::Borrowed(ask)),
        Some((hook, CallPatch::Refuse(reason))) => {
            Err(Error::new(Kind::HookRefused, format!("the hook `{hook}` refuses the call: {reason}")))
        }
        Some((_, CallPatch::Arguments(_))) => {
            Ok(Cow::Owned(ToolUse { arguments: CallArguments::Json(seen.arguments), ..ask.clone() }))
        }
    }
}

/// Runs the hooks after a tool call, and returns the result to record. Hooks cannot undo a call that was
/// made.
pub(crate) async fn after_tool(
    hooks: EffectHooks<'_>,
    prepared: &PreparedCall,
    result: ToolResult,
    facts: &mut Vec<Fact>,
) -> ToolResult {
    if let ToolResult::Err(failure) = &result {
        hooks.on_error(failure).await;
    }
    if !hooks.any::<AfterTool>() {
        return result;
    }
    let was = json!(result);
    let PreparedCall { tool, arguments, .. } = prepared;
    let (tool, arguments) = (tool.clone(), arguments.clone());
    match hooks.run::<AfterTool>(ResultHookInput { tool, arguments, result }, facts).await {
        Ok(HookResults { seen, .. }) => seen.result,
        Err(HookFailure { hook, error }) => {
            hooks.on_error(&Failure::from(&error)).await;
            let hidden = ResultPatch::Hidden(error.detail().to_owned());
            let result = hidden.to_result();
            let (key, hook, patch) = (hooks.key.clone(), hook.clone(), HookPatch::AfterTool(hidden));
            facts.push(Fact::Hooked(HookApplied { key, hook, patch, was: Some(was) }));
            result
        }
    }
}

/// Returns the result of a call that was completed from outside, with the recorded changes of hooks.
pub(crate) fn completed_as_recorded(hooks: EffectHooks<'_>, result: ToolResult) -> ToolResult {
    hooks.recorded::<AfterTool>().last().map_or(result, |patch| patch.to_result())
}

/// Runs the hooks at a checkpoint, and returns their messages to the model.
pub(crate) async fn at_checkpoint<H: TurnJournal>(
    run: &TurnRun<'_>,
    hook_labels: &HookLabels,
    at: &CheckpointStep,
    host: &H,
) -> Result<Vec<InjectedMessage>, Error> {
    let hooks = EffectHooks::of(run, hook_labels, host.history(), host.store(), at.key());
    let mut messages = Vec::new();
    if let Some(answer) = at.answer().filter(|_| hooks.any::<BeforeCompletion>()) {
        let seen = AnswerHookInput { answer: answer.into_owned() };
        let HookResults { patches, .. } = hooks.run::<BeforeCompletion>(seen, &mut Vec::new()).await?;
        messages.extend(
            patches
                .into_iter()
                .map(|(hook, patch)| InjectedMessage { by: hook.to_string(), text: patch.send_back }),
        );
    }
    if hooks.any::<JoinsAtCheckpoint>() {
        let answer = at.answer().map(Cow::into_owned);
        let seen = CheckpointHookInput { boundary: at.effect().boundary, answer };
        let HookResults { patches, .. } = hooks.run::<JoinsAtCheckpoint>(seen, &mut Vec::new()).await?;
        for (hook, patch) in patches {
            messages.extend(
                patch.messages.into_iter().map(|text| InjectedMessage { by: hook.to_string(), text }),
            );
        }
    }
    Ok(messages)
}
