//! Waits of turns for something outside: completions, approvals and unknown outcomes; and approvals for whole sessions.
use crate::Client;
use outlast_views::{ApprovalQuestion, ResolveResult, SessionGrant, UnknownCall, Vote, VoteOutcome};
use outlast_vocab::approval::SentNotices;
use outlast_vocab::id::{ApprovalId, CallId, GrantId};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{RuleId, ToolName, ToolResult};
use outlast_vocab::policy::{ApprovalRequirement, ApprovalVerdict};
use outlast_vocab::record;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, SessionId, TurnId};
use serde::Deserialize;
use serde_json::{Value, json};

/// A call that waits for approval, with everything needed to decide.
#[derive(Clone, Debug)]
pub struct ApprovalDetails {
    /// The approval id.
    pub id: ApprovalId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The tool.
    pub tool: ToolName,
    /// The exact arguments with which it will run.
    pub arguments: Value,
    /// The rule that requires the approval.
    pub rule: Option<RuleId>,
    /// The version of that rule's policy.
    pub policy: Option<Hash>,
    /// The tool's preview of the call.
    pub preview: Option<String>,
    /// The untrusted sources that may have caused it.
    pub labels: Labels,
    /// The origins of the values of its sink arguments.
    pub provenance: Provenance,
    /// The model's original arguments, if they were changed since.
    pub original: Option<Value>,
    /// Who may approve, and until when.
    pub ask: ApprovalRequirement,
    /// The approvals so far.
    pub votes: Vec<Vote>,
    /// The reminders and escalations sent so far.
    pub reminders: SentNotices,
    /// When the model made the call.
    pub since: Millis,
    /// When it expires and counts as denied.
    pub until: Option<Millis>,
}

impl From<ApprovalQuestion> for ApprovalDetails {
    fn from(question: ApprovalQuestion) -> Self {
        let ApprovalQuestion { id, session, turn, call, original, ask, votes, given, since, wait, .. } =
            question;
        let policy = call.ruling.as_ref().map(|ruling| ruling.policy);
        let (rule, preview) = call.ruling.map(|ruling| (ruling.rule, ruling.preview)).unzip();
        Self {
            id,
            session,
            turn,
            tool: call.tool,
            arguments: call.arguments,
            rule,
            policy,
            preview: preview.flatten().map(String::from),
            labels: call.labels,
            provenance: call.provenance,
            original,
            ask,
            votes,
            reminders: given,
            since,
            until: wait.deadline,
        }
    }
}

#[derive(Deserialize)]
struct ApprovalDetailsJson {
    id: ApprovalId,
    session: SessionId,
    turn: TurnId,
    tool: ToolName,
    arguments: Value,
    rule: Option<RuleId>,
    policy: Option<Hash>,
    preview: Option<String>,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    provenance: Provenance,
    original: Option<Value>,
    ask: ApprovalRequirement,
    ballots: Vec<VoteJson>,
    reminded: u32,
    escalated: bool,
    since: Millis,
    expires: Option<Millis>,
}

#[derive(Deserialize)]
struct VoteJson {
    by: String,
    at: Millis,
    verdict: ApprovalVerdict,
}

impl From<ApprovalDetailsJson> for ApprovalDetails {
    fn from(asked: ApprovalDetailsJson) -> Self {
        let vote = |VoteJson { by, at, verdict }| Vote { by, at, verdict };
        Self {
            id: asked.id,
            session: asked.session,
            turn: asked.turn,
            tool: asked.tool,
            arguments: asked.arguments,
            rule: asked.rule,
            policy: asked.policy,
            preview: asked.preview,
            labels: asked.labels,
            provenance: asked.provenance,
            original: asked.original,
            ask: asked.ask,
            votes: asked.ballots.into_iter().map(vote).collect(),
            reminders: SentNotices { reminded: asked.reminded, escalated: asked.escalated },
            since: asked.since,
            until: asked.expires,
        }
    }
}

/// A call with an unknown outcome.
#[derive(Clone, Debug, Deserialize)]
pub struct UnknownCallDetails {
    /// The call id, which is its idempotency key.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The arguments.
    pub arguments: Value,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// When it started.
    pub since: Millis,
}

impl From<UnknownCall> for UnknownCallDetails {
    fn from(UnknownCall { call, tool, arguments, session, turn, since, .. }: UnknownCall) -> Self {
        Self { call, tool, arguments, session, turn, since }
    }
}

/// An approval for the rest of a session.
#[derive(Clone, Debug, Deserialize)]
pub struct GrantDetails {
    /// The grant id.
    pub id: GrantId,
    /// The session.
    pub session: SessionId,
    /// The tool.
    pub tool: ToolName,
    /// The rule that required the approval.
    pub rule: RuleId,
    /// The untrusted sources of the approved call.
    #[serde(default)]
    pub labels: Labels,
    /// Who approved.
    pub by: Vec<String>,
    /// When it was approved.
    pub at: Millis,
}

impl From<SessionGrant> for GrantDetails {
    fn from(SessionGrant { id, session, tool, rule, labels, by, at, .. }: SessionGrant) -> Self {
        Self { id, session, tool, rule, labels, by, at }
    }
}

#[derive(Deserialize)]
struct ResolutionJson {
    yours: bool,
    first: Resolution,
}

#[derive(Deserialize)]
struct VoteResultJson {
    decided: bool,
    yours: bool,
    votes: Option<usize>,
    of: Option<usize>,
    first: Option<Resolution>,
}

#[derive(Deserialize)]
struct SettledCallJson {
    session: SessionId,
}

impl Client {
    /// Resolves a current or future wait of a turn.
    pub async fn resolve(&self, key: &CompletionKey, how: Resolution) -> Result<ResolveResult, Error> {
        let body = match how {
            Resolution::Ok(value) => json!({ "ok": value }),
            Resolution::Err(Failure { detail, .. }) => json!({ "error": detail }),
            Resolution::Timeout => json!("timeout"),
            Resolution::Cancelled => json!("cancelled"),
        };
        let ResolutionJson { yours, first } =
            self.post(&["v1", "completions", &key.to_string()], &body).await?;
        Ok(ResolveResult { first, is_yours: yours })
    }

    /// Lists the calls that wait for approval, oldest first.
    pub async fn approvals(&self, most: usize) -> Result<Vec<ApprovalDetails>, Error> {
        let asked: Vec<ApprovalDetailsJson> = self.list(&["v1", "approvals"], &[], most).await?;
        Ok(asked.into_iter().map(ApprovalDetails::from).collect())
    }

    /// Votes on an approval, on behalf of `by` or of the caller.
    pub async fn decide(
        &self,
        id: ApprovalId,
        by: Option<&str>,
        verdict: ApprovalVerdict,
    ) -> Result<VoteOutcome, Error> {
        let mut body = match verdict {
            ApprovalVerdict::Approve => json!({ "verdict": "approve" }),
            ApprovalVerdict::ApproveForSession => json!({ "verdict": "approve_for_session" }),
            ApprovalVerdict::Edit { arguments } => json!({ "verdict": "edit", "arguments": arguments }),
            ApprovalVerdict::Deny { reason } => json!({ "verdict": "deny", "reason": reason }),
        };
        if let Some(by) = by {
            body["by"] = json!(by);
        }
        let counted: VoteResultJson = self.post(&["v1", "approvals", &id.to_string()], &body).await?;
        match counted {
            VoteResultJson { decided: true, yours, first: Some(first), .. } => {
                Ok(VoteOutcome::Decided(ResolveResult { first, is_yours: yours }))
            }
            VoteResultJson { decided: false, votes: Some(votes), of: Some(of), .. } => {
                Ok(VoteOutcome::MoreNeeded { votes, of })
            }
            _ => {
                let detail = "the server does not say what became of the word";
                Err(Error::new(Kind::ServerAnswerInvalid, detail))
            }
        }
    }

    /// Lists the approvals for the rest of sessions.
    pub async fn grants(&self, most: usize) -> Result<Vec<GrantDetails>, Error> {
        self.list(&["v1", "grants"], &[], most).await
    }

    /// Revokes one of them.
    pub async fn revoke_grant(&self, id: GrantId) -> Result<GrantDetails, Error> {
        self.delete(&["v1", "grants", &id.to_string()]).await
    }

    /// Lists the calls with an unknown outcome, oldest first.
    pub async fn unknown_calls(&self, most: usize) -> Result<Vec<UnknownCallDetails>, Error> {
        self.list(&["v1", "unknown"], &[], most).await
    }

    /// Records the outcome of such a call.
    pub async fn settle(&self, call: CallId, verdict: record::OutcomeVerdict) -> Result<SessionId, Error> {
        let body = match verdict {
            record::OutcomeVerdict::Happened(ToolResult::Ok(value)) => json!({ "happened": value }),
            record::OutcomeVerdict::Happened(other) => json!({ "happened": other.text() }),
            record::OutcomeVerdict::DidNotHappen => json!("did_not_happen"),
        };
        let SettledCallJson { session } = self.post(&["v1", "unknown", &call.to_string()], &body).await?;
        Ok(session)
    }
}
