//! Approval requests: votes, notices, and approvals for the rest of a session.
use super::{RowAccess, SessionNo};
use outlast_ports::turns::TurnNo;
use outlast_views::Vote;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::approval::SentNotices;
use outlast_vocab::id::GrantId;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{RuleId, ToolName};
use outlast_vocab::policy::ApprovalRequirement;
use outlast_vocab::{Error, Hash, Millis};

/// A vote on an approval request that is not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteRow {
    /// The turn that asks.
    pub turn: TurnNo,
    /// The key of the wait for the decision.
    pub key: ReplayKey,
    /// The vote. Each person has one.
    pub vote: Vote,
}

/// An approval request with reminders or an escalation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeRow {
    /// The turn that asks.
    pub turn: TurnNo,
    /// The key of the wait for the decision.
    pub key: ReplayKey,
    /// When the turn began to wait for the decision.
    pub since: Millis,
    /// Who is asked, and when to remind and escalate.
    pub ask: ApprovalRequirement,
    /// The reminders and escalation sent so far.
    pub given: SentNotices,
    /// When the next notice is due. `None` while the turn does not wait.
    pub due_at: Option<Millis>,
}

/// An approval for the rest of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// Its id.
    pub id: GrantId,
    /// The session.
    pub session: SessionNo,
    /// The fingerprint of what it covers.
    pub form: Hash,
    /// The tool.
    pub tool: ToolName,
    /// The rule that asked.
    pub rule: RuleId,
    /// The labels of the call it was given for: untrusted sources that may have caused the call.
    pub labels: Labels,
    /// The people who gave it.
    pub by: Vec<String>,
    /// When it was given.
    pub at: Millis,
}

/// Reads votes, notices and approvals.
pub trait ApprovalRows: RowAccess {
    /// Returns the votes on a turn's approval requests, by key and voter.
    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error>;
    /// Returns the approval requests of a turn that have reminders or an escalation, by key.
    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error>;
    /// Returns the approval for the rest of a session with this id.
    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error>;
    /// Returns the approvals for the rest of one session, by ascending id.
    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error>;
}

/// Finds notices that are due, in all sessions.
pub trait NoticeQueue: RowAccess {
    /// Returns approval requests whose next notice is due, earliest due time first.
    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error>;
    /// Returns when the next notice is due.
    fn next_notice(&self) -> Result<Option<Millis>, Error>;
}

/// Lists approvals of many sessions.
pub trait ApprovalQueries: ApprovalRows {
    /// Returns such approvals of many sessions after a given one, by descending time and ascending id.
    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error>;
}

/// Writes votes, notices and approvals.
pub trait ApprovalWrites: ApprovalRows {
    /// Inserts a vote, or replaces the same person's earlier vote.
    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error>;
    /// Deletes a vote.
    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error>;
    /// Inserts or replaces an approval request that has reminders or an escalation.
    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error>;
    /// Deletes an approval request that has reminders or an escalation, if it exists.
    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Inserts or replaces an approval for the rest of a session.
    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error>;
    /// Deletes an approval for the rest of a session.
    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error>;
}
