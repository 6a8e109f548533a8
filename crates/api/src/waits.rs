//! What turns wait for from outside: completions, approvals, grants, and calls with an unknown outcome.
use outlast_views::{ApprovalQuestion, ResolveResult, SessionGrant, UnknownCall, Vote, VoteOutcome};
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{ApprovalId, GrantId};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{RuleId, ToolName, ToolResult};
use outlast_vocab::policy::{ApprovalRequirement, ApprovalVerdict};
use outlast_vocab::record::OutcomeVerdict;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{CallId, Error, Failure, Hash, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An approval that applies to the rest of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Grant)]
pub struct GrantResource {
    /// The id of the grant.
    #[schema(value_type = String)]
    pub id: GrantId,
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The name of the tool.
    #[schema(value_type = String)]
    pub tool: ToolName,
    /// The rule that required the approval.
    #[schema(value_type = String)]
    pub rule: RuleId,
    /// The untrusted sources of the call that was approved. A call with any other source is not covered.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub labels: Labels,
    /// Who gave the approval.
    pub by: Vec<String>,
    /// When the approval was given, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
}

impl From<SessionGrant> for GrantResource {
    fn from(SessionGrant { id, session, tool, rule, labels, by, at, .. }: SessionGrant) -> Self {
        Self { id, session, tool, rule, labels, by, at }
    }
}

/// The result of something that a turn waits for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompletionRequest {
    /// It succeeded with this value.
    #[schema(value_type = Object)]
    Ok(Value),
    /// It failed with this message.
    Error(String),
    /// It timed out.
    Timeout,
    /// It was cancelled.
    Cancelled,
}

impl From<CompletionRequest> for Resolution {
    fn from(ending: CompletionRequest) -> Self {
        match ending {
            CompletionRequest::Ok(value) => Self::Ok(value),
            CompletionRequest::Error(message) => Self::Err(Failure::new(Kind::ToolFailed, message)),
            CompletionRequest::Timeout => Self::Timeout,
            CompletionRequest::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Resolution> for CompletionRequest {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Ok(value) => Self::Ok(value),
            Resolution::Err(Failure { detail, .. }) => Self::Error(detail),
            Resolution::Timeout => Self::Timeout,
            Resolution::Cancelled => Self::Cancelled,
        }
    }
}

/// The result that is in effect.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CompletionResult {
    /// Whether it is the result from this request.
    pub yours: bool,
    /// The first result, which is the one in effect.
    #[schema(value_type = Object)]
    pub first: Resolution,
}

impl From<ResolveResult> for CompletionResult {
    fn from(ResolveResult { first, is_yours: yours }: ResolveResult) -> Self {
        Self { yours, first }
    }
}

impl From<CompletionResult> for ResolveResult {
    fn from(CompletionResult { yours: is_yours, first }: CompletionResult) -> Self {
        Self { first, is_yours }
    }
}

/// A tool call that waits for approval.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalResource {
    /// The id of the approval.
    #[schema(value_type = String)]
    pub id: ApprovalId,
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// The id of the call.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The name of the tool.
    #[schema(value_type = String)]
    pub tool: ToolName,
    /// The arguments, exactly as the call will run.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The rule that requires the approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub rule: Option<RuleId>,
    /// The reason that the rule gives. Absent if it gives no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Box<str>>,
    /// The fingerprint of the policy that contains the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub policy: Option<Hash>,
    /// The untrusted sources that may have caused the call.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub labels: Labels,
    /// The origins of its sink arguments, each with a JSON pointer: `user`, `agent`, `tool:NAME`, `unknown`
    /// or `call`.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub provenance: Provenance,
    /// The arguments that the model chose. Absent unless an approver has edited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub original: Option<Value>,
    /// The tool's preview of what the call would do. Absent if the tool has no preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// Who may approve now. Empty if anyone may.
    pub who: Vec<String>,
    /// Who has approved so far.
    pub votes: Vec<String>,
    /// The approvals so far, with their verdicts.
    pub ballots: Vec<VoteResource>,
    /// The approval settings of the rule: the number of approvals, reminders and escalation.
    #[schema(value_type = Object)]
    pub ask: ApprovalRequirement,
    /// The number of reminders sent.
    pub reminded: u32,
    /// Whether the approval was escalated to additional approvers.
    pub escalated: bool,
    /// The number of approvals that are required.
    pub needed: usize,
    /// Whether the call can be approved for the rest of the session.
    pub for_session: bool,
    /// The cost of the turn so far, in US dollars. Calls without a known price are not included.
    #[schema(value_type = String, example = "0.0123")]
    pub cost: Cost,
    /// When the model requested the call, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub since: Millis,
    /// When the approval expires and the call is denied, as a Unix timestamp in milliseconds. Absent if it
    /// never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub expires: Option<Millis>,
}

/// A vote on an approval.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Vote)]
pub struct VoteResource {
    /// The voter.
    pub by: String,
    /// When the vote was cast, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// The verdict.
    #[schema(value_type = Object)]
    pub verdict: ApprovalVerdict,
}

impl From<ApprovalQuestion> for ApprovalResource {
    fn from(question: ApprovalQuestion) -> Self {
        let who = question.approvers().into_iter().map(ToOwned::to_owned).collect();
        let ApprovalQuestion {
            id, session, turn, call, original, ask, votes, given, since, wait, cost, ..
        } = question;
        let ballot = |Vote { by, at, verdict }: Vote| VoteResource { by, at, verdict };
        let policy = call.ruling.as_ref().map(|ruling| ruling.policy);
        let (rule, preview) = call.ruling.map(|ruling| (ruling.rule, ruling.preview)).unzip();
        let (needed, for_session) = (ask.approvals_needed(), !ask.each_time);
        Self {
            id,
            session,
            turn,
            call: call.id,
            tool: call.tool,
            arguments: call.arguments,
            rule,
            reason: ask.reason.clone(),
            policy,
            labels: call.labels,
            provenance: call.provenance,
            original,
            who,
            votes: votes.iter().map(|vote| vote.by.clone()).collect(),
            ballots: votes.into_iter().map(ballot).collect(),
            ask,
            reminded: given.reminded,
            escalated: given.escalated,
            preview: preview.flatten().map(String::from),
            needed,
            for_session,
            cost,
            since,
            expires: wait.deadline,
        }
    }
}

/// A decision about a call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// The verdict.
    ///
    /// - `approve`: the call runs exactly as shown.
    /// - `approve_for_session`: the call runs, and so does every later call of the session for which the same
    ///   rule requires approval.
    /// - `edit`: the call runs with other `arguments`.
    /// - `deny`: the call does not run, and the model gets the `reason`.
    pub verdict: VerdictName,
    /// Why the call is denied. Required for `deny`, and not allowed otherwise.
    pub reason: Option<String>,
    /// The new arguments of the call. Required for `edit`, and not allowed otherwise.
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// The person who decides. Defaults to the caller. Only a caller without an API key may name another
    /// person.
    pub by: Option<String>,
}

/// A verdict on a call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictName {
    /// Run the call.
    Approve,
    /// Run the call, and later ones in the session.
    ApproveForSession,
    /// Run the call with other arguments.
    Edit,
    /// Do not run the call.
    Deny,
}

impl DecisionRequest {
    /// Creates the request for a verdict, on behalf of a person or of the caller.
    pub fn new(verdict: ApprovalVerdict, by: Option<String>) -> Self {
        let (verdict, reason, arguments) = match verdict {
            ApprovalVerdict::Approve => (VerdictName::Approve, None, None),
            ApprovalVerdict::ApproveForSession => (VerdictName::ApproveForSession, None, None),
            ApprovalVerdict::Edit { arguments } => (VerdictName::Edit, None, Some(arguments)),
            ApprovalVerdict::Deny { reason } => (VerdictName::Deny, Some(reason), None),
        };
        Self { verdict, reason, arguments, by }
    }

    /// Returns the verdict. Fails if it lacks a field, or has one that it does not take.
    pub fn verdict(self) -> Result<ApprovalVerdict, Error> {
        let wrong = |detail: &str| Err(Error::new(Kind::InputInvalid, detail));
        match (self.verdict, self.reason, self.arguments) {
            (VerdictName::Approve, None, None) => Ok(ApprovalVerdict::Approve),
            (VerdictName::ApproveForSession, None, None) => Ok(ApprovalVerdict::ApproveForSession),
            (VerdictName::Deny, Some(reason), None) => Ok(ApprovalVerdict::Deny { reason }),
            (VerdictName::Edit, None, Some(arguments)) => Ok(ApprovalVerdict::Edit { arguments }),
            (VerdictName::Approve | VerdictName::ApproveForSession, ..) => {
                wrong("an approval takes no `reason` and no `arguments`; use `edit` to change the arguments")
            }
            (VerdictName::Deny, ..) => wrong("`deny` takes a `reason` and no `arguments`"),
            (VerdictName::Edit, ..) => wrong("`edit` takes `arguments` and no `reason`"),
        }
    }
}

/// The result of a vote.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VoteResult {
    /// Whether the approval is decided.
    pub decided: bool,
    /// Whether this vote decided it.
    pub yours: bool,
    /// The number of approvals so far. Absent if the approval is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub votes: Option<usize>,
    /// The number of approvals that are required. Absent if the approval is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// The decision. Absent if the approval is not decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub first: Option<Resolution>,
}

impl From<VoteOutcome> for VoteResult {
    fn from(voted: VoteOutcome) -> Self {
        match voted {
            VoteOutcome::MoreNeeded { votes, of } => {
                Self { decided: false, yours: false, votes: Some(votes), of: Some(of), first: None }
            }
            VoteOutcome::Decided(ResolveResult { first, is_yours: yours }) => {
                Self { decided: true, yours, votes: None, of: None, first: Some(first) }
            }
        }
    }
}

impl TryFrom<VoteResult> for VoteOutcome {
    type Error = Error;

    fn try_from(result: VoteResult) -> Result<Self, Error> {
        match result {
            VoteResult { decided: true, yours, first: Some(first), .. } => {
                Ok(Self::Decided(ResolveResult { first, is_yours: yours }))
            }
            VoteResult { decided: false, votes: Some(votes), of: Some(of), .. } => {
                Ok(Self::MoreNeeded { votes, of })
            }
            _ => {
                let detail = "the server's response lacks the result of the decision";
                Err(Error::new(Kind::ServerAnswerInvalid, detail))
            }
        }
    }
}

/// A call with an unknown outcome.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = UnknownCall)]
pub struct UnknownCallResource {
    /// Outlast's id of the call, which is also its idempotency key for external services.
    #[schema(value_type = String)]
    pub call: CallId,
    /// The name of the tool.
    #[schema(value_type = String)]
    pub tool: ToolName,
    /// The arguments of the call.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// When the call started, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub since: Millis,
}

impl From<UnknownCall> for UnknownCallResource {
    fn from(call: UnknownCall) -> Self {
        let UnknownCall { call, tool, arguments, session, turn, since, .. } = call;
        Self { call, tool, arguments, session, turn, since }
    }
}

/// The actual outcome of a call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeRequest {
    /// The call happened, with this result.
    #[schema(value_type = Object)]
    Happened(Value),
    /// The call did not happen.
    DidNotHappen,
}

impl From<OutcomeRequest> for OutcomeVerdict {
    fn from(outcome: OutcomeRequest) -> Self {
        match outcome {
            OutcomeRequest::Happened(result) => Self::Happened(ToolResult::Ok(result)),
            OutcomeRequest::DidNotHappen => Self::DidNotHappen,
        }
    }
}

impl From<OutcomeVerdict> for OutcomeRequest {
    fn from(verdict: OutcomeVerdict) -> Self {
        match verdict {
            OutcomeVerdict::Happened(ToolResult::Ok(value)) => Self::Happened(value),
            OutcomeVerdict::Happened(other) => Self::Happened(other.text().into()),
            OutcomeVerdict::DidNotHappen => Self::DidNotHappen,
        }
    }
}

/// The location of a settled call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SettledCall)]
pub struct SettledCallResource {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn verdict_reads_back_from_its_request() {
        for verdict in [
            ApprovalVerdict::Approve,
            ApprovalVerdict::ApproveForSession,
            ApprovalVerdict::Edit { arguments: json!({ "euros": 5 }) },
            ApprovalVerdict::Deny { reason: "too much".into() },
        ] {
            assert_eq!(DecisionRequest::new(verdict.clone(), None).verdict().unwrap(), verdict);
        }
    }

    #[test]
    fn verdict_with_foreign_field_is_rejected() {
        let verdict = |body| serde_json::from_value::<DecisionRequest>(body).unwrap().verdict();
        for body in [
            json!({ "verdict": "deny" }),
            json!({ "verdict": "edit", "reason": "no" }),
            json!({ "verdict": "approve", "arguments": {} }),
        ] {
            assert_eq!(verdict(body).unwrap_err().kind(), Kind::InputInvalid);
        }
    }
}
