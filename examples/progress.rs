//! A tool that reports its progress to subscribers. Progress is not stored and never delays the tool.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::event::{Event, LiveEventKind};
use outlast::vocab::record::Fact;
use std::path::Path;
use std::sync::Arc;

/// Counts the words of each page.
#[tool(pure)]
async fn count_words(pages: Vec<String>, progress: Progress) -> Result<Vec<usize>, Error> {
    let mut counts = Vec::new();
    for (index, page) in pages.iter().enumerate() {
        progress.note(format!("page {} of {}", index + 1, pages.len()));
        counts.push(page.split_whitespace().count());
    }
    Ok(counts)
}

/// Watches the counting.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script =
        "call count_words {\"pages\": [\"it was late\", \"the end\"]}\n---\nsay {{result count_words}}"
            .parse()?;
    let outlast = Outlast::at(dir.join("progress.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .tool(count_words)
        .start()
        .await?;
    let (turn, mut events) = outlast.new_session().send("count").watched().await?;
    let mut seen = Vec::new();
    loop {
        match events.next().await? {
            Event::Live(live) => {
                if let LiveEventKind::Progress { note, .. } = live.what {
                    seen.push(note);
                }
            }
            Event::Durable(record) if matches!(record.fact, Fact::Ended { .. }) => break,
            Event::Durable(_) | Event::Missed { .. } => {}
        }
    }
    let answer = turn.answer().await;
    outlast.shut_down().await;
    Ok(format!("{}; {}", seen.join(", "), answer?))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
