//! `outlast resolve`: completes a wait of a turn from outside.
use crate::backend::CommandBackend;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::input;
use crate::terminal;
use clap::Args;
use outlast::store::ResolveResult;
use outlast::vocab::Failure;
use outlast::vocab::wait::{CompletionKey, Resolution};
use outlast::{Error, Kind};
use serde_json::json;

/// Completes a call or an event that a turn waits for.
#[derive(Args)]
pub(crate) struct ResolveArgs {
    /// Completion key, as `outlast why` shows it
    key: String,
    #[command(flatten)]
    how: ResolutionArgs,
}

/// The outcome.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct ResolutionArgs {
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

impl ResolutionArgs {
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

impl ResolveArgs {
    /// Runs the command. A worker of the database then continues the turn.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let key: CompletionKey = self.key.parse()?;
        let resolution = self.how.resolution()?;
        let backend = data.backend().await?;
        if let CommandBackend::File(_) = backend {
            key.check(&data.operator()?.secret().await?)?;
        }
        let ResolveResult { first, is_yours: yours } = backend.resolve(&key, resolution).await?;
        if data.json {
            terminal::json(&json!({ "turn": key.turn, "yours": yours, "first": first }));
            return Ok(());
        }
        if yours {
            terminal::say(&format!("resolved: {}", formatting::resolution(&first)));
            data.note_work(&format!("{} continues", key.turn));
        } else {
            terminal::say(&format!(
                "already resolved: {}; the first result is kept",
                formatting::resolution(&first)
            ));
        }
        Ok(())
    }
}
