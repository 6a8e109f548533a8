//! Formats times, facts, waits and ends for people.
use crate::terminal::one_line;
use outlast::TurnId;
use outlast::vocab::Millis;
use outlast::vocab::approval::approval_id;
use outlast::vocab::effect::{
    BatchCall, Command, ModelOutcome, Outcome, StepOutcome, SyncOutcome, ToolOutcome,
};
use outlast::vocab::id::ApprovalId;
use outlast::vocab::message::{CallArguments, ToolResult, ToolUse, text_of};
use outlast::vocab::payment::{Payment, PaymentOrder, PaymentState};
use outlast::vocab::policy::{self, Approval};
use outlast::vocab::rate::{RateLimitOutcome, RateLimited};
use outlast::vocab::record::{
    AttemptsFailed, CompactionMethod, EffectPerformed, Fact, FailedAttempt, HookApplied, InterruptedReply,
    NodeRef, OutcomeVerdict, PolicyDecided, Record, ReplyInterruption, TurnEnd, TurnResumed, UndoableCall,
};
use outlast::vocab::tool::UndoCall;
use outlast::vocab::wait::{Resolution, Wait, WaitKind};
use std::borrow::Cow;

/// The maximum length of a quoted text, in characters.
const TEXT_LETTERS: usize = 72;

/// Formats a point in time.
pub(crate) fn when(at: Millis) -> String {
    let timestamp = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    timestamp.map_or_else(|| format!("{} ms", at.0), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Formats a number with its noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// Formats a text in quotes, on one line and truncated.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", one_line(text, TEXT_LETTERS))
}

/// Formats a call as the model requested it.
pub(crate) fn call(ask: &ToolUse) -> String {
    let arguments = match &ask.arguments {
        CallArguments::Json(value) => Cow::Owned(value.to_string()),
        CallArguments::Broken(text) => Cow::Borrowed(text.as_str()),
    };
    format!("{} {}", ask.tool, one_line(&arguments, TEXT_LETTERS))
}

/// Formats a call as it was claimed.
pub(crate) fn claimed(call: &BatchCall) -> String {
    match call {
        BatchCall::Run(call) => {
            let rule = call.ruling.as_ref().map(|ruling| match &ruling.grant {
                None => format!(" (rule `{}`)", ruling.rule),
                Some(grant) => {
                    format!(
                        " (rule `{}`, approved for the session by {})",
                        ruling.rule,
                        grant.by.join(" and ")
                    )
                }
            });
            let arguments = one_line(&call.arguments.to_string(), TEXT_LETTERS);
            format!("{} {arguments}{}", call.tool, rule.unwrap_or_default())
        }
        BatchCall::Refused(refused) => format!("{} refused: {}", refused.tool, refused.failure),
    }
}

/// Formats the outcome of a call.
pub(crate) fn outcome(outcome: &ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Done(result) => self::result(result),
        ToolOutcome::Pending => "waits to be completed from outside".to_owned(),
        ToolOutcome::Unknown => "unknown outcome; see `outlast unknown`".to_owned(),
    }
}

/// Formats the result of a tool.
pub(crate) fn result(result: &ToolResult) -> String {
    one_line(&result.text(), TEXT_LETTERS)
}

/// Formats the resolution of a wait.
pub(crate) fn resolution(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Ok(value) => format!("ok {}", one_line(&value.to_string(), TEXT_LETTERS)),
        Resolution::Err(failure) => format!("error {failure}"),
        Resolution::Timeout => "timeout".to_owned(),
        Resolution::Cancelled => "cancelled".to_owned(),
    }
}

/// Formats the decision about an approval.
pub(crate) fn approval(approval: &Approval) -> String {
    let names: Vec<&str> = approval.with.iter().chain([&approval.by]).map(String::as_str).collect();
    let by = names.join(" and ");
    match &approval.verdict {
        policy::ApprovalVerdict::Approve => format!("{by} approved it"),
        policy::ApprovalVerdict::ApproveForSession => {
            format!("{by} approved it, and calls like it in this session")
        }
        policy::ApprovalVerdict::Deny { reason } => {
            format!("{by} denied it: {}", one_line(reason, TEXT_LETTERS))
        }
        policy::ApprovalVerdict::Edit { arguments } => {
            format!("{by} approved it as {}", one_line(&arguments.to_string(), TEXT_LETTERS))
        }
    }
}

/// Formats the end of a turn.
pub(crate) fn end(end: &TurnEnd) -> String {
    let name = end.name().replace('_', " ");
    match end {
        TurnEnd::Answered { text } | TurnEnd::Refused { text } => format!("{name}: {}", quoted(text)),
        TurnEnd::OutOfModelCalls { limit } => format!("{name}: {limit} were allowed"),
        TurnEnd::OutOfBudget { budget, why: Some(why) } => format!("{name}: {budget}: {why}"),
        TurnEnd::OutOfBudget { budget, why: None } => format!("{name}: {budget}"),
        TurnEnd::Cancelled { reason } | TurnEnd::Abandoned { reason } => {
            format!("{name}: {}", one_line(reason, TEXT_LETTERS))
        }
        TurnEnd::Aborted { reason, undone, left } => {
            let undone = format!("{} undone", count(*undone as usize, "call", "calls"));
            let left = if *left == 0 { String::new() } else { format!(", {left} not") };
            format!("{name}: {} ({undone}{left})", one_line(reason, TEXT_LETTERS))
        }
        TurnEnd::Failed { failure } => format!("{name}: {failure}"),
        TurnEnd::Sealed { claims, alone, hung } => {
            format!("{name}: {}", TurnEnd::sealed_because(*claims, *alone, *hung))
        }
        TurnEnd::Joined { into } => format!("{name} {into}"),
    }
}

/// Returns the command that approves a call. If the approval names people, it is the command of the first of them.
pub(crate) fn approve_command(id: ApprovalId, who: &[String]) -> String {
    let by = who.first().map(|name| format!(" --by {name}")).unwrap_or_default();
    format!("outlast approvals approve {id}{by}")
}

/// Formats a wait of a turn, and how to resolve it. `who` may approve, if it is a wait for an approval.
pub(crate) fn wait(turn: TurnId, key: &str, wait: &Wait, who: &[String]) -> String {
    if is_stuck(wait) {
        return format!("is stuck; once the cause is fixed: outlast retry {turn}");
    }
    let until = wait.deadline.map(|deadline| format!(" until {}", when(deadline))).unwrap_or_default();
    if wait.kind == WaitKind::Sleep {
        return format!("sleeps{until}");
    }
    if wait.kind == WaitKind::Provider {
        let name = wait.key.awaited_provider().map(|name| format!(" `{name}`")).unwrap_or_default();
        let next = until.replace(" until ", "; next attempt at ");
        return format!("waits for its model provider{name}{next}\n  to retry now: outlast retry {turn}");
    }
    if wait.kind == WaitKind::Approval {
        let command = approve_command(approval_id(turn, &wait.key), who);
        return format!("waits for an approval{until}\n  {command}");
    }
    if wait.kind == WaitKind::Budget {
        return format!("waits for a higher budget{until}\n  outlast budgets");
    }
    format!("waits for {} at {}{until}\n  outlast resolve {key} --ok JSON", wait.kind.name(), wait.key)
}

/// Returns whether a turn is stuck and waits for a person.
pub(crate) fn is_stuck(wait: &Wait) -> bool {
    wait.kind == WaitKind::Event && wait.key.is_stuck()
}

/// Formats a record as one line.
pub(crate) fn record(record: &Record) -> String {
    format!("#{} {} {}", record.seq, record.fact.name(), fact(&record.fact)).trim_end().to_owned()
}

/// Formats a fact.
pub(crate) fn fact(fact: &Fact) -> String {
    match fact {
        Fact::Opened { key, forked_from } => {
            let key = key.as_ref().map(|key| format!("key `{key}`"));
            let from = forked_from.map(|node| format!("forked from {}", place(Some(node))));
            key.into_iter().chain(from).collect::<Vec<_>>().join(", ")
        }
        Fact::HeadMoved { head, to } => format!("{head} to {}", place(*to)),
        Fact::Accepted(accepted) => quoted(&text_of(&accepted.parts)),
        Fact::Started(started) => format!("on {} after {}", started.head, place(started.parent)),
        Fact::Asked(asked) => match &asked.command {
            Command::ToolBatch(batch) => batch.calls.iter().map(claimed).collect::<Vec<_>>().join("; "),
            command => format!("{} {}", command.kind(), asked.key),
        },
        Fact::Answered(answered) => {
            let claim = format!("call {} of #{}", answered.claim.child, answered.claim.asked);
            format!("{claim}: {}", effect_outcome(&answered.outcome))
        }
        Fact::Performed(EffectPerformed { key, outcome, tried, .. }) if tried.is_empty() => {
            format!("{key}: {}", effect_outcome(outcome))
        }
        Fact::Performed(EffectPerformed { key, outcome, tried, .. }) => {
            format!("{key}: {}, after {}", effect_outcome(outcome), failed(tried))
        }
        Fact::Resumed(TurnResumed { worker, lease, since }) => {
            format!("by {worker}, lease {lease}, since {}", when(*since))
        }
        Fact::Tried(AttemptsFailed { key, attempts }) => format!("{key}: {}", failed(attempts)),
        Fact::Interrupted(InterruptedReply { key, cause, text, .. }) => match cause {
            ReplyInterruption::Cancelled => format!("{key}: {}", quoted(text)),
            ReplyInterruption::BrokeOff => format!("{key}: the stream broke off"),
            ReplyInterruption::Lost => format!("{key}: its result is lost"),
        },
        Fact::Reclaimed(reclaimed) => {
            let claim = reclaimed.claim;
            format!("call {} of #{}, attempt {}", claim.child, claim.asked, reclaimed.attempt)
        }
        Fact::Parked { waits } => {
            let waits = waits.iter().map(|wait| format!("{} at {}", wait.kind.name(), wait.key));
            waits.collect::<Vec<_>>().join("; ")
        }
        Fact::Stuck { failure } => failure.to_string(),
        Fact::Resolved { key, resolution } => format!("{key}: {}", self::resolution(resolution)),
        Fact::CancelRequested { reason, undo: false, .. } => one_line(reason, TEXT_LETTERS),
        Fact::EnvironmentRequested(change) => format!("package {}", change.environment.package),
        Fact::CancelRequested { reason, undo: true, .. } => {
            format!("{}; its calls will be undone", one_line(reason, TEXT_LETTERS))
        }
        Fact::Undoable(UndoableCall { key, undo: UndoCall { tool, arguments } }) => {
            format!("{key}: by {tool} {}", one_line(&arguments.to_string(), TEXT_LETTERS))
        }
        Fact::Hooked(HookApplied { key, hook, patch, .. }) => {
            let patch = serde_json::to_string(patch).unwrap_or_default();
            format!("{key}: by {hook} {}", one_line(&patch, TEXT_LETTERS))
        }
        Fact::Ruled(PolicyDecided { key, at, ruling, .. }) => {
            format!("{key}: {} at {at} by {}", ruling.decision.name(), ruling.rule)
        }
        Fact::Payment(Payment { id, order, state, .. }) => {
            let PaymentOrder { payee, amount, purpose } = order;
            let state = match state {
                PaymentState::Asked => "asked".to_owned(),
                PaymentState::Reserved => "reserved".to_owned(),
                PaymentState::Settling => "to be settled".to_owned(),
                PaymentState::Releasing { reason } => format!("to be released: {reason}"),
                PaymentState::Settled { receipt } => format!("settled, {receipt}"),
                PaymentState::Released { reason } => format!("released: {reason}"),
            };
            format!("{id}: {amount} to {payee} for {} {state}", quoted(purpose))
        }
        Fact::Paced(RateLimited { key, rate, pace }) => match pace {
            RateLimitOutcome::Waits { until } => format!("{key}: waits for `{rate}` until {}", when(*until)),
            RateLimitOutcome::Goes => format!("{key}: admitted by `{rate}`"),
            RateLimitOutcome::Refused { failure } => format!("{key}: {failure}"),
        },
        Fact::Reminded { key, number } => format!("{key}: reminder {number}"),
        Fact::Escalated { key, to } => format!("{key}: {} may approve too", to.join(" and ")),
        Fact::Repaired { calls } => count(calls.len(), "call", "calls"),
        Fact::Compacted(compacted) => match &compacted.shorter {
            CompactionMethod::Results => "long results are omitted".to_owned(),
            CompactionMethod::Summary { text, .. } => one_line(text, TEXT_LETTERS),
            CompactionMethod::Texts { most } => format!("texts over {most} bytes are cut"),
        },
        Fact::Settled(settled) => {
            let claim = settled.claim;
            format!("call {} of #{}: {}", claim.child, claim.asked, verdict(&settled.verdict))
        }
        Fact::Ended { end } => self::end(end),
    }
}

/// Formats the failed attempts of a model call.
fn failed(attempts: &[FailedAttempt]) -> String {
    let why = attempts.iter().map(|failed| format!("#{} {}", failed.attempt, failed.failure));
    let why = one_line(&why.collect::<Vec<_>>().join("; "), TEXT_LETTERS);
    format!("{} ({why})", count(attempts.len(), "failed attempt", "failed attempts"))
}

/// Formats a person's finding about a call.
pub(crate) fn verdict(verdict: &OutcomeVerdict) -> String {
    match verdict {
        OutcomeVerdict::Happened(result) => format!("happened: {}", self::result(result)),
        OutcomeVerdict::DidNotHappen => "did not happen".to_owned(),
    }
}

/// Formats a position in the session tree.
pub(crate) fn place(node: Option<NodeRef>) -> String {
    node.map_or_else(|| "the beginning".to_owned(), |node| format!("#{} of {}", node.seq, node.session))
}

fn effect_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::ModelCall(ModelOutcome::Reply(reply)) => {
            let text = Some(text_of(&reply.parts)).filter(|text| !text.is_empty());
            let text = text.map(|text| quoted(&text));
            text.into_iter().chain(reply.calls.iter().map(call)).collect::<Vec<_>>().join("; ")
        }
        Outcome::ModelCall(ModelOutcome::Failed(failed)) => format!("failed: {}", failed.failure),
        Outcome::ToolCall(outcome) => self::outcome(outcome),
        Outcome::DurableStep(StepOutcome::Value(value)) => one_line(&value.to_string(), TEXT_LETTERS),
        Outcome::DurableStep(StepOutcome::Failed(failure)) => format!("failed: {failure}"),
        Outcome::AwaitEvent(resolution) => self::resolution(resolution),
        Outcome::SyncEnvironment(SyncOutcome(None)) => "the same configuration".to_owned(),
        Outcome::SyncEnvironment(SyncOutcome(Some(environment))) => {
            format!("package {}", environment.package)
        }
        Outcome::Checkpoint(joined) => count(joined.inputs.len(), "input joined", "inputs joined"),
        outcome => outcome.kind().name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_formatted_in_utc() {
        assert_eq!(when(Millis(1_783_074_030_000)), "2026-07-03 10:20:30Z");
        assert_eq!(when(Millis(u64::MAX)), "18446744073709551615 ms");
    }
}
