//! Runs one tool call to its outcome: attempts, deadline and panics.
//!
//! [`ready`], [`attempt`] and [`answer_of`] serve the calls of a model and the calls of other tools alike, so a check
//! here holds for both.
use crate::calls::call_journal::CallWrites;
use crate::calls::tool_call_scope::ToolCallScope;
use crate::calls::tools::CallCompletion;
use crate::limits::tool_limits::CallPermit;
use crate::turn::host::HostTier;
use crate::turn::model_request::backoff;
use crate::turn::undo::undoable;
use crate::views::metrics::RetryKind;
use futures_util::FutureExt;
use futures_util::future::{Either, poll_immediate, select};
use outlast_ports::attachment_upload::Upload;
use outlast_ports::tool::ToolRunOutcome;
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::limits;
use outlast_vocab::message::{MediaType, ToolResult, json_size};
use outlast_vocab::record::{ClaimRef, Fact};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Class, Error, Failure, Kind, Limits};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The tool that lets a model read the rest of a truncated result.
pub(crate) const READ_MORE: &str = "read_more";

/// A claimed call that has to run.
pub(crate) struct ClaimedCall {
    pub(crate) claim: ClaimRef,
    pub(crate) prepared: PreparedCall,
    /// The number of its next attempt.
    pub(crate) attempt: u32,
    /// When its rate limits let it begin.
    pub(crate) begins: CallPermit,
}

/// Which attempt of a call runs.
#[derive(Clone, Copy)]
pub(crate) struct AttemptNumber {
    pub(crate) number: u32,
    pub(crate) of: u32,
}

impl AttemptNumber {
    /// The attempt of a call that is not retried.
    pub(crate) const ONLY: Self = Self { number: 1, of: 1 };
}

/// How an attempt ended.
pub(crate) enum AttemptEnd {
    /// The tool returned this value.
    Completed(Value),
    /// The call waits to be completed from outside.
    Pending,
    /// A rule ends the turn, whatever the tool returned.
    Interrupted(Failure),
    /// The tool failed.
    Failed(Error),
}

/// Runs one call to its outcome and counts it in the metrics.
pub(crate) async fn perform(scope: Arc<ToolCallScope>, call: ClaimedCall) -> Result<CallCompletion, Error> {
    let (services, began) = (&scope.services, scope.services.models.clock.elapsed());
    let (outcome, writes) = attempts(&scope, call).await?;
    if let ToolOutcome::Done(result) = &outcome {
        let failure = if let ToolResult::Err(failure) = result { Some(failure) } else { None };
        let took = services.models.clock.elapsed().saturating_sub(began);
        services.models.metrics.called(scope.call.tool.as_str(), took, failure);
    }
    Ok(CallCompletion::Ran(scope.journal.child, outcome, writes))
}

fn failed(failure: Failure) -> (ToolOutcome, CallWrites) {
    (ToolOutcome::Done(ToolResult::Err(failure)), CallWrites::default())
}

/// Runs one call until it has an outcome, with the retries that its policy allows.
async fn attempts(scope: &Arc<ToolCallScope>, call: ClaimedCall) -> Result<(ToolOutcome, CallWrites), Error> {
    let ClaimedCall { claim, prepared, attempt: mut number, begins } = call;
    let (services, policy) = (&scope.services, scope.contract().map(|contract| contract.retry));
    let policy = policy.unwrap_or_default();
    let place = scope.place(&prepared);
    let prepared = match ready(scope, prepared, begins).await {
        Ok(prepared) => prepared,
        Err(error) if matches!(error.class(), Class::Retry | Class::Park) => return Err(error.at(place)),
        Err(error) => {
            let mut failure = Failure::from(&error);
            if failure.code == Kind::ToolCancelled {
                failure.code = Kind::ToolInterrupted;
            }
            return Ok(failed(failure));
        }
    };
    let mut changes = Vec::new();
    loop {
        scope.tell(&scope.call.key, |key| LiveEventKind::Running { key, attempt: number });
        let error = match attempt(scope, &prepared, AttemptNumber { number, of: policy.attempts }).await? {
            AttemptEnd::Completed(value) => {
                let (result, writes) = answer_of(scope, &prepared, value, &mut changes).await;
                scope.journal.note_all(changes).await;
                let (result, writes) = attach_if_oversized(scope, result, writes);
                return Ok((ToolOutcome::Done(result), writes));
            }
            AttemptEnd::Pending => return Ok((ToolOutcome::Pending, scope.storage.take_written().await?)),
            AttemptEnd::Interrupted(failure) => return Ok(failed(failure)),
            AttemptEnd::Failed(error) => error,
        };
        if !may_be_retried(&prepared, &error) || number >= policy.attempts {
            scope.release_open_payments("the call failed").await;
            let result = ToolResult::Err(Failure::from(&error));
            let result = scope.shown(&prepared, result, &mut changes).await;
            scope.journal.note_all(changes).await;
            return Ok((ToolOutcome::Done(result), CallWrites::default()));
        }
        tracing::warn!(%error, attempt = number, tool = %prepared.tool, "the tool call is tried again");
        services.models.metrics.tried_again(RetryKind::Tool);
        let pause = error
            .pause()
            .unwrap_or_else(|| backoff(policy.backoff, services.models.limits.backoff_most, number));
        services.models.clock.sleep(pause).await;
        number += 1;
        scope.begin_attempt(claim, number).await;
        if let Err(error) = scope.wait_for_rate_limits(scope.again()).await {
            return Ok(failed(Failure::from(&error)));
        }
    }
}

/// Waits until a call may begin, then resolves the references in its arguments.
pub(crate) async fn ready(
    scope: &ToolCallScope,
    prepared: PreparedCall,
    begins: CallPermit,
) -> Result<PreparedCall, Error> {
    let prepared = scope.admit(prepared).await?;
    scope.wait_for_rate_limits(begins).await?;
    let schema = scope.contract().map_or(&Value::Null, |contract| &contract.input);
    let whole = match scope.storage.held().call(&prepared, schema).await? {
        Cow::Owned(whole) => Some(whole),
        Cow::Borrowed(_) => None,
    };
    Ok(whole.unwrap_or(prepared))
}

/// Returns whether a call that failed like this may run again.
pub(crate) fn may_be_retried(prepared: &PreparedCall, error: &Error) -> bool {
    // If an at-most-once tool panicked or timed out, how far it got is unknown.
    let may_repeat = prepared.class.may_repeat() || error.kind() == Kind::ToolUnavailable;
    error.class() == Class::Retry && may_repeat
}

/// Runs one attempt of a call. The error is that of a turn that cannot go on.
pub(crate) async fn attempt(
    scope: &Arc<ToolCallScope>,
    prepared: &PreparedCall,
    number: AttemptNumber,
) -> Result<AttemptEnd, Error> {
    let ran = once(scope, prepared, number).await;
    // A call that a rule interrupted ends here, whatever the tool returns.
    if let Some(failure) = scope.journal.interrupted(&scope.call.key) {
        scope.release_open_payments("a rule ended the turn").await;
        return Ok(AttemptEnd::Interrupted(failure));
    }
    Ok(match ran {
        Ok(ToolRunOutcome::Completed(value)) => AttemptEnd::Completed(value),
        Ok(ToolRunOutcome::Pending) if scope.holds_money() => AttemptEnd::Failed(Error::new(
            Kind::ToolFailed,
            "a call that is completed from outside cannot keep reserved money",
        )),
        Ok(ToolRunOutcome::Pending) => AttemptEnd::Pending,
        // A journal that diverged inside the tool is not a result: the turn stops.
        Err(error) if error.kind() == Kind::JournalDiverged => return Err(error.at(scope.place(prepared))),
        // These errors mean that the call did not happen. A tool that ran cannot claim that.
        Err(error) if matches!(error.kind(), Kind::ToolInterrupted | Kind::BudgetExceeded) => {
            AttemptEnd::Failed(Error::new(Kind::ToolFailed, error.detail()))
        }
        Err(error) => AttemptEnd::Failed(error),
    })
}

/// Returns the result of a call whose tool returned a value, and what is written with it. Changes of hooks are added
/// to `changes`.
pub(crate) async fn answer_of(
    scope: &ToolCallScope,
    prepared: &PreparedCall,
    value: Value,
    changes: &mut Vec<Fact>,
) -> (ToolResult, CallWrites) {
    scope.release_open_payments("the call ended without settling it").await;
    let undo = undoable(&scope.resolved_agent, &scope.call.key, prepared, &value);
    let result = scope.shown(prepared, ToolResult::Ok(value), changes).await;
    match written_with(scope, &result).await {
        Ok(writes) => (result, CallWrites { undo, ..writes }),
        Err(error) => (ToolResult::Err(Failure::from(&error)), CallWrites { undo, ..CallWrites::default() }),
    }
}

async fn written_with(scope: &ToolCallScope, result: &ToolResult) -> Result<CallWrites, Error> {
    if let ToolResult::Ok(value) = result {
        limits::check("result_bytes", json_size(value), scope.services.models.limits.result_bytes)?;
    }
    scope.storage.take_written().await
}

/// Attaches an oversized result, and returns a preview of it for the model.
fn attach_if_oversized(
    scope: &ToolCallScope,
    result: ToolResult,
    mut writes: CallWrites,
) -> (ToolResult, CallWrites) {
    let Limits { result_shown_bytes, preview_bytes, .. } = *scope.services.models.limits;
    let reads_on = scope.resolved_agent.contracts.iter().any(|contract| contract.name.as_str() == READ_MORE);
    let value = match result {
        ToolResult::Ok(value) if json_size(&value) > result_shown_bytes => value,
        result => return (result, writes),
    };
    if !reads_on || scope.journal.tier == HostTier::Ephemeral {
        return (ToolResult::Ok(value), writes);
    }
    let (media_type, text) = match value {
        Value::String(text) => ("text/plain", text),
        value => ("application/json", value.to_string()),
    };
    let media_type = MediaType::try_from(media_type.to_owned());
    let file = match media_type.and_then(|media_type| Upload::new(media_type, None, text.as_bytes())) {
        Ok(file) => file,
        Err(error) => return (ToolResult::Err(Failure::from(&error)), writes),
    };
    let end = text.floor_char_boundary(preview_bytes);
    let shown = json!({
        "beginning": &text[..end],
        "bytes": text.len(),
        "attachment": file.attachment.id,
        "to_read_on": format!("call {READ_MORE} with this attachment and offset {end}"),
        "to_pass_on": format!("pass \"attachment:{}\" as an argument of a tool; it is given all of it", file.attachment.id),
    });
    writes.files.push(file);
    (ToolResult::Ok(shown), writes)
}

/// Runs one attempt under a deadline. A panic fails the attempt.
async fn once(
    scope: &Arc<ToolCallScope>,
    prepared: &PreparedCall,
    AttemptNumber { number, of }: AttemptNumber,
) -> Result<ToolRunOutcome, Error> {
    let provider = scope.resolved_agent.catalogue.provider(&prepared.tool)?;
    let facts = scope.facts(prepared, number, of);
    let mut run = AssertUnwindSafe(provider.execute(prepared, facts, scope.clone())).catch_unwind();
    let ran = match poll_immediate(&mut run).await {
        Some(ran) => Ok(ran),
        None => within_deadline(run, scope).await,
    };
    ran?.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
        let message = message
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "nothing".to_owned());
        Err(Error::new(Kind::ToolPanicked, format!("the tool panicked: {message}")))
    })
}

/// Waits for an attempt until its deadline. A parked call does not time out.
async fn within_deadline<T>(run: impl Future<Output = T> + Unpin, scope: &ToolCallScope) -> Result<T, Error> {
    let deadline = scope.contract().and_then(|contract| contract.deadline);
    let deadline = deadline.unwrap_or(scope.services.models.limits.tool_deadline);
    match select(run, scope.services.models.clock.sleep(deadline)).await {
        Either::Left((ran, _)) => Ok(ran),
        Either::Right(_) if scope.journal.is_parked() => std::future::pending().await,
        Either::Right(_) => {
            let detail = format!("the tool did not finish within {} ms", deadline.as_millis());
            Err(Error::new(Kind::ToolTimedOut, detail))
        }
    }
}
