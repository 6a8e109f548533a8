//! `outlast cancel`: cancels a turn.
use crate::backend::CancelUndo;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::store::CancelOutcome;
use outlast::{Error, TurnId};
use serde_json::json;

/// Cancels a turn. The request is durable, and never affects another turn.
#[derive(Args)]
pub(crate) struct CancelArgs {
    /// Id of the turn
    turn: String,
    /// Reason to record
    #[arg(long, default_value = "cancelled by an operator")]
    reason: String,
    /// Also undo its calls, newest first, if their tools support it
    #[arg(long)]
    undo: bool,
}

impl CancelArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let turn: TurnId = self.turn.parse()?;
        let undo = if self.undo { CancelUndo::All } else { CancelUndo::Nothing };
        let stopped = data.backend().await?.stop(turn, &self.reason, undo).await?;
        if data.json {
            let (outcome, end) = match stopped {
                CancelOutcome::Requested => ("requested", None),
                CancelOutcome::EndedBeforeStart => ("never_began", None),
                CancelOutcome::AlreadyEnded(end) => ("too_late", Some(end)),
            };
            terminal::json(&json!({ "turn": turn, "outcome": outcome, "end": end }));
            return Ok(());
        }
        match stopped {
            CancelOutcome::Requested => {
                terminal::say("asked to stop");
                data.note_work("it ends");
            }
            CancelOutcome::EndedBeforeStart => terminal::say("cancelled before it began"),
            CancelOutcome::AlreadyEnded(end) => {
                terminal::say(&format!("too late: {}", formatting::end(&end)));
            }
        }
        Ok(())
    }
}
