//! `outlast unknown`: lists calls with an unknown outcome, and records what happened.
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::input;
use crate::terminal;
use clap::{Args, Subcommand};
use outlast::Error;
use outlast::vocab::CallId;
use outlast::vocab::message::ToolResult;
use outlast::vocab::record::OutcomeVerdict;
use outlast_client::api::waits::UnknownCallResource as Call;
use serde_json::json;

/// Lists calls with an unknown outcome, or settles one.
#[derive(Args)]
pub(crate) struct UnknownArgs {
    #[command(subcommand)]
    what: Option<UnknownCommand>,
}

#[derive(Subcommand)]
enum UnknownCommand {
    /// List the calls with an unknown outcome
    List,
    /// Record the outcome of a call; the session shows it afterwards
    Settle(SettleArgs),
}

#[derive(Args)]
struct SettleArgs {
    /// Id of the call
    call: String,
    #[command(flatten)]
    verdict: CallVerdictArgs,
}

/// The outcome of the call.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct CallVerdictArgs {
    /// The call happened, with this result
    #[arg(long, value_name = "JSON")]
    happened: Option<String>,
    /// The call did not happen
    #[arg(long)]
    did_not_happen: bool,
}

impl UnknownArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match self.what {
            None | Some(UnknownCommand::List) => list(data).await,
            Some(UnknownCommand::Settle(settle)) => settle.run(data).await,
        }
    }
}

async fn list(data: &GlobalArgs) -> Result<(), Error> {
    let calls = data.backend().await?.unknown().await?;
    if data.json {
        for Call { call, tool, arguments, session, turn, since } in &calls {
            terminal::json(&json!({
                "call": call, "tool": tool, "arguments": arguments, "session": session, "turn": turn,
                "since": since,
            }));
        }
        return Ok(());
    }
    if calls.is_empty() {
        terminal::note("· no call has an unknown outcome");
        return Ok(());
    }
    for call in &calls {
        terminal::say(&format!(
            "{} {} {}\n  since {} in {}",
            call.call,
            call.tool,
            call.arguments,
            formatting::when(call.since),
            call.session
        ));
    }
    terminal::note(
        "· find out whether it happened, then: outlast unknown settle CALL --happened JSON | --did-not-happen",
    );
    Ok(())
}

impl SettleArgs {
    async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let call: CallId = self.call.parse()?;
        let verdict = match self.verdict.happened {
            Some(json) => OutcomeVerdict::Happened(ToolResult::Ok(input::json("--happened", &json)?)),
            None => OutcomeVerdict::DidNotHappen,
        };
        let outcome = formatting::verdict(&verdict);
        let session = data.backend().await?.settle(call, verdict).await?;
        if data.json {
            terminal::json(&json!({ "call": call, "session": session }));
            return Ok(());
        }
        terminal::say(&format!("settled in {session}: {outcome}"));
        Ok(())
    }
}
