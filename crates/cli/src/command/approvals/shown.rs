//! Questions and what is approved for sessions, as they are printed.
use crate::words;
use outlast::runtime::approvals::Question;
use outlast::vocab::approval::Given;
use outlast::vocab::canon;
use outlast::vocab::policy::{Ask, Verdict};
use outlast::votes::{Grant, Vote};
use serde_json::{Value, json};

/// A question with everything that somebody needs to decide it.
pub(super) fn question(question: &Question) -> String {
    let Question { id, session, turn, call, since, .. } = question;
    let mut lines = vec![id.to_string(), format!("  {} {}", call.tool, canon::to_string(&call.arguments))];
    if let Some(original) = &question.original {
        lines.push(format!("  the model asked for {}", canon::to_string(original)));
    }
    if let (None, Some(preview)) = (&question.original, preview(question)) {
        lines.extend(preview.lines().map(|line| format!("  would: {line}")));
    }
    if !call.labels.is_empty() {
        lines.push(format!("  untrusted text may have asked for it: {}", call.labels));
    }
    lines.push(format!("  asked {} in {session}, {turn}; {}", words::when(*since), wanted(question)));
    if !question.votes.is_empty() {
        lines.push(format!("  {}", votes(question)));
    }
    lines.extend(notices(question).map(|told| format!("  {told}")));
    lines.join("\n")
}

/// What the tool says the call would do.
pub(super) fn preview(question: &Question) -> Option<&str> {
    question.call.ruling.as_ref().and_then(|ruling| ruling.preview.as_deref())
}

/// The rule, whom it wants, and until when.
pub(super) fn wanted(question: &Question) -> String {
    let Question { call, ask, wait, .. } = question;
    let rule = call.ruling.as_ref().map(|ruling| ruling.rule.as_str()).unwrap_or_default();
    let until = wait.deadline.map(|at| format!(" until {}", words::when(at))).unwrap_or_default();
    format!("rule `{rule}` wants {}{until}", who(ask, question.given))
}

fn who(ask: &Ask, given: Given) -> String {
    let heard = ask.heard(given);
    match ask.needed() {
        _ if heard.is_empty() => "anybody".to_owned(),
        1 => heard.join(" or "),
        needed => format!("{needed} of {}", heard.join(", ")),
    }
}

/// What those who may approve were told since it was asked, if they were told anything.
pub(super) fn notices(question: &Question) -> Option<String> {
    let Given { reminded, escalated } = question.given;
    let reminders = (reminded > 0).then(|| words::count(reminded as usize, "reminder", "reminders"));
    let escalated = escalated.then(|| "escalated".to_owned());
    let told: Vec<String> = reminders.into_iter().chain(escalated).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Who has approved so far.
pub(super) fn votes(question: &Question) -> String {
    let said = |vote: &Vote| match vote.verdict {
        Verdict::Edit { .. } => format!("{} with a change", vote.by),
        Verdict::ApproveForSession => format!("{} for the session", vote.by),
        Verdict::Approve | Verdict::Deny { .. } => vote.by.clone(),
    };
    let names: Vec<String> = question.votes.iter().map(said).collect();
    format!("{} of {} approvals: {}", question.votes.len(), question.ask.needed(), names.join(", "))
}

/// The same as JSON.
pub(super) fn question_json(question: &Question) -> Value {
    let Question { id, session, turn, call, original, ask, votes, given, since, wait, .. } = question;
    let Given { reminded, escalated } = given;
    let votes: Vec<Value> =
        votes.iter().map(|vote| json!({ "by": vote.by, "at": vote.at, "verdict": vote.verdict })).collect();
    json!({
        "id": id, "session": session, "turn": turn, "tool": call.tool, "arguments": call.arguments,
        "original": original, "labels": call.labels, "preview": preview(question), "rule": call.ruling.as_ref().map(|ruling| &ruling.rule),
        "ask": ask, "votes": votes, "reminded": reminded, "escalated": escalated, "since": since, "until": wait.deadline,
    })
}

/// What is approved for the rest of a session.
pub(super) fn grant(grant: &Grant) -> String {
    let Grant { id, session, tool, rule, labels, by, at, .. } = grant;
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("\n  also where untrusted text may have asked for it: {labels}")
    };
    format!(
        "{id}\n  {tool} in {session}, where rule `{rule}` would ask{labels}\n  given {} by {}",
        words::when(*at),
        by.join(" and "),
    )
}

/// The same as JSON.
pub(super) fn grant_json(grant: &Grant) -> Value {
    let Grant { id, session, tool, rule, labels, by, at, .. } = grant;
    json!({ "id": id, "session": session, "tool": tool, "rule": rule, "labels": labels, "by": by, "at": at })
}
