//! A call that is completed from outside. The turn parks: it needs no process while it waits, and any process can
//! resume it.
//!
//! The tool gives its completion key to the person who decides. Then everything is shut down. A second runtime on the
//! same file receives the decision and finishes the turn that the first one started.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::serde_json::json;
use outlast::vocab::event::Event;
use outlast::vocab::record::Fact;
use outlast::vocab::wait::{CompletionKey, Resolution};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Where questions arrive. A real desk would send mail. Everyone with the key can answer.
#[derive(Default)]
struct QuestionInbox(Mutex<Vec<CompletionKey>>);

/// Asks for a decision.
// Idempotent: if it runs twice, the boss gets the same key twice.
#[tool(idempotent)]
async fn ask_the_boss(
    question: String,
    inbox: Service<Arc<QuestionInbox>>,
    completion: Completion,
    progress: Progress,
) -> Result<ToolRunOutcome, Error> {
    progress.note(format!("asked the boss: {question}"));
    inbox.0.lock().unwrap().push(completion.key()?);
    Ok(ToolRunOutcome::Pending)
}

async fn start(dir: &Path, inbox: &Arc<QuestionInbox>) -> Result<Outlast, Error> {
    let script: Script = "\
        call ask_the_boss {\"question\": \"May I buy the boat?\"}
        ---
        say The boss says: {{result ask_the_boss /answer}}."
        .parse()?;
    Outlast::at(dir.join("pending.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(inbox.clone())
        .tool(ask_the_boss)
        .start()
        .await
}

/// Asks, shuts everything down, decides, and resumes.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let inbox = Arc::new(QuestionInbox::default());
    let first = start(dir, &inbox).await?;
    let turn = first.new_session().send("buy the boat").await?;
    let (id, mut events) = (turn.id(), turn.events());
    while !matches!(events.next().await?, Event::Durable(record) if matches!(record.fact, Fact::Parked { .. }))
    {
    }
    first.shut_down().await;

    let key = inbox.0.lock().unwrap().remove(0);
    let second = start(dir, &inbox).await?;
    let resolved = second.runtime().resolve(&key, Resolution::Ok(json!({"answer": "no"}))).await?;
    let late = second.runtime().resolve(&key, Resolution::Ok(json!({"answer": "yes"}))).await?;
    let answer = second.turn(id).await?.answer().await;
    second.shut_down().await;
    Ok(format!("{} First decision counted: {}, second: {}", answer?, resolved.is_yours, late.is_yours))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
