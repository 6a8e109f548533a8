//! Approval requests of all sessions: lists pending ones and records decisions.
//!
//! Only people and programs outside Outlast reach this module. A tool cannot, so an agent never approves its
//! own calls.
use crate::limits::validation::MeasuredSchema;
use crate::turn::output_schema::fits;
use outlast_ports::store::Store;
use outlast_ports::votes::{VoteRequest, call_awaiting_approval};
use outlast_views::{ApprovalProgress, ApprovalQuestion, SessionGrant, Vote, VoteOutcome, WaitingTurn};
use outlast_vocab::approval::approval_id;
use outlast_vocab::id::{ApprovalId, GrantId, TurnId};
use outlast_vocab::label::Provenance;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::policy::{Approval, ApprovalVerdict, PolicyDecision};
use outlast_vocab::record::Fact;
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Error, Kind, Limits, Millis, ReplayKey, canonical_json, limits};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The approval requests of a database.
#[derive(Clone)]
pub struct Approvals<'a> {
    store: &'a dyn Store,
}

/// The position of a request in the list of all requests. Turn ids sort by time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ApprovalCursor(TurnId, ReplayKey);

impl ApprovalCursor {
    fn of(waiting: &WaitingTurn) -> Self {
        Self(waiting.turn, waiting.wait.key.clone())
    }
}

impl<'a> Approvals<'a> {
    /// Uses the approval requests of this store.
    pub fn new(store: &'a dyn Store) -> Self {
        Self { store }
    }

    /// Returns pending requests, oldest first. Expired requests are left out, even if no worker has processed
    /// the timeout.
    pub async fn pending(&self, limit: usize, now: Millis) -> Result<Vec<ApprovalQuestion>, Error> {
        Ok(self.pending_after(None, limit, now).await?.0)
    }

    /// Returns a page of pending requests after a position, oldest first, and the position of the next page.
    ///
    /// Only the requests on the page are read in full.
    pub async fn pending_after(
        &self,
        after: Option<ApprovalCursor>,
        limit: usize,
        now: Millis,
    ) -> Result<(Vec<ApprovalQuestion>, Option<ApprovalCursor>), Error> {
        let mut all = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        all.retain(|waiting| waiting.wait.deadline.is_none_or(|deadline| now < deadline));
        all.sort_by_cached_key(ApprovalCursor::of);
        let (mut questions, mut last) = (Vec::new(), None);
        for waiting in all {
            let place = ApprovalCursor::of(&waiting);
            if after.as_ref().is_some_and(|after| place <= *after) {
                continue;
            }
            if questions.len() == limit {
                return Ok((questions, last));
            }
            questions.extend(self.question(waiting).await?.filter(|question| !question.decided));
            last = Some(place);
        }
        Ok((questions, None))
    }

    /// Returns the pending requests of a turn.
    pub async fn of_turn(&self, turn: TurnId) -> Result<Vec<ApprovalQuestion>, Error> {
        let mut questions = Vec::new();
        let waiting = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        for waiting in waiting.into_iter().filter(|waiting| waiting.turn == turn) {
            questions.extend(self.question(waiting).await?.filter(|question| !question.decided));
        }
        Ok(questions)
    }

    /// Returns one request. Reads only the records of its turn.
    pub async fn find(&self, id: ApprovalId) -> Result<ApprovalQuestion, Error> {
        let gone = || Error::new(Kind::ApprovalNotFound, format!("no call waits for the approval {id}"));
        let waiting = self.named(id).await?.ok_or_else(gone)?;
        let question = self.question(waiting).await?.ok_or_else(gone)?;
        if question.id == id {
            return Ok(question);
        }
        let detail = format!("the arguments of {id} were edited; the new id is {}", question.id);
        Err(Error::new(Kind::ApprovalNotFound, detail))
    }

    /// Finds the wait of a request by its current id, or by the id it had before an edit.
    async fn named(&self, id: ApprovalId) -> Result<Option<WaitingTurn>, Error> {
        let first = |waiting: &WaitingTurn| approval_id(waiting.turn, &waiting.wait.key);
        let mut waiting = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        if let Some(at) = waiting.iter().position(|waiting| first(waiting) == id) {
            return Ok(Some(waiting.swap_remove(at)));
        }
        for waiting in waiting {
            let votes = self.store.approval_progress(waiting.turn, waiting.wait.key.clone()).await?.votes;
            if edit_in(&votes).is_some_and(|arguments| id_after(first(&waiting), arguments) == id) {
                return Ok(Some(waiting));
            }
        }
        Ok(None)
    }

    /// Records an approval, a denial or an approval with edited arguments.
    ///
    /// A denial decides at once, and so does the last approval that the request needs. Later votes get that
    /// decision back.
    pub async fn decide(
        &self,
        id: ApprovalId,
        approval: Approval,
        now: Millis,
    ) -> Result<VoteOutcome, Error> {
        let question = self.find(id).await?;
        if let ApprovalVerdict::Edit { arguments } = &approval.verdict {
            self.check_edited_input(&question, arguments).await?;
        }
        let (edited, grants_most) = (question.edited(), Limits::default().grants_per_session);
        let (turn, key) = (question.turn, question.wait.key);
        self.store
            .vote(VoteRequest { turn, key, edited, approval, session_grants_max: grants_most, now })
            .await
    }

    /// Returns approvals that apply to the rest of their sessions, newest first.
    pub async fn grants(&self, limit: usize) -> Result<Vec<SessionGrant>, Error> {
        self.store.grants(limit).await
    }

    /// Revokes an approval for the rest of a session. The next such call needs approval again.
    pub async fn revoke(&self, id: GrantId, now: Millis) -> Result<SessionGrant, Error> {
        self.store.revoke_grant(id, now).await
    }

    /// Checks arguments against the tool's schema, as it was defined when the turn began.
    pub async fn check_edited_input(
        &self,
        question: &ApprovalQuestion,
        arguments: &Value,
    ) -> Result<(), Error> {
        limits::check_depth("json_depth", arguments, Limits::default().json_depth)?;
        let pinned: Result<PinnedPackage, _> =
            serde_json::from_slice(&self.store.package(question.turn).await?);
        let contracts = pinned.ok().and_then(|pinned| pinned.contracts).unwrap_or_default();
        let Some(contract) = contracts.iter().find(|contract| contract.name == question.call.tool) else {
            return Ok(());
        };
        let schema =
            MeasuredSchema::new(&contract.input, "the schema of the arguments is", Kind::InputInvalid)?;
        fits(&schema, arguments, None).await
    }

    async fn question(&self, waiting: WaitingTurn) -> Result<Option<ApprovalQuestion>, Error> {
        question(self.store, waiting).await
    }
}

/// Builds the request that a turn waits for, with its votes and edits.
pub(crate) async fn question(
    store: &dyn Store,
    waiting: WaitingTurn,
) -> Result<Option<ApprovalQuestion>, Error> {
    let WaitingTurn { session, turn, wait } = waiting;
    let records = store.turn_records(turn).await?;
    let decided =
        records.iter().any(|record| matches!(&record.fact, Fact::Resolved { key, .. } if *key == wait.key));
    let cost = records.iter().filter_map(|record| record.fact.cost()).sum();
    let held = records.into_iter().find_map(|record| call_awaiting_approval(record, &wait.key));
    let Some((since, mut call)) = held else { return Ok(None) };
    let Some(PolicyDecision::Ask(ask)) = call.ruling.as_ref().map(|ruling| ruling.decision.clone()) else {
        return Ok(None);
    };
    let ApprovalProgress { votes, given } = store.approval_progress(turn, wait.key.clone()).await?;
    let edit = edit_in(&votes).cloned();
    let original = edit.map(|arguments| {
        // Provenance was computed for the model's arguments, not for the edited ones.
        call.provenance = Provenance::default();
        std::mem::replace(&mut call.arguments, arguments)
    });
    let first = approval_id(turn, &wait.key);
    let id = original.as_ref().map_or(first, |_| id_after(first, &call.arguments));
    Ok(Some(ApprovalQuestion {
        id,
        session,
        turn,
        call,
        original,
        ask,
        votes,
        given,
        since,
        wait,
        cost,
        decided,
    }))
}

/// Returns the edited arguments that the votes apply to.
fn edit_in(votes: &[Vote]) -> Option<&Value> {
    votes.iter().find_map(|vote| match &vote.verdict {
        ApprovalVerdict::Edit { arguments } => Some(arguments),
        _ => None,
    })
}

/// Derives the id of a request from its first id and the edited arguments.
fn id_after(first: ApprovalId, arguments: &Value) -> ApprovalId {
    ApprovalId::derived(&[&first.to_u128().to_be_bytes(), canonical_json::fingerprint(arguments).as_bytes()])
}
