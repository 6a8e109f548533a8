//! Follows a session: durable events with their cursor, and live events.
//!
//! A durable event is a record, and its number is the cursor: reading from the same cursor later gives the same events.
//! Live events (streamed text, progress) are only for display and have no number.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::event::{Event, LiveEventKind};
use outlast::vocab::record::{Fact, Seq};
use std::path::Path;
use std::sync::Arc;

/// Returns the durable events of one turn, by number and name, up to its end.
async fn follow(mut events: outlast::SessionEventStream) -> Result<Vec<String>, Error> {
    let mut seen = Vec::new();
    loop {
        match events.next().await? {
            Event::Durable(record) => {
                seen.push(format!("{} {}", record.seq, record.fact.name()));
                if let Fact::Ended { .. } = record.fact {
                    return Ok(seen);
                }
            }
            Event::Live(live) => match live.what {
                LiveEventKind::Text { text, .. } => print!("{text}"),
                LiveEventKind::Retracted { .. } => println!("\n(that does not count; it is said again)"),
                _ => {}
            },
            // A slow reader misses live events, but never durable ones.
            Event::Missed { frames } => println!("\n({frames} live events were missed)"),
        }
    }
}

/// Follows a turn whose model is cut off once, then reads the same events again.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "say Let me\ncut once\nsay look.\ncall clock {}\n---\nsay It is late.".parse()?;
    let outlast = Outlast::at(dir.join("events.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .builtin_tools()
        .start()
        .await?;
    // Subscribe before the turn starts, so that no text is missed. `Turn::events` joins later.
    let (turn, events) = outlast.new_session().send("what time is it?").watched().await?;
    let live = follow(events).await?;
    println!();
    let again = follow(outlast.runtime().events(turn.session(), Seq(1))).await?;
    outlast.shut_down().await;
    assert_eq!(live, again, "following and reading later give the same events");
    Ok(live.join("\n"))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
