//! Questions for approval, over all sessions: what waits, and what somebody says to it (R11.2).
//!
//! Only people and programs outside reach this; a tool cannot, so an agent never approves what it asks for.
use outlast_ports::store::{Resolved, Store, WaitingTurn};
use outlast_vocab::effect::{BatchCall, Command};
use outlast_vocab::id::{ApprovalId, SessionId, TurnId};
use outlast_vocab::package::Pinned;
use outlast_vocab::policy::{Approval, Ask, Decision, Verdict};
use outlast_vocab::record::{Asked, Fact, Record};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Kind, Millis, limits};
use std::sync::Arc;

/// The questions of a database.
#[derive(Clone)]
pub struct Approvals {
    store: Arc<dyn Store>,
}

/// A call that waits for somebody.
#[derive(Clone, Debug)]
pub struct Question {
    /// What it is called.
    pub id: ApprovalId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The call, exactly as it will run.
    pub call: PreparedCall,
    /// Who may approve it, and until when.
    pub ask: Ask,
    /// When the model asked for it.
    pub since: Millis,
    /// The wait.
    pub wait: Wait,
    /// Whether somebody has decided it, and no worker has taken note of that yet.
    pub decided: bool,
}

impl Approvals {
    /// Those of this database.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// What waits now, the oldest first.
    pub async fn pending(&self, limit: usize) -> Result<Vec<Question>, Error> {
        let mut questions = Vec::new();
        for waiting in self.store.waiting(WaitKind::Approval, limit).await? {
            questions.extend(self.question(waiting).await?.filter(|question| !question.decided));
        }
        Ok(questions)
    }

    /// One of them.
    pub async fn find(&self, id: ApprovalId) -> Result<Question, Error> {
        let waiting = self.store.waiting(WaitKind::Approval, usize::MAX).await?;
        for waiting in waiting.into_iter().filter(|waiting| id_of(waiting.turn, &waiting.wait) == id) {
            if let Some(question) = self.question(waiting).await? {
                return Ok(question);
            }
        }
        Err(Error::new(Kind::ApprovalNotFound, format!("nothing waits for the approval {id}")))
    }

    /// Says yes, no, or yes with a change. The first word counts; whoever comes later is told it.
    pub async fn decide(&self, id: ApprovalId, approval: Approval, now: Millis) -> Result<Resolved, Error> {
        let question = self.find(id).await?;
        let who = &question.ask.who;
        if !who.is_empty() && !who.contains(&approval.by) {
            let detail =
                format!("`{}` may not approve this; it takes one of: {}", approval.by, who.join(", "));
            return Err(Error::new(Kind::ApprovalForbidden, detail));
        }
        if let Verdict::Edit { arguments } = &approval.verdict {
            self.takes(&question, arguments).await?;
        }
        let word = serde_json::to_value(approval).map_err(|cause| {
            Error::new(Kind::InputInvalid, "the approval does not fit JSON").because(cause)
        })?;
        self.store.resolve(question.turn, question.wait.key, Resolution::Ok(word), now).await
    }

    /// Whether the tool of a question takes these arguments, as it was defined when the turn began.
    async fn takes(&self, question: &Question, arguments: &serde_json::Value) -> Result<(), Error> {
        limits::check_depth("json_depth", arguments, limits::Limits::default().json_depth)?;
        let pinned: Result<Pinned, _> = serde_json::from_slice(&self.store.package(question.turn).await?);
        let contracts = pinned.ok().and_then(|pinned| pinned.contracts).unwrap_or_default();
        let Some(contract) = contracts.iter().find(|contract| contract.name == question.call.tool) else {
            return Ok(());
        };
        crate::output::fits_schema(&contract.input, arguments)
    }

    async fn question(&self, waiting: WaitingTurn) -> Result<Option<Question>, Error> {
        let WaitingTurn { session, turn, wait } = waiting;
        let id = id_of(turn, &wait);
        let records = self.store.turn_records(turn).await?;
        let decided = records
            .iter()
            .any(|record| matches!(&record.fact, Fact::Resolved { key, .. } if *key == wait.key));
        let found = records.into_iter().find_map(|record| call_of(record, &wait));
        Ok(found.and_then(|(since, call)| {
            let ask = match &call.ruling.as_ref()?.decision {
                Decision::Ask(ask) => ask.clone(),
                _ => return None,
            };
            Some(Question { id, session, turn, call, ask, since, wait, decided })
        }))
    }
}

/// What the question behind a wait is called.
pub fn id_of(turn: TurnId, wait: &Wait) -> ApprovalId {
    ApprovalId::derived(&[&turn.to_u128().to_be_bytes(), wait.key.as_str().as_bytes()])
}

/// The call that this wait holds up, if the record claims it.
fn call_of(record: Record, wait: &Wait) -> Option<(Millis, PreparedCall)> {
    let (key, batch) = match record.fact {
        Fact::Asked(Asked { key, command: Command::ToolBatch(batch) }) => (key, batch),
        Fact::Ruled(ruled) if wait.key.admits(&ruled.key) => return Some((record.at, ruled.into_call()?)),
        _ => return None,
    };
    batch.calls.into_iter().enumerate().find_map(|(index, call)| match call {
        BatchCall::Run(call) if wait.key.admits(&key.child(index, call.model_id.as_str())) => {
            Some((record.at, call))
        }
        _ => None,
    })
}
