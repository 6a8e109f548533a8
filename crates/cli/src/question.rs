//! Questions of a turn to a person: found in its records, printed, and answered.
//!
//! The question of an `ask_user` call is in its arguments. Any other tool that asks during a call records the
//! question as a durable step, and waits for an event with the same name.
use crate::backend::CommandBackend;
use crate::formatting;
use outlast::store::SessionView;
use outlast::tools::{ASK_USER, UserQuestion};
use outlast::views::{BlockingWait, Unblocker};
use outlast::vocab::ReplayKey;
use outlast::vocab::effect::{BatchCall, Command, Outcome, StepOutcome};
use outlast::vocab::record::{EffectPerformed, EffectRequested, Fact, Record};
use outlast::vocab::wait::{CompletionKey, Wait, WaitKind};
use outlast::{Error, TurnId};
use serde::Deserialize;
use std::fmt::Write as _;

/// A question without an answer.
pub(crate) struct OpenQuestion {
    pub(crate) key: CompletionKey,
    pub(crate) question: UserQuestion,
}

/// Returns the first question that a session waits for.
pub(crate) async fn open(
    backend: &CommandBackend,
    session: &SessionView,
) -> Result<Option<OpenQuestion>, Error> {
    let Some(turn) = session.active.filter(|_| !session.waits.is_empty()) else { return Ok(None) };
    let records = backend.turn_records(turn).await?;
    for wait in &session.waits {
        if let Some(question) = find_question(&records, &wait.key)
            && let Some(key) = backend.key_of(turn, &wait.key).await?
        {
            return Ok(Some(OpenQuestion { key, question }));
        }
    }
    Ok(None)
}

/// Describes the waits of a turn, and how to resolve each.
pub(crate) async fn waits(
    backend: &CommandBackend,
    turn: TurnId,
    waits: &[Wait],
) -> Result<Vec<String>, Error> {
    let records = backend.turn_records(turn).await?;
    let is_approval = |wait: &Wait| wait.kind == WaitKind::Approval;
    let blocked = match backend {
        CommandBackend::File(_) if waits.iter().any(is_approval) => {
            backend.why(&turn.to_string()).await?.waits
        }
        // A server knows who approves by the key of the request.
        CommandBackend::File(_) | CommandBackend::Server(_) => Vec::new(),
    };
    let mut lines = Vec::new();
    for wait in waits {
        let key = backend.key_of(turn, &wait.key).await?;
        let shown = key.map_or_else(|| "KEY".to_owned(), |key| key.to_string());
        lines.push(match find_question(&records, &wait.key) {
            Some(question) => {
                format!("asks: {}\n  outlast resolve {shown} --text ANSWER", question_text(&question))
            }
            None => formatting::wait(turn, &shown, wait, approvers(&blocked, wait)),
        });
    }
    Ok(lines)
}

/// Returns who may approve the call that waits here. Empty if anyone may, or if the command need not name them.
fn approvers<'a>(blocked: &'a [BlockingWait], wait: &Wait) -> &'a [String] {
    let its = blocked.iter().find(|blocked| blocked.wait.key == wait.key);
    match its.map(|its| &its.unblocked_by) {
        Some(Unblocker::Approval { who, .. }) => who,
        _ => &[],
    }
}

/// Formats a question and its options, one per line.
fn question_text(question: &UserQuestion) -> String {
    let mut said = question.question.clone();
    for (index, option) in question.options.iter().enumerate() {
        let _ = write!(said, "\n  {}. {option}", index + 1);
    }
    said
}

/// Returns the question of a wait.
fn find_question(records: &[Record], wait: &ReplayKey) -> Option<UserQuestion> {
    let step = wait.as_str().replace("/event:", "/step:");
    records.iter().rev().find_map(|record| match &record.fact {
        Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
            let calls = batch.calls.iter().enumerate();
            let mut calls = calls
                .filter(|(child, call)| key.child(*child, call.model_id().as_str()).completion() == *wait);
            match calls.next() {
                Some((_, BatchCall::Run(call))) if call.tool.as_str() == ASK_USER => {
                    UserQuestion::deserialize(&call.arguments).ok()
                }
                _ => None,
            }
        }
        Fact::Performed(EffectPerformed {
            key,
            outcome: Outcome::DurableStep(StepOutcome::Value(value)),
            ..
        }) if key.as_str() == step => UserQuestion::deserialize(value).ok(),
        _ => None,
    })
}
