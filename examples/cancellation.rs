//! A tool that learns that its turn is cancelled, and cleans up. It has two seconds; then it is dropped.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::record::TurnEnd;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// A garden hose that reports its state.
struct Hose(UnboundedSender<&'static str>);

/// Waters the garden until it is told to stop.
#[tool(idempotent)]
async fn water(hose: Service<Hose>, cancellation: Cancellation) -> Result<String, Error> {
    let said = hose.0.send("open");
    cancellation.requested().await;
    said.and(hose.0.send("closed")).map_err(failed)?;
    Ok("the hose is closed".to_owned())
}

/// Waters, and cancels.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "call water {}\n---\nsay Done.".parse()?;
    let (to_us, mut from_hose) = unbounded_channel();
    let outlast = Outlast::at(dir.join("cancellation.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(Hose(to_us))
        .tool(water)
        .start()
        .await?;
    let turn = outlast.new_session().send("water the garden").await?;
    let mut events = vec![from_hose.recv().await.unwrap_or("nothing")];
    turn.cancel("it rains").await?;
    events.push(from_hose.recv().await.unwrap_or("nothing"));
    let end = turn.outcome().await;
    outlast.shut_down().await;
    match end? {
        TurnEnd::Cancelled { reason } => Ok(format!("{}; cancelled because {reason}", events.join(", "))),
        end => Ok(format!("{}; {}", events.join(", "), end.name())),
    }
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
