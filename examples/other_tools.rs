//! A tool that calls other tools of the agent. Each call is a durable step: a completed call is not repeated when the
//! tool runs again.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Adds up amounts with the calculator.
#[tool(idempotent, durable)]
async fn total(amounts: Vec<u32>, tools: Tools) -> Result<String, Error> {
    let terms: Vec<String> = amounts.iter().map(ToString::to_string).collect();
    let sum = tools.call("calculator", json!({ "expression": terms.join(" + ") })).await?;
    Ok(format!("{} = {}", terms.join(" + "), sum.as_str().unwrap_or("?")))
}

/// Adds three amounts.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "call total {\"amounts\": [3, 4, 5]}\n---\nsay {{result total}}".parse()?;
    let outlast = Outlast::at(dir.join("other_tools.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .builtin_tools()
        .tool(total)
        .start()
        .await?;
    let answer = outlast.new_session().send("how much is it?").await?.answer().await;
    outlast.shut_down().await;
    answer
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
