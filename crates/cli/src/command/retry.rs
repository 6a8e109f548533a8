//! `outlast retry`: wakes a stuck turn, or retries a turn that ended, and follows it.
use crate::agent::AgentArgs;
use crate::conversation_printer::ConversationPrinter;
use crate::follow::{TurnOutput, WaitBehavior, follow};
use crate::global_args::GlobalArgs;
use crate::turn_backend::TurnBackend;
use clap::Args;
use outlast::views::RetryPlace;
use outlast::{Error, TurnId};

/// Retries a turn that is stuck, waits for a model provider, or has ended without an answer.
#[derive(Args)]
pub(crate) struct RetryArgs {
    /// Id of the turn
    turn: String,
    /// Retry an ended turn in a new session that is forked before it, for example if later turns follow it
    #[arg(long)]
    fork: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

impl RetryArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let turn: TurnId = self.turn.parse()?;
        // Do not create a database for a turn that cannot exist.
        drop(data.backend().await?);
        if data.server.is_some() {
            // A turn continues with the agent it started with.
            self.agent.server_agent_name()?;
        } else {
            self.agent.refuse_model("a retry asks the model of the turn")?;
        }
        let host = self.agent.host(data).await?;
        let place = if self.fork { RetryPlace::Fork } else { RetryPlace::SameHead };
        let ran = again(&host, turn, place, data).await;
        host.shut_down().await;
        ran
    }
}

async fn again(host: &TurnBackend, turn: TurnId, place: RetryPlace, data: &GlobalArgs) -> Result<(), Error> {
    let followed = host.retry(turn, place).await?;
    let mut view =
        if data.json { TurnOutput::Frames } else { TurnOutput::Prose(ConversationPrinter::default()) };
    follow(host, followed, &mut view, WaitBehavior::Leave).await
}
