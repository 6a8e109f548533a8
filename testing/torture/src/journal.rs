//! Reads the journal of an idle database through the façade, grouped by call and by turn.
//!
//! It does not use the kernel's own fold, because the code under test must not judge itself.
use outlast::sqlite::SqliteStore;
use outlast::store::{ContentQueries, Journal, Queries, SessionState, SessionView};
use outlast::vocab::effect::{BatchCall, Command, Outcome, ToolOutcome};
use outlast::vocab::record::{ClaimRef, Fact, Record, Seq, TurnEnd};
use outlast::vocab::tool::{EffectClass, PreparedCall};
use outlast::vocab::wait::{Resolution, WaitKind};
use outlast::vocab::{ReplayKey, canonical_json};
use outlast::{Error, Kind, TurnId};
use std::collections::BTreeMap;
use std::path::Path;

/// The page size of listings.
const PAGE: usize = 500;

/// An idle session.
#[derive(Debug)]
pub(crate) struct JournalSession {
    /// Its id, for messages.
    pub(crate) id: String,
    /// Its state.
    pub(crate) state: SessionState,
    /// The unfinished turn, and the kinds of its waits.
    pub(crate) active: Option<(TurnId, Vec<WaitKind>)>,
    /// The counter value of the transactional tool.
    pub(crate) count: u64,
    /// Its turns.
    pub(crate) turns: BTreeMap<TurnId, JournalTurn>,
    /// Its calls, in order.
    pub(crate) calls: Vec<JournalCall>,
    /// Facts that should not occur in our runs.
    pub(crate) unexpected_facts: Vec<String>,
}

/// A turn, according to the records of its session.
#[derive(Debug, Default)]
pub(crate) struct JournalTurn {
    /// The idempotency key of its input.
    pub(crate) key: String,
    /// The position of its input.
    pub(crate) seq: u64,
    /// The chain hash at that position.
    pub(crate) hash: String,
    /// How often it started.
    pub(crate) started: usize,
    /// Turns that took its input at a checkpoint.
    pub(crate) joined: Vec<TurnId>,
    /// Whether its cancellation was requested.
    pub(crate) cancelled: bool,
    /// Its ends: one, or none yet.
    pub(crate) ends: Vec<TurnEnd>,
    /// The recorded resolutions of its waits.
    pub(crate) resolved: Vec<(ReplayKey, Resolution)>,
    /// The resolutions of its waits as the turn read them.
    pub(crate) read: Vec<(ReplayKey, Resolution)>,
}

/// A call, according to the records of its session.
#[derive(Debug)]
pub(crate) struct JournalCall {
    /// Its id, which is its idempotency key.
    pub(crate) id: String,
    /// The tool.
    pub(crate) tool: String,
    /// Its effect class, which decides what happens if it is interrupted.
    pub(crate) class: EffectClass,
    /// The fingerprint of its arguments.
    pub(crate) arguments: String,
    /// The turn it belongs to.
    pub(crate) turn: TurnId,
    /// The last recorded attempt.
    pub(crate) attempt: u32,
    /// Its outcomes: one, or none yet.
    pub(crate) outcomes: Vec<ToolOutcome>,
    /// Whether an operator recorded its outcome.
    pub(crate) settled: bool,
    /// Its recorded steps with the attempts that recorded them.
    pub(crate) steps: Vec<(String, u32)>,
    claim: ClaimRef,
    key: ReplayKey,
}

impl JournalSession {
    /// Folds the records of a session.
    pub(crate) fn of(view: &SessionView, count: u64, records: &[Record]) -> Self {
        let active = view.active.map(|turn| (turn, view.waits.iter().map(|wait| wait.kind).collect()));
        let mut session = Self {
            id: view.id.to_string(),
            state: view.state,
            active,
            count,
            turns: BTreeMap::new(),
            calls: Vec::new(),
            unexpected_facts: Vec::new(),
        };
        for record in records {
            match record.turn {
                Some(turn) => session.take(turn, record),
                None if matches!(record.fact, Fact::Opened { .. }) => {}
                None => session.add_unexpected_fact(record, "belongs to no turn"),
            }
        }
        session
    }

    fn take(&mut self, turn: TurnId, record: &Record) {
        match &record.fact {
            Fact::Accepted(accepted) => {
                let entry = self.turns.entry(turn).or_default();
                entry.key = accepted.key.clone().unwrap_or_default();
                (entry.seq, entry.hash) = (record.seq.0, record.hash.to_string());
            }
            Fact::Started(_) => self.turn(turn).started += 1,
            Fact::CancelRequested { .. } => self.turn(turn).cancelled = true,
            Fact::Ended { end } => self.turn(turn).ends.push(end.clone()),
            Fact::Resolved { key, resolution } => {
                self.turn(turn).resolved.push((key.clone(), resolution.clone()));
            }
            Fact::Asked(asked) => match &asked.command {
                Command::ToolBatch(batch) => {
                    for (child, call) in (0..).zip(&batch.calls) {
                        let key = asked.key.child(child as usize, call.model_id().as_str());
                        match call {
                            BatchCall::Run(call) => {
                                let claim = ClaimRef { asked: record.seq, child };
                                self.calls.push(JournalCall::claimed(turn, claim, key, call));
                            }
                            BatchCall::Refused(refused) => {
                                self.add_unexpected_fact(record, &refused.failure.to_string());
                            }
                        }
                    }
                }
                command => self.add_unexpected_fact(record, &format!("asks for {}", command.kind())),
            },
            Fact::Answered(answered) => match (self.call(answered.claim), &answered.outcome) {
                (Some(call), Outcome::ToolCall(outcome)) => call.outcomes.push(outcome.clone()),
                _ => self.add_unexpected_fact(record, "answers nothing that was asked"),
            },
            Fact::Reclaimed(reclaimed) => match self.call(reclaimed.claim) {
                Some(call) => call.attempt = reclaimed.attempt,
                None => self.add_unexpected_fact(record, "takes over what was not asked"),
            },
            Fact::Settled(settled) => match self.call(settled.claim) {
                Some(call) => call.settled = true,
                None => self.add_unexpected_fact(record, "settles what was not asked"),
            },
            Fact::Performed(performed) => match (&performed.command, &performed.outcome) {
                (Command::DurableStep(step), _) => {
                    let call = self.calls.iter_mut().find(|call| call.key.step(&step.name) == performed.key);
                    match call {
                        Some(call) => call.steps.push((step.name.clone(), call.attempt)),
                        None => self.add_unexpected_fact(record, "is a step of no call"),
                    }
                }
                (_, Outcome::Checkpoint(joined)) => {
                    for input in &joined.inputs {
                        self.turn(input.turn).joined.push(turn);
                    }
                }
                (_, Outcome::AwaitEvent(resolution)) => {
                    self.turn(turn).read.push((performed.key.clone(), resolution.clone()));
                }
                _ => {}
            },
            Fact::Stuck { failure } => {
                self.add_unexpected_fact(record, &format!("the turn got stuck: {failure}"));
            }
            // Only a turn that is cancelled while it waits leaves a call without a result.
            Fact::Repaired { .. } if self.turns.values().any(|turn| turn.cancelled) => {}
            // Compaction shortens a long session for the model and changes nothing else.
            // A worker that resumes after a kill records it.
            // Text before a cancellation is kept.
            Fact::Parked { .. } | Fact::Compacted(_) | Fact::Resumed(_) | Fact::Interrupted(_) => {}
            Fact::Opened { .. }
            | Fact::HeadMoved { .. }
            | Fact::EnvironmentRequested(_)
            | Fact::Repaired { .. }
            | Fact::Undoable(_)
            | Fact::Hooked(_)
            | Fact::Reminded { .. }
            | Fact::Escalated { .. }
            | Fact::Payment(_)
            | Fact::Ruled(_)
            | Fact::Paced(_)
            | Fact::Tried(_) => {
                self.add_unexpected_fact(record, "nobody did this");
            }
        }
    }

    fn turn(&mut self, turn: TurnId) -> &mut JournalTurn {
        self.turns.entry(turn).or_default()
    }

    fn call(&mut self, claim: ClaimRef) -> Option<&mut JournalCall> {
        self.calls.iter_mut().find(|call| call.claim == claim)
    }

    fn add_unexpected_fact(&mut self, record: &Record, why: &str) {
        let odd = format!("record {} of {} (`{}`): {why}", record.seq, self.id, record.fact.name());
        self.unexpected_facts.push(odd);
    }
}

impl JournalCall {
    fn claimed(turn: TurnId, claim: ClaimRef, key: ReplayKey, call: &PreparedCall) -> Self {
        Self {
            id: call.id.to_string(),
            tool: call.tool.to_string(),
            class: call.class,
            arguments: canonical_json::fingerprint(&call.arguments).to_string(),
            turn,
            attempt: 1,
            outcomes: Vec::new(),
            settled: false,
            steps: Vec::new(),
            claim,
            key,
        }
    }
}

/// Reads every session of a database.
pub(crate) fn read(database: &Path) -> Result<Vec<JournalSession>, Error> {
    query_database(database, async |store| {
        let mut sessions = Vec::new();
        for view in list(store).await? {
            let count = store.value(view.id, "count".to_owned()).await?;
            let count = count.and_then(|count| count.as_u64()).unwrap_or(0);
            let mut records: Vec<Record> = Vec::new();
            loop {
                let after = records.last().map_or(Seq(0), |record| record.seq);
                let page = store.records(view.id, after, PAGE).await?;
                if page.is_empty() {
                    break;
                }
                records.extend(page);
            }
            sessions.push(JournalSession::of(&view, count, &records));
        }
        Ok(sessions)
    })
}

/// Returns whether no session has work to do. A session that is parked without a deadline waits for a person.
pub(crate) fn is_database_idle(database: &Path) -> Result<bool, Error> {
    let views = query_database(database, list)?;
    Ok(views.iter().all(|session| match session.state {
        SessionState::Idle => true,
        SessionState::Parked => session.wake_at.is_none(),
        SessionState::Ready | SessionState::Leased | SessionState::Held => false,
    }))
}

/// Returns the number of sessions that a worker drives.
pub(crate) fn driven_by(database: &Path, worker: &str) -> Result<usize, Error> {
    let views = query_database(database, list)?;
    Ok(views.iter().filter_map(|session| session.worker).filter(|held| held.to_string() == worker).count())
}

/// Lists every session of a database.
async fn list(store: &SqliteStore) -> Result<Vec<SessionView>, Error> {
    let mut views: Vec<SessionView> = Vec::new();
    loop {
        let page = store.sessions(views.last().map(|view| view.id), PAGE).await?;
        if page.is_empty() {
            return Ok(views);
        }
        views.extend(page);
    }
}

/// Opens a database for one query. It is not kept open, because open connections affect when the log is checkpointed.
fn query_database<T>(
    database: &Path,
    ask: impl AsyncFnOnce(&SqliteStore) -> Result<T, Error>,
) -> Result<T, Error> {
    let store = SqliteStore::open(database)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|cause| {
        Error::new(Kind::IoFailed, format!("the system gave no runtime: {cause}")).because(cause)
    })?;
    runtime.block_on(ask(&store))
}
