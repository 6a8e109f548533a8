//! A tool that waits for an event from outside and continues with its value.
//!
//! The carrier gets the key of the event with the order. The key is the same in every run of the tool, so the carrier's
//! report is still valid after a crash. The report may arrive before the tool waits, or days later.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::serde_json::json;
use outlast::vocab::wait::{CompletionKey, Resolution};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// A carrier that receives the key to report to.
struct Carrier(UnboundedSender<CompletionKey>);

/// Sends a parcel and waits until it is delivered.
#[tool(idempotent)]
async fn deliver(
    item: String,
    carrier: Service<Carrier>,
    steps: Steps,
    events: Events,
) -> Result<String, Error> {
    let key = events.key("delivered")?;
    steps
        .run("hand over", &item, async { carrier.0.send(key).map_err(|_| failed("the carrier is closed")) })
        .await?;
    match events.wait("delivered", Some(Duration::from_hours(24))).await? {
        Resolution::Ok(proof) => Ok(format!("{item} was delivered to {}", proof["to"])),
        _ => Err(failed(format!("{item} was not delivered within a day"))),
    }
}

/// Sends tea and reports its delivery.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "call deliver {\"item\": \"tea\"}\n---\nsay {{result deliver}}".parse()?;
    let (to_carrier, mut at_carrier) = unbounded_channel();
    let outlast = Outlast::at(dir.join("await_event.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(Carrier(to_carrier))
        .tool(deliver)
        .start()
        .await?;
    let turn = outlast.new_session().send("send tea").await?;
    let key = at_carrier.recv().await.ok_or_else(|| failed("nothing was handed over"))?;
    outlast.runtime().resolve(&key, Resolution::Ok(json!({"to": "the neighbour"}))).await?;
    let answer = turn.answer().await;
    outlast.shut_down().await;
    answer
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
