//! `outlast resolve`: completes a wait of a turn from outside.
use crate::data::Data;
use crate::desk::Desk;
use crate::input;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::store::Resolved;
use outlast::vocab::Failure;
use outlast::vocab::wait::{CompletionKey, Resolution};
use outlast::{Error, Kind};
use serde_json::json;

/// Completes a call or an event that a turn waits for.
#[derive(Args)]
pub(crate) struct Resolve {
    /// Completion key, as `outlast why` shows it
    key: String,
    #[command(flatten)]
    how: How,
}

/// The outcome.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct How {
    /// Complete with this value
    #[arg(long, value_name = "JSON")]
    ok: Option<String>,
    /// Complete with this text, as the answer to a question
    #[arg(long, value_name = "ANSWER")]
    text: Option<String>,
    /// Complete with an error
    #[arg(long, value_name = "MESSAGE")]
    error: Option<String>,
    /// Complete as timed out
    #[arg(long)]
    timeout: bool,
    /// Complete as cancelled
    #[arg(long)]
    cancelled: bool,
}

impl How {
    fn resolution(self) -> Result<Resolution, Error> {
        Ok(match self {
            Self { ok: Some(json), .. } => Resolution::Ok(input::json("--ok", &json)?),
            Self { text: Some(text), .. } => Resolution::Ok(text.into()),
            Self { error: Some(message), .. } => Resolution::Err(Failure::new(Kind::ToolFailed, message)),
            Self { timeout: true, .. } => Resolution::Timeout,
            Self { .. } => Resolution::Cancelled,
        })
    }
}

impl Resolve {
    /// Runs the command. A worker of the database then continues the turn.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let key: CompletionKey = self.key.parse()?;
        let resolution = self.how.resolution()?;
        let desk = data.desk().await?;
        if let Desk::File(_) = desk {
            key.check(&data.operator()?.secret().await?)?;
        }
        let Resolved { first, yours } = desk.resolve(&key, resolution).await?;
        if data.json {
            terminal::json(&json!({ "turn": key.turn, "yours": yours, "first": first }));
            return Ok(());
        }
        if yours {
            terminal::say(&format!("resolved: {}", words::resolution(&first)));
            data.note_work(&format!("{} goes on", key.turn));
        } else {
            terminal::say(&format!("resolved before: {}; that counts", words::resolution(&first)));
        }
        Ok(())
    }
}
