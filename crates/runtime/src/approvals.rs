//! Questions for approval, over all sessions: what waits, and what somebody says to it (R11.2).
//!
//! Only people and programs outside reach this; a tool cannot, so an agent never approves what it asks for.
use outlast_ports::store::{Store, WaitingTurn};
use outlast_ports::votes::{Ballot, Grant, Standing, Vote, Voted, held_up};
use outlast_vocab::approval::{Given, question_id};
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{ApprovalId, GrantId, SessionId, TurnId};
use outlast_vocab::label::Provenance;
use outlast_vocab::package::Pinned;
use outlast_vocab::policy::{Approval, Ask, Decision, Verdict};
use outlast_vocab::record::Fact;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Limits, Millis, ReplayKey, canon, limits};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The questions of a database.
#[derive(Clone)]
pub struct Approvals {
    store: Arc<dyn Store>,
}

/// A call that waits for somebody.
#[derive(Clone, Debug)]
pub struct Question {
    /// What it is called. Once somebody has changed its arguments it is another question, with another id.
    pub id: ApprovalId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The call, exactly as it will run.
    pub call: PreparedCall,
    /// What the model asked for, where somebody has changed the arguments since.
    pub original: Option<Value>,
    /// Who may approve it, and until when.
    pub ask: Ask,
    /// Who has approved it so far.
    pub votes: Vec<Vote>,
    /// What those who may approve it were told since.
    pub given: Given,
    /// When the model asked for it.
    pub since: Millis,
    /// The wait.
    pub wait: Wait,
    /// What its turn cost so far, as far as prices were known.
    pub cost: Cost,
    /// Whether it is decided, and no worker has taken note of that yet.
    pub decided: bool,
}

impl Question {
    /// Who may answer it by now; anybody if nobody is named.
    pub fn heard(&self) -> Vec<&str> {
        self.ask.heard(self.given)
    }

    /// The fingerprint of the arguments, where somebody has changed them.
    fn edited(&self) -> Option<Hash> {
        self.original.as_ref().map(|_| canon::fingerprint(&self.call.arguments))
    }
}

/// Where a question stands among all of them: ids of turns are in the order of their time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place(TurnId, ReplayKey);

impl Place {
    fn of(waiting: &WaitingTurn) -> Self {
        Self(waiting.turn, waiting.wait.key.clone())
    }
}

impl Approvals {
    /// Those of this database.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// What waits now, the oldest first. What nobody approved in time does not wait any more, even if no worker has seen that.
    pub async fn pending(&self, limit: usize, now: Millis) -> Result<Vec<Question>, Error> {
        Ok(self.pending_after(None, limit, now).await?.0)
    }

    /// What waits now behind a place, the oldest first, and the place to go on behind if there is more. Only what is given is read.
    pub async fn pending_after(
        &self,
        after: Option<Place>,
        limit: usize,
        now: Millis,
    ) -> Result<(Vec<Question>, Option<Place>), Error> {
        let mut all = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        all.retain(|waiting| waiting.wait.deadline.is_none_or(|deadline| now < deadline));
        all.sort_by_cached_key(Place::of);
        let (mut questions, mut last) = (Vec::new(), None);
        for waiting in all {
            let place = Place::of(&waiting);
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

    /// What a turn waits for now.
    pub async fn of_turn(&self, turn: TurnId) -> Result<Vec<Question>, Error> {
        let mut questions = Vec::new();
        let waiting = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        for waiting in waiting.into_iter().filter(|waiting| waiting.turn == turn) {
            questions.extend(self.question(waiting).await?.filter(|question| !question.decided));
        }
        Ok(questions)
    }

    /// One of them. Only the records of its own turn are read.
    pub async fn find(&self, id: ApprovalId) -> Result<Question, Error> {
        let gone = || Error::new(Kind::ApprovalNotFound, format!("nothing waits for the approval {id}"));
        let waiting = self.named(id).await?.ok_or_else(gone)?;
        let question = self.question(waiting).await?.ok_or_else(gone)?;
        if question.id == id {
            return Ok(question);
        }
        let detail = format!("somebody has changed the arguments of {id}; it is {} now", question.id);
        Err(Error::new(Kind::ApprovalNotFound, detail))
    }

    /// What waits for an answer to the question that has this id, or had it before somebody changed the arguments.
    async fn named(&self, id: ApprovalId) -> Result<Option<WaitingTurn>, Error> {
        let first = |waiting: &WaitingTurn| question_id(waiting.turn, &waiting.wait.key);
        let mut waiting = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        if let Some(at) = waiting.iter().position(|waiting| first(waiting) == id) {
            return Ok(Some(waiting.swap_remove(at)));
        }
        for waiting in waiting {
            let votes = self.store.standing(waiting.turn, waiting.wait.key.clone()).await?.votes;
            if edit_in(&votes).is_some_and(|arguments| id_after(first(&waiting), arguments) == id) {
                return Ok(Some(waiting));
            }
        }
        Ok(None)
    }

    /// Says yes, no, or yes with a change. A no decides at once, and so does the yes that completes what it takes; whoever
    /// comes later is told what was decided.
    pub async fn decide(&self, id: ApprovalId, approval: Approval, now: Millis) -> Result<Voted, Error> {
        let question = self.find(id).await?;
        if let Verdict::Edit { arguments } = &approval.verdict {
            self.takes(&question, arguments).await?;
        }
        let (edited, grants_most) = (question.edited(), Limits::default().grants_per_session);
        let (turn, key) = (question.turn, question.wait.key);
        self.store.vote(Ballot { turn, key, edited, approval, grants_most, now }).await
    }

    /// What is approved for the rest of sessions, the newest first.
    pub async fn grants(&self, limit: usize) -> Result<Vec<Grant>, Error> {
        self.store.grants(limit).await
    }

    /// Ends an approval for the rest of a session: somebody is asked again from the next call on.
    pub async fn revoke(&self, id: GrantId, now: Millis) -> Result<Grant, Error> {
        self.store.revoke_grant(id, now).await
    }

    /// Whether the tool of a question takes these arguments, as it was defined when the turn began.
    pub async fn takes(&self, question: &Question, arguments: &Value) -> Result<(), Error> {
        limits::check_depth("json_depth", arguments, Limits::default().json_depth)?;
        let pinned: Result<Pinned, _> = serde_json::from_slice(&self.store.package(question.turn).await?);
        let contracts = pinned.ok().and_then(|pinned| pinned.contracts).unwrap_or_default();
        let Some(contract) = contracts.iter().find(|contract| contract.name == question.call.tool) else {
            return Ok(());
        };
        crate::output::fits_schema(&contract.input, arguments).await
    }

    async fn question(&self, waiting: WaitingTurn) -> Result<Option<Question>, Error> {
        question(self.store.as_ref(), waiting).await
    }
}

/// The question that a turn waits for an answer to, as it stands by now.
pub(crate) async fn question(store: &dyn Store, waiting: WaitingTurn) -> Result<Option<Question>, Error> {
    let WaitingTurn { session, turn, wait } = waiting;
    let records = store.turn_records(turn).await?;
    let decided =
        records.iter().any(|record| matches!(&record.fact, Fact::Resolved { key, .. } if *key == wait.key));
    let cost = records.iter().filter_map(|record| record.fact.cost()).sum();
    let held = records.into_iter().find_map(|record| held_up(record, &wait.key));
    let Some((since, mut call)) = held else { return Ok(None) };
    let Some(Decision::Ask(ask)) = call.ruling.as_ref().map(|ruling| ruling.decision.clone()) else {
        return Ok(None);
    };
    let Standing { votes, given } = store.standing(turn, wait.key.clone()).await?;
    let edit = edit_in(&votes).cloned();
    let original = edit.map(|arguments| {
        // It was found for the values that the model chose.
        call.provenance = Provenance::default();
        std::mem::replace(&mut call.arguments, arguments)
    });
    let first = question_id(turn, &wait.key);
    let id = original.as_ref().map_or(first, |_| id_after(first, &call.arguments));
    Ok(Some(Question { id, session, turn, call, original, ask, votes, given, since, wait, cost, decided }))
}

/// The arguments that the votes are for, where somebody has changed them.
fn edit_in(votes: &[Vote]) -> Option<&Value> {
    votes.iter().find_map(|vote| match &vote.verdict {
        Verdict::Edit { arguments } => Some(arguments),
        _ => None,
    })
}

/// What a question is called once somebody has changed its arguments to these.
fn id_after(first: ApprovalId, arguments: &Value) -> ApprovalId {
    ApprovalId::derived(&[&first.to_u128().to_be_bytes(), canon::fingerprint(arguments).as_bytes()])
}
