//! Questions for approval: votes on them, notices to those who are asked, and approvals that count for the rest of a session
//! (R11.2).
//!
//! A vote is one write: that it was given, its line in the audit and, if it completes what the question takes, the resolution
//! of the wait and the approval for the session. So a death anywhere leaves a question with the votes it had or with one more.
use crate::Answer;
use crate::ledger;
use crate::page::Page;
use crate::store::{Backend, Resolved};
use outlast_vocab::approval::Given;
use outlast_vocab::effect::{BatchCall, Command};
use outlast_vocab::id::{GrantId, OrgId, SessionId, TurnId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{RuleId, ToolName};
use outlast_vocab::policy::{Approval, Verdict};
use outlast_vocab::record::{Asked, Fact, Record, Seq};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Hash, Millis};

/// Somebody's word on a question.
#[derive(Clone, Debug)]
pub struct Ballot {
    /// The turn that asks.
    pub turn: TurnId,
    /// The wait for the answer.
    pub key: ReplayKey,
    /// The fingerprint of the arguments that were shown, where somebody had changed them. Whoever was shown others is refused.
    pub edited: Option<Hash>,
    /// Who says what.
    pub approval: Approval,
    /// Grants that a session may have.
    pub grants_most: usize,
    /// Now.
    pub now: Millis,
}

/// What became of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voted {
    /// It counts, and it takes more of them.
    Counted {
        /// How many there are.
        votes: usize,
        /// How many it takes.
        of: usize,
    },
    /// The question is decided, by this word or before.
    Decided(Resolved),
}

/// A yes that was not enough to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Who gave it.
    pub by: String,
    /// When.
    pub at: Millis,
    /// What it says.
    pub verdict: Verdict,
}

/// How far a question has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The votes in the order they were given.
    pub votes: Vec<Vote>,
    /// What its people were told since it was asked.
    pub given: Given,
}

/// A session whose people were told that a question waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Which.
    pub session: SessionId,
    /// Its last record, which says so.
    pub last: Seq,
}

/// An approval for the rest of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What it is called.
    pub id: GrantId,
    /// The organisation.
    pub org: OrgId,
    /// The session.
    pub session: SessionId,
    /// The name of what it covers ([`outlast_vocab::approval::Covered::form`]).
    pub form: Hash,
    /// The tool.
    pub tool: ToolName,
    /// The rule that asked.
    pub rule: RuleId,
    /// The untrusted sources that may have asked for the call it was given for. Calls that others may have asked for are not
    /// covered.
    pub labels: Labels,
    /// Who gave it.
    pub by: Vec<String>,
    /// When.
    pub at: Millis,
}

impl Grant {
    /// Whether a call of this form and with these labels is covered.
    pub fn covers(&self, form: Hash, labels: &Labels) -> bool {
        self.form == form && labels.is_within(&self.labels)
    }
}

/// What people say to questions for approval.
pub trait Votes: Send + Sync {
    /// Counts a word. The one that completes what the question takes decides it; a no decides at once.
    fn vote(&self, ballot: Ballot) -> Answer<'_, Voted>;

    /// How far a question has come that is not decided.
    fn standing(&self, turn: TurnId, key: ReplayKey) -> Answer<'_, Standing>;

    /// Reminds and escalates where that is due, each once, and says which sessions have it in their journal now.
    fn notify(&self, now: Millis, reminders_most: u32, limit: usize) -> Answer<'_, Vec<Noticed>>;

    /// What is approved for the rest of a session.
    fn grants_in(&self, session: SessionId) -> Answer<'_, Vec<Grant>>;

    /// What is approved for the rest of sessions, the newest first.
    fn grants(&self, limit: usize) -> Answer<'_, Vec<Grant>>;

    /// A page of it, behind what was given at this time and has this id.
    fn grants_after(
        &self,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Answer<'_, Page<Grant, (Millis, GrantId)>>;

    /// Ends an approval for the rest of a session. Calls that were claimed under it run.
    fn revoke_grant(&self, id: GrantId, now: Millis) -> Answer<'_, Grant>;
}

impl<B: Backend> Votes for B {
    fn vote(&self, ballot: Ballot) -> Answer<'_, Voted> {
        self.write(move |rows| ledger::vote(rows, ballot))
    }

    fn standing(&self, turn: TurnId, key: ReplayKey) -> Answer<'_, Standing> {
        self.read(move |rows| ledger::standing(rows, turn, &key))
    }

    fn notify(&self, now: Millis, reminders_most: u32, limit: usize) -> Answer<'_, Vec<Noticed>> {
        self.write(move |rows| ledger::notify(rows, now, reminders_most, limit))
    }

    fn grants_in(&self, session: SessionId) -> Answer<'_, Vec<Grant>> {
        self.read(move |rows| ledger::grants_in(rows, session))
    }

    fn grants(&self, limit: usize) -> Answer<'_, Vec<Grant>> {
        self.read(move |rows| Ok(ledger::grants(rows, None, limit)?.items))
    }

    fn grants_after(
        &self,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Answer<'_, Page<Grant, (Millis, GrantId)>> {
        self.read(move |rows| ledger::grants(rows, after, limit))
    }

    fn revoke_grant(&self, id: GrantId, now: Millis) -> Answer<'_, Grant> {
        self.write(move |rows| ledger::revoke_grant(rows, id, now))
    }
}

/// The call that a wait for approval holds up, and when it was claimed, if this record claims it. What is not a call is shown as
/// one.
pub fn held_up(record: Record, wait: &ReplayKey) -> Option<(Millis, PreparedCall)> {
    let (key, batch) = match record.fact {
        Fact::Asked(Asked { key, command: Command::ToolBatch(batch) }) => (key, batch),
        Fact::Ruled(ruled) if wait.admits(&ruled.key) => return Some((record.at, ruled.into_call()?)),
        _ => return None,
    };
    batch.calls.into_iter().enumerate().find_map(|(index, call)| match call {
        BatchCall::Run(call) if wait.admits(&key.child(index, call.model_id.as_str())) => {
            Some((record.at, call))
        }
        _ => None,
    })
}
