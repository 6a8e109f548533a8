//! `outlast cancel`: cancels a turn.
use crate::data::Data;
use crate::desk::Undo;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::store::Cancelled;
use outlast::{Error, TurnId};
use serde_json::json;

/// Cancels a turn. The request is durable, and never affects another turn.
#[derive(Args)]
pub(crate) struct Cancel {
    /// Id of the turn
    turn: String,
    /// Reason to record
    #[arg(long, default_value = "cancelled by an operator")]
    reason: String,
    /// Also undo its calls, newest first, if their tools support it
    #[arg(long)]
    undo: bool,
}

impl Cancel {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let turn: TurnId = self.turn.parse()?;
        let undo = if self.undo { Undo::All } else { Undo::Nothing };
        let stopped = data.desk().await?.stop(turn, &self.reason, undo).await?;
        if data.json {
            let (outcome, end) = match stopped {
                Cancelled::Requested => ("requested", None),
                Cancelled::NeverBegan => ("never_began", None),
                Cancelled::TooLate(end) => ("too_late", Some(end)),
            };
            terminal::json(&json!({ "turn": turn, "outcome": outcome, "end": end }));
            return Ok(());
        }
        match stopped {
            Cancelled::Requested => {
                terminal::say("asked to stop");
                data.note_work("it ends");
            }
            Cancelled::NeverBegan => terminal::say("cancelled before it began"),
            Cancelled::TooLate(end) => terminal::say(&format!("too late: {}", words::end(&end))),
        }
        Ok(())
    }
}
