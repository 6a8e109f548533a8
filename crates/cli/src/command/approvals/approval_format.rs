//! Formats questions for approval and grants for sessions, as text and JSON.
use crate::formatting;
use outlast::store::ResolveResult;
use outlast::vocab::canonical_json;
use outlast::vocab::message::RuleId;
use outlast::vocab::policy::ApprovalVerdict;
use outlast::votes::VoteOutcome;
use outlast_client::api::waits::{ApprovalResource, GrantResource, VoteResource};
use serde_json::{Value, json};

/// Formats a question with all details that the decision needs.
pub(super) fn question(question: &ApprovalResource) -> String {
    let ApprovalResource { id, session, turn, tool, arguments, since, .. } = question;
    let mut lines = vec![id.to_string(), format!("  {tool} {}", canonical_json::to_string(arguments))];
    if let Some(original) = &question.original {
        lines.push(format!("  the model asked for {}", canonical_json::to_string(original)));
    }
    if let (None, Some(preview)) = (&question.original, &question.preview) {
        lines.extend(preview.lines().map(|line| format!("  would: {line}")));
    }
    if !question.labels.is_empty() {
        lines.push(format!("  untrusted text may have caused it: {}", question.labels));
    }
    if !question.provenance.is_empty() {
        lines.push(format!("  sinks: {}", question.provenance));
    }
    lines.extend(question.ask.reason.iter().map(|reason| format!("  because: {reason}")));
    lines.push(format!("  asked {} in {session}, {turn}; {}", formatting::when(*since), wanted(question)));
    if !question.ballots.is_empty() {
        lines.push(format!("  {}", votes(question)));
    }
    lines.extend(notices(question).map(|notice| format!("  {notice}")));
    lines.join("\n")
}

/// Formats the rule, who may approve, and the deadline.
pub(super) fn wanted(question: &ApprovalResource) -> String {
    let ApprovalResource { rule, expires, .. } = question;
    let rule = rule.as_ref().map(RuleId::as_str).unwrap_or_default();
    let until = expires.map(|at| format!(" until {}", formatting::when(at))).unwrap_or_default();
    format!("rule `{rule}` requires approval by {}{until}", who(question))
}

fn who(ApprovalResource { who, needed, .. }: &ApprovalResource) -> String {
    match needed {
        _ if who.is_empty() => "anyone".to_owned(),
        1 => who.join(" or "),
        needed => format!("{needed} of {}", who.join(", ")),
    }
}

/// Formats the reminders and the escalation that approvers received, if any.
pub(super) fn notices(question: &ApprovalResource) -> Option<String> {
    let ApprovalResource { reminded, escalated, .. } = question;
    let reminders = (*reminded > 0).then(|| formatting::count(*reminded as usize, "reminder", "reminders"));
    let escalated = escalated.then(|| "escalated".to_owned());
    let sent: Vec<String> = reminders.into_iter().chain(escalated).collect();
    (!sent.is_empty()).then(|| sent.join(", "))
}

/// Formats the approvals so far.
pub(super) fn votes(question: &ApprovalResource) -> String {
    let said = |vote: &VoteResource| match vote.verdict {
        ApprovalVerdict::Edit { .. } => format!("{} with a change", vote.by),
        ApprovalVerdict::ApproveForSession => format!("{} for the session", vote.by),
        ApprovalVerdict::Approve | ApprovalVerdict::Deny { .. } => vote.by.clone(),
    };
    let names: Vec<String> = question.ballots.iter().map(said).collect();
    format!("{} of {} approvals: {}", names.len(), question.needed, names.join(", "))
}

/// Returns a question as JSON.
pub(super) fn question_json(question: &ApprovalResource) -> Value {
    let ApprovalResource { id, session, turn, tool, arguments, original, ask, since, .. } = question;
    let ApprovalResource { labels, provenance, rule, preview, .. } = question;
    let ApprovalResource { ballots, reminded, escalated, expires, .. } = question;
    json!({
        "id": id, "session": session, "turn": turn, "tool": tool, "arguments": arguments,
        "original": original, "labels": labels, "provenance": provenance, "preview": preview, "rule": rule,
        "reason": ask.reason, "ask": ask, "votes": ballots, "reminded": reminded, "escalated": escalated, "since": since, "until": expires,
    })
}

/// Returns the result of a vote as JSON.
pub(super) fn voted_json(voted: &VoteOutcome) -> Value {
    match voted {
        VoteOutcome::MoreNeeded { votes, of } => json!({ "decided": false, "votes": votes, "of": of }),
        VoteOutcome::Decided(ResolveResult { first, is_yours: yours }) => {
            json!({ "decided": true, "yours": yours, "first": first })
        }
    }
}

/// Formats an approval for the rest of a session.
pub(super) fn grant(grant: &GrantResource) -> String {
    let GrantResource { id, session, tool, rule, labels, by, at } = grant;
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("\n  also if untrusted text may have caused the call: {labels}")
    };
    format!(
        "{id}\n  {tool} in {session}, where rule `{rule}` would ask{labels}\n  given {} by {}",
        formatting::when(*at),
        by.join(" and "),
    )
}

/// Returns a grant as JSON.
pub(super) fn grant_json(grant: &GrantResource) -> Value {
    let GrantResource { id, session, tool, rule, labels, by, at } = grant;
    json!({ "id": id, "session": session, "tool": tool, "rule": rule, "labels": labels, "by": by, "at": at })
}
