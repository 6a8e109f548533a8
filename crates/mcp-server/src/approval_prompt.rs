//! Approval requests, shown to the person behind an MCP client.
//!
//! A vote is recorded under the caller's name and requires the scope `approve`. A client that an agent runs gets a key
//! without that scope; its calls report what waits instead.
//!
//! A vote approves exactly the request that was shown. An approval id identifies one call with its arguments and
//! becomes invalid if the arguments change.
use outlast_runtime::Runtime;
use outlast_views::{ApprovalQuestion, VoteOutcome};
use outlast_vocab::access::{Principal, Scope};
use outlast_vocab::id::ApprovalId;
use outlast_vocab::policy::{Approval, ApprovalVerdict};
use outlast_vocab::terminal_text::escape_control;
use outlast_vocab::{Error, Kind, canonical_json};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
    InputRequest, ProtocolVersion,
};
use rmcp::service::{ElicitationMode, RequestContext, RoleServer};
use serde::Deserialize;
use serde_json::Value;

/// The reason to record if the person gives none.
const NO_REASON: &str = "declined in an MCP client, without a reason";

/// How to ask the person behind a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalPrompt {
    /// The client cannot show a question, or its caller may not answer.
    None,
    /// With a request during the call.
    Request,
    /// In the result of the call. The client then repeats the call with the answer.
    Result,
}

impl ApprovalPrompt {
    /// Returns how to ask this caller.
    pub(crate) fn of(runtime: &Runtime, context: &RequestContext<RoleServer>) -> Self {
        let access = runtime.access();
        if !access.scopes.allow(Scope::Approve) || matches!(access.by, Principal::Agent(_)) {
            return Self::None;
        }
        let new = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        if !new {
            let modes = context.peer.supported_elicitation_modes();
            return if modes.contains(&ElicitationMode::Form) { Self::Request } else { Self::None };
        }
        let capable = context.client_capabilities().and_then(|can| can.elicitation);
        // A client that declares neither forms nor URLs supports forms.
        if capable.is_some_and(|can| can.form.is_some() || can.url.is_none()) {
            Self::Result
        } else {
            Self::None
        }
    }
}

/// Returns whether the caller is one of the people who may answer now.
pub(crate) fn may_vote(runtime: &Runtime, question: &ApprovalQuestion) -> bool {
    let who = question.approvers();
    who.is_empty() || who.contains(&runtime.access().by.name().as_str())
}

/// Returns the form that a client shows for a question.
pub(crate) fn approval_form(question: &ApprovalQuestion) -> Option<ElicitRequestParams> {
    let decision = EnumSchema::builder(vec!["approve".to_owned(), "deny".to_owned()])
        .description("Whether the call may run exactly as it is shown.")
        .build();
    let requested_schema = ElicitationSchema::builder()
        .required_enum_schema("decision", decision)
        .optional_string_with("reason", |text| {
            text.description("The reason for a denial; the agent receives it.")
        })
        .build()
        .ok()?;
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: form_text(question),
        requested_schema,
    })
}

/// Returns the same form as part of a result.
pub(crate) fn form_request(question: &ApprovalQuestion) -> Option<InputRequest> {
    approval_form(question).map(|params| InputRequest::Elicitation(ElicitRequest::new(params)))
}

fn form_text(question: &ApprovalQuestion) -> String {
    let ApprovalQuestion { id, turn, call, original, ask, .. } = question;
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let mut lines =
        vec![format!("May the tool `{}` run with these arguments?\n{}", call.tool, pretty(&call.arguments))];
    if let Some(original) = original {
        lines.push(format!("They were edited; the model requested:\n{}", pretty(original)));
    }
    if let Some(ruling) = &call.ruling {
        lines.extend(ruling.preview.iter().map(|preview| format!("Preview: {preview}")));
        let reason = ask.reason.as_ref().map(|reason| format!(": {reason}"));
        lines.push(format!(
            "The rule `{}` requires an approval{}",
            ruling.rule,
            reason.as_deref().unwrap_or(".")
        ));
    }
    if !call.labels.is_empty() {
        let sources = serde_json::to_string(&call.labels).unwrap_or_default();
        lines.push(format!("Untrusted text may have caused it: {sources}."));
    }
    if !call.provenance.is_empty() {
        lines.push(format!("Origins of the sensitive values: {}.", call.provenance));
    }
    lines.push(format!("({id} of {turn}, fingerprint {})", canonical_json::fingerprint(&call.arguments)));
    escape_control(&lines.join("\n"))
}

/// The form as the person filled it in.
#[derive(Deserialize)]
struct ApprovalForm {
    decision: FormDecision,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormDecision {
    Approve,
    Deny,
}

/// Converts an answer to a verdict; `None` if the person dismissed the question.
fn verdict(answer: ElicitResult) -> Result<Option<ApprovalVerdict>, Error> {
    let deny = |reason: Option<String>| {
        let reason = reason.filter(|reason| !reason.trim().is_empty());
        Some(ApprovalVerdict::Deny { reason: reason.unwrap_or_else(|| NO_REASON.to_owned()) })
    };
    match answer.action {
        ElicitationAction::Accept => {}
        ElicitationAction::Decline => return Ok(deny(None)),
        _ => return Ok(None),
    }
    let filled: ApprovalForm =
        serde_json::from_value(answer.content.unwrap_or_default()).map_err(|cause| {
            Error::new(
                Kind::InputInvalid,
                format!("expected a `decision` (approve, deny), and perhaps a `reason`: {cause}"),
            )
        })?;
    Ok(match filled.decision {
        FormDecision::Approve => Some(ApprovalVerdict::Approve),
        FormDecision::Deny => deny(filled.reason),
    })
}

/// Records an answer as a vote of the caller. Returns `None` if the person dismissed the question.
pub(crate) async fn record_vote(
    runtime: &Runtime,
    id: ApprovalId,
    answer: ElicitResult,
) -> Result<Option<VoteOutcome>, Error> {
    let Some(verdict) = verdict(answer)? else { return Ok(None) };
    runtime.access().require(Scope::Approve)?;
    let approval = Approval::new(runtime.access().by.name(), verdict);
    runtime.approve(id, approval).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn approval_needs_an_explicit_yes() {
        let said = |action, content| {
            let mut answer = ElicitResult::new(action);
            answer.content = content;
            verdict(answer).map_err(|error| error.kind())
        };
        let deny = |reason: &str| Ok(Some(ApprovalVerdict::Deny { reason: reason.to_owned() }));
        assert_eq!(
            said(ElicitationAction::Accept, Some(json!({ "decision": "approve" }))),
            Ok(Some(ApprovalVerdict::Approve))
        );
        assert_eq!(
            said(ElicitationAction::Accept, Some(json!({ "decision": "deny", "reason": "no" }))),
            deny("no")
        );
        assert_eq!(said(ElicitationAction::Accept, Some(json!({ "decision": "deny" }))), deny(NO_REASON));
        assert_eq!(said(ElicitationAction::Decline, Some(json!({ "decision": "approve" }))), deny(NO_REASON));
        assert_eq!(said(ElicitationAction::Cancel, Some(json!({ "decision": "approve" }))), Ok(None));
        for empty in
            [None, Some(json!({})), Some(json!({ "decision": "yes" })), Some(json!({ "decision": true }))]
        {
            assert_eq!(said(ElicitationAction::Accept, empty), Err(Kind::InputInvalid));
        }
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(escape_control("a\u{202e}b\u{200b}\u{7}\nc"), "a\\u{202e}b\\u{200b}\\u{7}\nc");
    }
}
