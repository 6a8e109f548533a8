//! `outlast retry`: wakes a stuck turn, or retries a turn that ended, and follows it.
use crate::agent::Agent;
use crate::data::Data;
use crate::follow::{AtWait, View, follow};
use crate::host::Host;
use crate::prose::Prose;
use clap::Args;
use outlast::runtime::worker::RetryPlace;
use outlast::{Error, TurnId};

/// Retries a turn that is stuck, waits for a model provider, or has ended without an answer.
#[derive(Args)]
pub(crate) struct Retry {
    /// Id of the turn
    turn: String,
    /// Retry an ended turn in a new session that is forked before it, for example if later turns follow it
    #[arg(long)]
    fork: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Retry {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let turn: TurnId = self.turn.parse()?;
        // Do not create a database for a turn that cannot exist.
        drop(data.desk().await?);
        if data.server.is_some() {
            // A turn continues with the agent it started with.
            self.agent.named_there()?;
        }
        let host = self.agent.host(data).await?;
        let place = if self.fork { RetryPlace::Fork } else { RetryPlace::SameHead };
        let ran = again(&host, turn, place, data).await;
        host.leave().await;
        ran
    }
}

async fn again(host: &Host, turn: TurnId, place: RetryPlace, data: &Data) -> Result<(), Error> {
    let followed = host.retry(turn, place).await?;
    let mut view = if data.json { View::Frames } else { View::Prose(Prose::default()) };
    follow(host, followed, &mut view, AtWait::Leave).await
}
