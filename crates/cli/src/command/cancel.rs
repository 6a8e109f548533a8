//! `outlast cancel`: asks a turn to stop.
use crate::data::Data;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::clock::Clock;
use outlast::runtime::system::SystemClock;
use outlast::store::Cancelled;
use outlast::{Error, TurnId};

/// Asks a turn to stop. The wish is durable, and never hits another turn.
#[derive(Args)]
pub(crate) struct Cancel {
    /// The turn
    turn: String,
    /// Why, for whoever reads it later
    #[arg(long, default_value = "cancelled by an operator")]
    reason: String,
    /// Also take back what it did, the newest first, where its tools can
    #[arg(long)]
    undo: bool,
}

impl Cancel {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let turn: TurnId = self.turn.parse()?;
        let store = data.open().await?;
        let now = SystemClock.now();
        let asked = if self.undo {
            store.abort(turn, self.reason, now)
        } else {
            store.cancel(turn, self.reason, now)
        };
        match asked.await? {
            Cancelled::Requested => {
                terminal::say("asked to stop");
                terminal::note("· it ends where a worker runs; `outlast work` is one");
            }
            Cancelled::NeverBegan => terminal::say("cancelled before it began"),
            Cancelled::TooLate(end) => terminal::say(&format!("too late: {}", words::end(&end))),
        }
        Ok(())
    }
}
