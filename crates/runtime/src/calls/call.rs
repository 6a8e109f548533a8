//! Runs one tool call to its outcome: attempts, deadline and panics.
use crate::calls::tool_call_scope::{CallWrites, ToolCallScope, call};
use crate::calls::tools::{CallCompletion, contract, whole};
use crate::turn::drive::ActiveTurn;
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
use outlast_vocab::record::ClaimRef;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Class, Error, ErrorPlace, Failure, Kind, Limits};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The tool that lets a model read the rest of a truncated result.
pub(crate) const READ_MORE: &str = "read_more";

/// Runs one call to its outcome and counts it in the metrics.
pub(crate) async fn perform(
    turn: &ActiveTurn<'_>,
    index: usize,
    claim: ClaimRef,
    prepared: PreparedCall,
    first: u32,
    scope: Arc<ToolCallScope>,
) -> Result<CallCompletion, Error> {
    let (name, began) = (prepared.tool.clone(), turn.services.clock.elapsed());
    let completion = attempts(turn, index, claim, prepared, first, scope).await?;
    if let CallCompletion::Ran(_, ToolOutcome::Done(result), _) = &completion {
        let failure = if let ToolResult::Err(failure) = result { Some(failure) } else { None };
        let took = turn.services.clock.elapsed().saturating_sub(began);
        turn.services.metrics.called(name.as_str(), took, failure);
    }
    Ok(completion)
}

/// Runs one call until it has an outcome, with the retries that its policy allows.
async fn attempts(
    turn: &ActiveTurn<'_>,
    index: usize,
    claim: ClaimRef,
    prepared: PreparedCall,
    first: u32,
    scope: Arc<ToolCallScope>,
) -> Result<CallCompletion, Error> {
    let policy = contract(turn, &prepared).map(|contract| contract.retry).unwrap_or_default();
    let id = prepared.id;
    let prepared = match ready(turn, prepared, &scope).await {
        Ok(prepared) => prepared,
        Err(error) if matches!(error.class(), Class::Retry | Class::Park) => {
            return Err(error.at(ErrorPlace { call: Some(id), ..turn.at_effect(&scope.key) }));
        }
        Err(error) => {
            let mut failure = Failure::from(&error);
            if failure.code == Kind::ToolCancelled {
                failure.code = Kind::ToolInterrupted;
            }
            let result = ToolResult::Err(failure);
            return Ok(CallCompletion::Ran(index, ToolOutcome::Done(result), CallWrites::default()));
        }
    };
    let shown = |result| scope.shown(&prepared, result);
    let mut attempt = first;
    loop {
        turn.tell(|| LiveEventKind::Running { key: scope.key.clone(), attempt });
        let ran = once(turn, &prepared, attempt, policy.attempts, &scope).await;
        // A call that a rule interrupted ends here, whatever the tool returns.
        if let Some(failure) = scope.interrupted() {
            scope.release_open_payments("a rule ended the turn").await;
            let result = ToolResult::Err(failure);
            return Ok(CallCompletion::Ran(index, ToolOutcome::Done(result), CallWrites::default()));
        }
        let error = match ran {
            Ok(ToolRunOutcome::Completed(value)) => {
                scope.release_open_payments("the call ended without settling it").await;
                let undo = undoable(turn.resolved_agent, &scope.key, &prepared, &value);
                let (result, written) =
                    match attach_if_oversized(turn, shown(ToolResult::Ok(value)).await, &scope).await {
                        Ok(brought) => brought,
                        Err(error) => (ToolResult::Err(Failure::from(&error)), CallWrites::default()),
                    };
                return Ok(CallCompletion::Ran(
                    index,
                    ToolOutcome::Done(result),
                    CallWrites { undo, ..written },
                ));
            }
            Ok(ToolRunOutcome::Pending) if scope.holds_money() => Error::new(
                Kind::ToolFailed,
                "a call that is completed from outside cannot keep money set aside",
            ),
            Ok(ToolRunOutcome::Pending) => {
                return Ok(CallCompletion::Ran(index, ToolOutcome::Pending, scope.take_written().await?));
            }
            // A journal that diverged inside the tool is not a result: the turn stops.
            Err(error) if error.kind() == Kind::JournalDiverged => {
                return Err(error.at(ErrorPlace { call: Some(id), ..turn.at_effect(&scope.key) }));
            }
            // These errors mean that the call did not happen. A tool that ran cannot claim that.
            Err(error) if matches!(error.kind(), Kind::ToolInterrupted | Kind::BudgetExceeded) => {
                Error::new(Kind::ToolFailed, error.detail())
            }
            Err(error) => error,
        };
        // If an at-most-once tool panicked or timed out, how far it got is unknown.
        let may_repeat = prepared.class.may_repeat() || error.kind() == Kind::ToolUnavailable;
        if error.class() != Class::Retry || !may_repeat || attempt >= policy.attempts {
            scope.release_open_payments("the call failed").await;
            let result = shown(ToolResult::Err(Failure::from(&error))).await;
            return Ok(CallCompletion::Ran(index, ToolOutcome::Done(result), CallWrites::default()));
        }
        tracing::warn!(%error, attempt, tool = %prepared.tool, "the tool call is tried again");
        turn.services.metrics.tried_again(RetryKind::Tool);
        let longest = turn.services.limits.backoff_most;
        let pause = error.pause().unwrap_or_else(|| backoff(policy.backoff, longest, attempt));
        turn.services.clock.sleep(pause).await;
        attempt += 1;
        scope.begin_attempt(claim, attempt).await;
        if let Err(error) = scope.wait_for_rate_limits(&scope.key, &prepared.tool, scope.again()).await {
            let result = ToolResult::Err(Failure::from(&error));
            return Ok(CallCompletion::Ran(index, ToolOutcome::Done(result), CallWrites::default()));
        }
    }
}

/// Waits until the call may begin, then resolves the references in its arguments.
async fn ready(
    turn: &ActiveTurn<'_>,
    prepared: PreparedCall,
    scope: &ToolCallScope,
) -> Result<PreparedCall, Error> {
    let prepared = scope.admit(prepared).await?;
    scope.wait_for_rate_limits(&scope.key, &prepared.tool, scope.begins).await?;
    let whole = match whole(turn, &prepared, &scope.held()).await? {
        Cow::Owned(whole) => Some(whole),
        Cow::Borrowed(_) => None,
    };
    Ok(whole.unwrap_or(prepared))
}

/// Returns the result and everything that is written with it. An oversized result is attached, and the model
/// gets a preview.
async fn attach_if_oversized(
    turn: &ActiveTurn<'_>,
    result: ToolResult,
    scope: &ToolCallScope,
) -> Result<(ToolResult, CallWrites), Error> {
    let ToolResult::Ok(value) = result else { return Ok((result, scope.take_written().await?)) };
    let Limits { result_bytes, result_shown_bytes, preview_bytes, .. } = turn.services.limits;
    let size = json_size(&value);
    limits::check("result_bytes", size, result_bytes)?;
    let mut written = scope.take_written().await?;
    let reads_on = turn.resolved_agent.contracts.iter().any(|contract| contract.name.as_str() == READ_MORE);
    if size <= result_shown_bytes || !reads_on || scope.tier == HostTier::Ephemeral {
        return Ok((ToolResult::Ok(value), written));
    }
    let (media_type, text) = match value {
        Value::String(text) => ("text/plain", text),
        value => ("application/json", value.to_string()),
    };
    let file = Upload::new(MediaType::try_from(media_type.to_owned())?, None, text.as_bytes())?;
    let end = text.floor_char_boundary(preview_bytes);
    let shown = json!({
        "beginning": &text[..end],
        "bytes": text.len(),
        "attachment": file.attachment.id,
        "to_read_on": format!("call {READ_MORE} with this attachment and offset {end}"),
        "to_pass_on": format!("pass \"attachment:{}\" as an argument of a tool; it is given all of it", file.attachment.id),
    });
    written.files.push(file);
    Ok((ToolResult::Ok(shown), written))
}

/// Runs one attempt under a deadline. A panic fails the attempt.
async fn once(
    turn: &ActiveTurn<'_>,
    prepared: &PreparedCall,
    attempt: u32,
    attempts: u32,
    scope: &Arc<ToolCallScope>,
) -> Result<ToolRunOutcome, Error> {
    let provider = turn.resolved_agent.catalogue.provider(&prepared.tool)?;
    let facts = call(scope, prepared, attempt, attempts);
    let mut run = AssertUnwindSafe(provider.execute(prepared, facts, scope.clone())).catch_unwind();
    let ran = match poll_immediate(&mut run).await {
        Some(ran) => Ok(ran),
        None => within_deadline(turn, prepared, run, scope).await,
    };
    ran?.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
        let message = message
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "nothing".to_owned());
        Err(Error::new(Kind::ToolPanicked, format!("the tool panicked and said: {message}")))
    })
}

/// Waits for an attempt until its deadline. A parked call does not time out.
async fn within_deadline<T>(
    turn: &ActiveTurn<'_>,
    prepared: &PreparedCall,
    run: impl Future<Output = T> + Unpin,
    scope: &ToolCallScope,
) -> Result<T, Error> {
    let deadline = contract(turn, prepared).and_then(|contract| contract.deadline);
    let deadline = deadline.unwrap_or(turn.services.limits.tool_deadline);
    match select(run, turn.services.clock.sleep(deadline)).await {
        Either::Left((ran, _)) => Ok(ran),
        Either::Right(_) if scope.is_parked() => std::future::pending().await,
        Either::Right(_) => {
            let detail = format!("the tool did not finish within {} ms", deadline.as_millis());
            Err(Error::new(Kind::ToolTimedOut, detail))
        }
    }
}
