//! A tool that calls a model itself, outside the conversation, for a typed answer. If the tool runs again after a
//! crash, it gets the recorded answer; the model is called once.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use std::path::Path;
use std::sync::Arc;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct LetterMood {
    angry: bool,
}

/// Says who should answer a letter.
#[tool(idempotent)]
async fn route(letter: String, models: Models) -> Result<String, Error> {
    let LetterMood { angry } = models.ask_as(format!("Is the writer of this letter angry? {letter}")).await?;
    Ok(if angry { "the boss".to_owned() } else { "anybody".to_owned() })
}

/// Routes a letter.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "\
        when is the writer
        say {\"angry\": true}
        any
        call route {\"letter\": \"Where is my tea?!\"}
        ---
        say {{result route}} should answer."
        .parse()?;
    let outlast = Outlast::at(dir.join("ask_a_model.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .tool(route)
        .start()
        .await?;
    let answer = outlast.new_session().send("who should answer?").await?.answer().await;
    outlast.shut_down().await;
    answer
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
