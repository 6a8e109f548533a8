//! `outlast retry`: lets a stuck turn try again, and follows it.
use crate::agent::Agent;
use crate::data::Data;
use crate::follow::{AtWait, View, follow};
use crate::prose::Prose;
use clap::Args;
use outlast::{Error, Outlast, TurnId};

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
        drop(data.open().await?);
        let outlast = self.agent.start(data).await?;
        let ran = again(&outlast, turn).await;
        outlast.shut_down().await;
        ran
    }
}

async fn again(outlast: &Outlast, turn: TurnId) -> Result<(), Error> {
    outlast.runtime().retry(turn).await?;
    let turn = outlast.turn(turn).await?;
    let events = turn.events();
    follow(outlast, (turn, events), &mut View::Prose(Prose::default()), AtWait::Leave).await
}
