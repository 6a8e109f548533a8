//! `outlast retry`: lets a stuck turn try again, and follows it.
use crate::agent::Agent;
use crate::data::Data;
use crate::follow::{AtWait, View, follow};
use crate::host::Host;
use crate::prose::Prose;
use clap::Args;
use outlast::{Error, TurnId};

/// Lets a stuck turn try again, after what it was stuck on has been mended.
#[derive(Args)]
pub(crate) struct Retry {
    /// The turn
    turn: String,
    #[command(flatten)]
    agent: Agent,
}

impl Retry {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let turn: TurnId = self.turn.parse()?;
        // Nothing is made for a turn that cannot be there.
        drop(data.desk().await?);
        if data.server.is_some() {
            // A turn goes on under what it began with.
            self.agent.named_there()?;
        }
        let host = self.agent.host(data).await?;
        let ran = again(&host, turn, data).await;
        host.leave().await;
        ran
    }
}

async fn again(host: &Host, turn: TurnId, data: &Data) -> Result<(), Error> {
    let followed = host.retry(turn).await?;
    let mut view = if data.json { View::Frames } else { View::Prose(Prose::default()) };
    follow(host, followed, &mut view, AtWait::Leave).await
}
