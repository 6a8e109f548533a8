//! A tool that stores values with the session. Its writes commit with its result, exactly once, even after a crash.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Puts something into the basket.
#[tool(transactional, key = "basket")]
async fn put(item: String, #[default(1)] count: u64, values: Values) -> Result<u64, Error> {
    let before = values.get(&item).await?.and_then(|value| value.as_u64()).unwrap_or(0);
    values.set(&item, json!(before + count))?;
    Ok(before + count)
}

/// Fills a basket in two turns.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script =
        "any\ncall put {\"item\": \"tea\"}\ncall put {\"item\": \"tea\", \"count\": 2}\n---\nsay {{result 1}} teas".parse()?;
    let outlast = Outlast::at(dir.join("values.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .tool(put)
        .start()
        .await?;
    let basket = outlast.new_session();
    let first = basket.send("tea, and two more").await?.answer().await;
    let second = basket.send("the same again").await?.answer().await;
    outlast.shut_down().await;
    Ok(format!("{}, then {}", first?, second?))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
