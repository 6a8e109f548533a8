//! Compares what the witness saw with what Outlast promises.
use super::demo_run::{DemoOutcome, SESSION};
use super::execution_log::{self, ExecutionCounts};
use super::tools::{ACTIONS, DemoAction};
use super::worker::{DATABASE, WITNESS};
use crate::terminal::{self, OutputLine, TextStyle};
use outlast::sqlite::SqliteStore;
use outlast::store::{Journal, Queries, SessionView};
use outlast::vocab::effect::Command;
use outlast::vocab::record::{EffectRequested, Fact, TurnEnd};
use outlast::vocab::tool::EffectClass;
use outlast::{Error, Kind, Limits};
use std::collections::BTreeMap;

/// The minimum number of kills of a demo.
const KILLS_LEAST: usize = 5;

/// Prints the answer and the table. A broken promise is an error.
pub(super) async fn report(outcome: &DemoOutcome) -> Result<(), Error> {
    let store = SqliteStore::open(&outcome.dir.join(DATABASE))?;
    let session = store.session_by_key(SESSION.to_owned()).await?;
    let mut broken = Vec::new();
    match &outcome.end {
        TurnEnd::Answered { text } => {
            OutputLine::new().ink(TextStyle::Bold, "answer").say();
            terminal::say(&format!("  {text}"));
        }
        end => broken.push(format!("the turn did not end with an answer: {}", end.name())),
    }
    let title = format!("how often the tools were executed, over {} kills", outcome.kills);
    OutputLine::new().ink(TextStyle::Bold, &title).say();
    let seen = execution_log::read(&outcome.dir.join(WITNESS))?;
    let asked = calls(&store, &session).await?;
    let mut rows = Vec::new();
    for action in ACTIONS {
        let nothing = ExecutionCounts::default();
        let seen = seen.get(action.name).unwrap_or(&nothing);
        let calls = asked.get(action.name).copied().unwrap_or(0);
        let promise_holds = promise_holds_for(action, seen, calls);
        if !promise_holds {
            broken.push(format!("`{}` was executed more often than allowed", action.name));
        }
        rows.push(vec![
            action.name.to_owned(),
            class(action.class).to_owned(),
            calls.to_string(),
            allowed(action.class).to_owned(),
            seen.executions().to_string(),
            seen.by_call.len().to_string(),
            if promise_holds { "✓" } else { "✗ BROKEN" }.to_owned(),
        ]);
    }
    terminal::table(&["ACTION", "CLASS", "CALLS", "ALLOWED", "EXECUTED", "KEYS", "KEPT"], &rows);
    if session.turns != 1 {
        broken.push(format!("the input was accepted {} times", session.turns));
    }
    if outcome.kills < KILLS_LEAST {
        broken.push(format!("only {} kills happened", outcome.kills));
    }
    let records = store.verify(session.id).await?;
    terminal::say(&format!("the hash chain over {records} records is intact"));
    unknown(&store, outcome).await?;
    look_around(outcome);
    if broken.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Internal, format!("a guarantee was violated: {}", broken.join("; "))))
}

/// Counts the calls of each tool in the journal.
async fn calls(store: &SqliteStore, session: &SessionView) -> Result<BTreeMap<String, usize>, Error> {
    let mut calls = BTreeMap::new();
    for turn in store.turns(session.id, 0, session.turns as usize).await? {
        for record in store.turn_records(turn.id).await? {
            if let Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) = record.fact {
                batch.calls.iter().for_each(|call| *calls.entry(call.tool().to_string()).or_default() += 1);
            }
        }
    }
    Ok(calls)
}

fn promise_holds_for(action: DemoAction, seen: &ExecutionCounts, calls: usize) -> bool {
    let once = seen.by_call.values().all(|executions| *executions <= 1);
    seen.by_call.len() <= calls && (once || action.class.may_repeat())
}

const fn class(class: EffectClass) -> &'static str {
    match class {
        EffectClass::Pure => "pure",
        EffectClass::Idempotent => "idempotent",
        EffectClass::AtMostOnce => "at most once",
        EffectClass::Transactional => "transactional",
    }
}

const fn allowed(class: EffectClass) -> &'static str {
    match class {
        EffectClass::Pure => "any number",
        EffectClass::Idempotent => "any number, one key per call",
        EffectClass::AtMostOnce => "1 per call, or 0",
        EffectClass::Transactional => "1 per call",
    }
}

async fn unknown(store: &SqliteStore, outcome: &DemoOutcome) -> Result<(), Error> {
    for call in store.unknown(Limits::default().page_rows).await? {
        OutputLine::new()
            .ink(TextStyle::Warning, &format!("`{}` was killed while it ran", call.tool))
            .text("; its outcome is unknown, so it was not repeated. Find out whether it happened, then record it:")
            .say();
        let settle = format!("{} unknown settle {}", program(outcome), call.call);
        terminal::say(&format!("  {settle} --happened JSON | --did-not-happen"));
    }
    Ok(())
}

/// Returns the command line of this program with the demo's database.
fn program(outcome: &DemoOutcome) -> String {
    let name = std::env::args().next().unwrap_or_else(|| "outlast".to_owned());
    format!("{name} --data {}", outcome.dir.join(DATABASE).display())
}

fn look_around(outcome: &DemoOutcome) {
    terminal::say("the files are kept; to inspect them:");
    for command in ["sessions show demo", "events demo", "unknown", "verify", "doctor"] {
        terminal::say(&format!("  {} {command}", program(outcome)));
    }
}
