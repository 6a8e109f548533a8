//! A typed answer: the model receives the JSON Schema of the type, and an answer that does not match is sent back with
//! its errors.
//!
//! Here the rehearsal model plays both cases: an answer that does not match, then one that does.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct Weather {
    /// In degrees Celsius.
    degrees: i32,
    rain: bool,
}

/// Asks for the weather.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "\
        turn
        say About twenty degrees, and dry.
        turn
        say {\"degrees\": 20, \"rain\": false}"
        .parse()?;
    let model = Rehearsal::scripted(script, Arc::new(SystemClock));
    let outlast = Outlast::at(dir.join("typed.db")).provider(model).start().await?;
    let Weather { degrees, rain } = outlast.new_session().ask("What is the weather in Lisbon?").await?;
    outlast.shut_down().await;
    Ok(format!("{degrees} degrees, rain: {rain}"))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
