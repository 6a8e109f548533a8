//! A durable sleep. The turn parks, and any worker that runs when the time has come resumes it.
//!
//! A sleep of up to two seconds normally waits in memory. Here every sleep parks, to keep the example fast: the first
//! runtime is shut down while the egg cooks, and the second takes it out. After a sleep the tool runs again from its
//! start, so anything that must not happen twice is a step.
use outlast::Limits;
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::event::Event;
use outlast::vocab::record::Fact;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Counts the eggs that were put into water.
#[derive(Clone, Default)]
struct Kitchen(Arc<AtomicU32>);

/// Boils an egg.
#[tool(idempotent)]
async fn boil(
    /// How long, in milliseconds.
    #[default(200)]
    cook_ms: u64,
    kitchen: Service<Kitchen>,
    steps: Steps,
    timer: Timer,
) -> Result<String, Error> {
    let egg: u32 = steps.run("fill the pot", &(), async { Ok(kitchen.0.fetch_add(1, SeqCst) + 1) }).await?;
    timer.sleep(Duration::from_millis(cook_ms)).await?;
    Ok(format!("egg {egg} is done"))
}

async fn start(dir: &Path, kitchen: &Kitchen) -> Result<Outlast, Error> {
    let script: Script = "call boil {}\n---\nsay {{result boil}}".parse()?;
    Outlast::at(dir.join("sleep.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .limits(Limits { wait_in_memory: Duration::ZERO, ..Limits::default() })
        .service(kitchen.clone())
        .tool(boil)
        .start()
        .await
}

/// Puts an egg on, shuts everything down, and takes it out.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let kitchen = Kitchen::default();
    let first = start(dir, &kitchen).await?;
    let turn = first.new_session().send("an egg, please").await?;
    let (id, mut events) = (turn.id(), turn.events());
    while !matches!(events.next().await?, Event::Durable(record) if matches!(record.fact, Fact::Parked { .. }))
    {
    }
    first.shut_down().await;

    let second = start(dir, &kitchen).await?;
    let answer = second.turn(id).await?.answer().await;
    second.shut_down().await;
    Ok(format!("{}; pots filled: {}", answer?, kitchen.0.load(SeqCst)))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
