//! Approval requests: votes, notices to the people who are asked, and approvals for the rest of a session.
//!
//! A vote is one write. It stores the vote and an audit entry. If the vote decides the request, the same write
//! resolves the wait and stores the approval for the session. So a crash leaves either the votes from before or one
//! more.
//!
//! The rules of voting are in `outlast-ledger`.
use crate::ResultFuture;
use crate::page::Page;
use outlast_views::{ApprovalProgress, SessionGrant, VoteOutcome};
use outlast_vocab::effect::{BatchCall, Command};
use outlast_vocab::id::{GrantId, SessionId, TurnId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::policy::Approval;
use outlast_vocab::record::{EffectRequested, Fact, Record, Seq};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Hash, Millis};

/// A vote that a person casts on an approval request.
#[derive(Clone, Debug)]
pub struct VoteRequest {
    /// The turn that asks.
    pub turn: TurnId,
    /// The key of the wait for the decision.
    pub key: ReplayKey,
    /// The fingerprint of the arguments that the voter saw, if they had been edited. A vote on other arguments is
    /// refused.
    pub edited: Option<Hash>,
    /// The voter and the verdict.
    pub approval: Approval,
    /// The maximum number of approvals that a session may hold.
    pub session_grants_max: usize,
    /// The current time.
    pub now: Millis,
}

/// A session in which a notice about an approval request was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentNotice {
    /// The session.
    pub session: SessionId,
    /// Its last record, which is the notice.
    pub last: Seq,
}

/// Votes on approval requests, and approvals for the rest of a session.
pub trait VoteStore: Send + Sync {
    /// Counts a vote. The vote that reaches the required number decides the request. A denial decides immediately.
    fn vote(&self, ballot: VoteRequest) -> ResultFuture<'_, VoteOutcome>;

    /// Returns the progress of an approval request that is not decided.
    fn approval_progress(&self, turn: TurnId, key: ReplayKey) -> ResultFuture<'_, ApprovalProgress>;

    /// Records the reminders and escalations that are due, each once. Returns the sessions whose journal has a new
    /// one.
    fn send_due_notices(
        &self,
        now: Millis,
        reminders_most: u32,
        limit: usize,
    ) -> ResultFuture<'_, Vec<SentNotice>>;

    /// Returns the approvals for the rest of a session.
    fn session_grants(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionGrant>>;

    /// Returns such approvals of all sessions, newest first.
    fn grants(&self, limit: usize) -> ResultFuture<'_, Vec<SessionGrant>>;

    /// Returns a page of these approvals, after the one with this time and id.
    fn grants_after(
        &self,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> ResultFuture<'_, Page<SessionGrant, (Millis, GrantId)>>;

    /// Revokes an approval for the rest of a session. Calls that were already claimed under it still run.
    fn revoke_grant(&self, id: GrantId, now: Millis) -> ResultFuture<'_, SessionGrant>;
}

/// Returns the call that an approval wait blocks, and when it was claimed, if this record claims it. Other actions
/// that need approval are returned in the form of a call.
pub fn call_awaiting_approval(record: Record, wait: &ReplayKey) -> Option<(Millis, PreparedCall)> {
    let (key, batch) = match record.fact {
        Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => (key, batch),
        Fact::Ruled(ruled) if wait.blocks_start_of(&ruled.key) => {
            return Some((record.at, ruled.into_call()?));
        }
        _ => return None,
    };
    batch.calls.into_iter().enumerate().find_map(|(index, call)| match call {
        BatchCall::Run(call) if wait.blocks_start_of(&key.child(index, call.model_id.as_str())) => {
            Some((record.at, call))
        }
        _ => None,
    })
}
