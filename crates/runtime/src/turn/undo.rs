//! Stops a turn that was cancelled or aborted, and undoes the calls of an aborted one.
use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::tool_runner::ToolRunner;
use crate::calls::tools;
use crate::turn::cancel::cancel;
use crate::turn::host::{DriveOutcome, Host, TurnJournal};
use outlast_kernel::step::{self, Step};
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::payment::Payment;
use outlast_vocab::record::UndoableCall;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, ReplayKey};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Ends a cancelled turn. An aborted turn first undoes its calls, newest first. An undo call that fails is counted and
/// does not stop the others.
pub(crate) async fn stop<H: Host>(
    runner: &ToolRunner<'_>,
    reason: String,
    host: &mut H,
) -> Result<DriveOutcome, Error> {
    host.reread().await?;
    let facts = runner.services.payments.free_all(to_free(host), &reason).await;
    host.buffer_facts(facts);
    if !host.history().aborted() {
        let end = host.history().end_stopped(runner.run.index, reason);
        return host.finish(end.into()).await;
    }
    // The cancel request has been handled, and must not cancel the undo calls.
    let (_, never) = cancel();
    let runner = &ToolRunner { cancel: never, ..*runner };
    let index = runner.run.index;
    let mut step = step::begin_undo(index, host.history().undo_calls(index), reason);
    loop {
        step = match step {
            Step::RunTools(batch) => tools::run(runner, batch, host).await?,
            Step::Done(done) => return host.finish(done).await,
            Step::CallModel(_) | Step::Checkpoint(_) | Step::Wait(_) => {
                unreachable!("a turn that stops asks for nothing new and waits for nothing")
            }
        };
    }
}

/// Returns the open payments of calls that did not happen. Payments of calls with unknown outcome stay reserved.
fn to_free<H: TurnJournal>(host: &H) -> Vec<Payment> {
    let history = host.history();
    let known = history.calls().filter(|(_, call)| call.outcome != Some(ToolOutcome::Unknown));
    known.flat_map(|(key, _)| history.open_payments(&key).cloned().collect::<Vec<_>>()).collect()
}

/// Returns how to undo a call with this result, if it can be undone.
pub(crate) fn undoable(
    resolved_agent: &ResolvedAgent,
    key: &ReplayKey,
    prepared: &PreparedCall,
    result: &Value,
) -> Option<UndoableCall> {
    let provider = resolved_agent.catalogue.provider(&prepared.tool).ok()?;
    let undo = catch_unwind(AssertUnwindSafe(|| provider.undo(prepared, result)));
    let undo = undo.unwrap_or_else(|_| {
        tracing::error!(tool = %prepared.tool, "the tool panicked when it was asked how to undo its call");
        None
    })?;
    Some(UndoableCall { key: key.clone(), undo })
}
