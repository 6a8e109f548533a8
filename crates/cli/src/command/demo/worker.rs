//! The process that is killed: drives turns on an SQLite file and prints its progress as lines.
//!
//! It reads inputs as JSON lines from standard input. Every worker gets all inputs again, and the idempotency
//! key makes that harmless. It exits when all their turns have ended.
use super::execution_log::ExecutionLog;
use super::progress::{DemoInput, DemoProgress, EffectLabel};
use super::tools::{ACTIONS, DemoPace};
use crate::formatting;
use crate::terminal;
use clap::Args;
use outlast::clock::{Clock, Entropy};
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::sqlite::SqliteStore;
use outlast::store::{Inbox, Queries, SessionState, SessionTarget};
use outlast::vocab::ReplayKey;
use outlast::vocab::effect::{Command, ModelOutcome, Outcome};
use outlast::vocab::event::{Event, LiveEventKind};
use outlast::vocab::message::text_of;
use outlast::vocab::record::{ClaimRef, EffectPerformed, EffectRequested, Fact, Record, Seq};
use outlast::{Error, Kind, Outlast, SessionEventStream, SessionId, TurnId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The file name of the database.
pub(super) const DATABASE: &str = "outlast.db";
/// The file name of the witness.
pub(super) const WITNESS: &str = "witness.log";

const SCRIPT: &str = include_str!("script.txt");

/// How long the model takes for a word at full pace.
const WORD: Duration = Duration::from_millis(30);

/// The script and its speed.
#[derive(Args)]
pub(super) struct DemoWorkerArgs {
    /// Script to play
    #[arg(long, hide = true, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Duration of actions, in percent of the default
    #[arg(long, hide = true, value_name = "PERCENT", default_value_t = 100)]
    pace: u32,
}

impl DemoWorkerArgs {
    /// Drives all inputs until their turns end.
    pub(super) async fn work(self, dir: &Path) -> Result<(), Error> {
        let orders = orders()?;
        let database = dir.join(DATABASE);
        let sessions = open_sessions(&database, &orders).await?;
        let outlast = self.start(&database, &dir.join(WITNESS)).await?;
        // Nothing runs yet: on this single thread, spawned tasks start at the first await. So no live event
        // is missed.
        let (to_us, mut ended) = mpsc::unbounded_channel();
        let mut watchers = tokio::task::JoinSet::new();
        for (id, past) in sessions.values() {
            let events = outlast.runtime().events(*id, Seq(0));
            let watcher = DemoEventPrinter::new(outlast.clone(), *id, *past, to_us.clone());
            watchers.spawn(watcher.tell(events));
        }
        let mut open = BTreeSet::new();
        for DemoInput { session, key, text } in orders {
            let session = outlast.session(session);
            let turn = session.send_once(&key, text).await?;
            open.insert(turn.id());
            terminal::json(&DemoProgress::Accepted { key, turn: turn.id(), duplicate: turn.duplicate() });
        }
        let mut over = BTreeSet::new();
        while !open.is_subset(&over) {
            tokio::select! {
                Some(turn) = ended.recv() => { over.insert(turn); }
                Some(watched) = watchers.join_next() => watched.map_err(|cause| died(&cause))??,
            }
        }
        outlast.shut_down().await;
        Ok(())
    }

    async fn start(&self, database: &Path, witness: &Path) -> Result<Outlast, Error> {
        let script = match &self.script {
            Some(path) => Script::read(path)?,
            None => SCRIPT.parse()?,
        };
        let pace = DemoPace(self.pace);
        let model = Rehearsal::scripted(script, Arc::new(SystemClock)).with_word_delay(pace.of(WORD));
        let builder = Outlast::at(database).provider(model).model("rehearsal/demo");
        let builder = builder.service(ExecutionLog::open(witness)?).service(pace);
        ACTIONS.into_iter().fold(builder, outlast::Builder::tool).start().await
    }
}

fn died(cause: &tokio::task::JoinError) -> Error {
    Error::new(Kind::Internal, format!("a watcher thread stopped: {cause}"))
}

fn orders() -> Result<Vec<DemoInput>, Error> {
    let lines = std::io::stdin().lock().lines();
    lines
        .map(|line| {
            let line = line.map_err(|cause| {
                Error::new(Kind::IoFailed, format!("standard input cannot be read: {cause}"))
            })?;
            serde_json::from_str(&line).map_err(|cause| {
                Error::new(Kind::InputInvalid, format!("expected an order as JSON: {cause}"))
            })
        })
        .collect()
}

/// Opens the sessions before the worker starts, to get their ids and their last records.
async fn open_sessions(
    database: &Path,
    orders: &[DemoInput],
) -> Result<BTreeMap<String, (SessionId, Seq)>, Error> {
    let store = SqliteStore::open(database)?;
    let mut sessions = BTreeMap::new();
    for DemoInput { session, .. } in orders {
        let now = SystemClock.now();
        let fresh = SessionId::fresh(now, SystemEntropy.random_id_bytes());
        let id = store.open(SessionTarget::Key { key: session.clone(), fresh }, now).await?;
        let view = store.session(id).await?;
        sessions.insert(session.clone(), (id, view.last.seq));
    }
    Ok(sessions)
}

/// Prints the events of one session.
struct DemoEventPrinter {
    outlast: Outlast,
    session: SessionId,
    /// Records up to here were written by another process.
    past: Seq,
    ended: mpsc::UnboundedSender<TurnId>,
    names: BTreeMap<ReplayKey, String>,
    claims: BTreeMap<(Seq, u32), ReplayKey>,
}

impl DemoEventPrinter {
    fn new(outlast: Outlast, session: SessionId, past: Seq, ended: mpsc::UnboundedSender<TurnId>) -> Self {
        Self { outlast, session, past, ended, names: BTreeMap::new(), claims: BTreeMap::new() }
    }

    async fn tell(mut self, mut events: SessionEventStream) -> Result<(), Error> {
        loop {
            let progress = match events.next().await? {
                Event::Durable(record) => self.on_record(&record).await?,
                Event::Live(live) => self.on_live_event(live.what),
                Event::Missed { .. } => None,
            };
            if let Some(progress) = progress {
                terminal::json(&progress);
            }
        }
    }

    fn on_live_event(&self, what: LiveEventKind) -> Option<DemoProgress> {
        match what {
            LiveEventKind::Replayed { key } => Some(DemoProgress::Replayed(self.step(&key))),
            LiveEventKind::Interrupted { key } => Some(DemoProgress::Interrupted(self.step(&key))),
            LiveEventKind::Running { key, attempt } | LiveEventKind::Text { key, attempt, offset: 0, .. } => {
                Some(DemoProgress::Begun { step: self.step(&key), attempt })
            }
            LiveEventKind::Text { .. }
            | LiveEventKind::Retracted { .. }
            | LiveEventKind::PromptChanged { .. }
            | LiveEventKind::Progress { .. }
            | LiveEventKind::Output { .. }
            | LiveEventKind::BudgetLow { .. }
            | LiveEventKind::Held { .. } => None,
        }
    }

    async fn on_record(&mut self, record: &Record) -> Result<Option<DemoProgress>, Error> {
        let is_new = record.seq > self.past;
        Ok(match (&record.fact, record.turn) {
            (Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }), _) => {
                for (child, call) in batch.calls.iter().enumerate() {
                    let key = key.child(child, call.model_id().as_str());
                    self.names.insert(key.clone(), formatting::claimed(call));
                    self.claims.insert((record.seq, u32::try_from(child).unwrap_or(u32::MAX)), key);
                }
                None
            }
            (Fact::Performed(performed), _) if is_new => self.performed(performed),
            (Fact::Answered(answered), _) if is_new => {
                let ClaimRef { asked, child } = answered.claim;
                let key = self.claims.get(&(asked, child));
                match (key, &answered.outcome) {
                    (Some(key), Outcome::ToolCall(outcome)) => Some(DemoProgress::Answered {
                        step: self.step(key),
                        outcome: formatting::outcome(outcome),
                    }),
                    _ => None,
                }
            }
            (Fact::Parked { waits }, Some(turn)) => {
                let session = self.outlast.store().session(self.session).await?;
                let still = session.state == SessionState::Parked && session.waits == *waits;
                let mut keys = Vec::new();
                for wait in waits {
                    keys.push(self.outlast.runtime().key_of(turn, &wait.key).await?.to_string());
                }
                still.then_some(DemoProgress::Parked { keys })
            }
            (Fact::Ended { end }, Some(turn)) => {
                // If the receiver is gone, all other turns have ended.
                let _ = self.ended.send(turn);
                Some(DemoProgress::Ended { turn, end: end.clone() })
            }
            _ => None,
        })
    }

    fn performed(&self, performed: &EffectPerformed) -> Option<DemoProgress> {
        let outcome = match &performed.outcome {
            Outcome::ModelCall(ModelOutcome::Reply(reply)) => formatting::quoted(&text_of(&reply.parts)),
            Outcome::ModelCall(ModelOutcome::Failed(failed)) => failed.failure.to_string(),
            Outcome::AwaitEvent(resolution) => formatting::resolution(resolution),
            _ => return None,
        };
        Some(DemoProgress::Answered { step: self.step(&performed.key), outcome })
    }

    fn step(&self, key: &ReplayKey) -> EffectLabel {
        let text = key.as_str();
        let name = match (self.names.get(key), text.strip_suffix("/completion"), text.rsplit_once("/model/"))
        {
            (Some(name), ..) => name.clone(),
            (None, Some(call), _) => {
                let call = self.names.iter().find(|(key, _)| key.as_str() == call);
                call.map_or_else(|| text.to_owned(), |(_, name)| format!("{name} from outside"))
            }
            (None, None, Some((_, number))) => format!("model call {number}"),
            (None, None, None) => text.to_owned(),
        };
        EffectLabel { key: text.to_owned(), name }
    }
}
