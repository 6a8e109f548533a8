//! Approval requests, the votes on them, and approvals for the rest of a session.
use crate::ResolveResult;
use outlast_vocab::approval::SentNotices;
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{ApprovalId, GrantId, OrgId, SessionId, TurnId};
use outlast_vocab::label::Labels;
use outlast_vocab::message::{RuleId, ToolName};
use outlast_vocab::policy::{ApprovalRequirement, ApprovalVerdict};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::Wait;
use outlast_vocab::{Hash, Millis, canonical_json};
use serde_json::Value;

/// A tool call that waits for approval.
#[derive(Clone, Debug)]
pub struct ApprovalQuestion {
    /// The id of the request. If an approver edits the arguments, the request gets another id.
    pub id: ApprovalId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The call, exactly as it will run.
    pub call: PreparedCall,
    /// The arguments that the model chose, if an approver has edited them.
    pub original: Option<Value>,
    /// Who may approve it, and until when.
    pub ask: ApprovalRequirement,
    /// The approvals so far.
    pub votes: Vec<Vote>,
    /// Which reminders and escalations were sent.
    pub given: SentNotices,
    /// When the model asked for it.
    pub since: Millis,
    /// The wait.
    pub wait: Wait,
    /// The cost of the turn so far. Calls without a known price are not included.
    pub cost: Cost,
    /// Whether it is decided but no worker has processed the decision yet.
    pub decided: bool,
}

impl ApprovalQuestion {
    /// Returns who may answer now, including an escalation. An empty list means anyone.
    pub fn approvers(&self) -> Vec<&str> {
        self.ask.approvers(self.given)
    }

    /// Returns the fingerprint of the edited arguments, or `None` if nothing was edited.
    pub fn edited(&self) -> Option<Hash> {
        self.original.as_ref().map(|_| canonical_json::fingerprint(&self.call.arguments))
    }
}

/// An approving vote that did not decide the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The voter.
    pub by: String,
    /// When the vote was cast.
    pub at: Millis,
    /// The verdict.
    pub verdict: ApprovalVerdict,
}

/// The result of a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoteOutcome {
    /// The vote is counted, and more votes are needed.
    MoreNeeded {
        /// The number of votes so far.
        votes: usize,
        /// The number of votes needed.
        of: usize,
    },
    /// The request is decided, by this vote or earlier.
    Decided(ResolveResult),
}

/// The progress of an approval request that is not decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalProgress {
    /// The votes in the order they were cast.
    pub votes: Vec<Vote>,
    /// The reminders and escalation sent so far.
    pub given: SentNotices,
}

/// An approval for the rest of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionGrant {
    /// Its id.
    pub id: GrantId,
    /// The organisation.
    pub org: OrgId,
    /// The session.
    pub session: SessionId,
    /// The fingerprint of what it covers ([`outlast_vocab::approval::GrantScope::fingerprint`]).
    pub covers_form: Hash,
    /// The tool.
    pub tool: ToolName,
    /// The rule that asked.
    pub rule: RuleId,
    /// The labels of the call it was given for: untrusted sources that may have caused the call. A call with any
    /// further label is not covered.
    pub labels: Labels,
    /// The people who gave it.
    pub by: Vec<String>,
    /// When it was given.
    pub at: Millis,
}

impl SessionGrant {
    /// Returns whether the approval covers a call of this form with these labels.
    pub fn covers(&self, form: Hash, labels: &Labels) -> bool {
        self.covers_form == form && labels.is_within(&self.labels)
    }
}
