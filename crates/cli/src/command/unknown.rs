//! `outlast unknown`: lists calls with an unknown outcome, and records what happened.
use crate::data::Data;
use crate::input;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::Error;
use outlast::vocab::CallId;
use outlast::vocab::message::ToolResult;
use outlast::vocab::record::Verdict;
use outlast_client::Unknown as Call;
use serde_json::json;

/// Lists calls with an unknown outcome, or settles one.
#[derive(Args)]
pub(crate) struct Unknown {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// List the calls with an unknown outcome
    List,
    /// Record the outcome of a call; the session shows it afterwards
    Settle(Settle),
}

#[derive(Args)]
struct Settle {
    /// Id of the call
    call: String,
    #[command(flatten)]
    verdict: How,
}

/// The outcome of the call.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct How {
    /// The call happened, with this result
    #[arg(long, value_name = "JSON")]
    happened: Option<String>,
    /// The call did not happen
    #[arg(long)]
    did_not_happen: bool,
}

impl Unknown {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None | Some(What::List) => list(data).await,
            Some(What::Settle(settle)) => settle.run(data).await,
        }
    }
}

async fn list(data: &Data) -> Result<(), Error> {
    let calls = data.desk().await?.unknown().await?;
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
            words::when(call.since),
            call.session
        ));
    }
    terminal::note(
        "· find out whether it happened, then: outlast unknown settle CALL --happened JSON | --did-not-happen",
    );
    Ok(())
}

impl Settle {
    async fn run(self, data: &Data) -> Result<(), Error> {
        let call: CallId = self.call.parse()?;
        let verdict = match self.verdict.happened {
            Some(json) => Verdict::Happened(ToolResult::Ok(input::json("--happened", &json)?)),
            None => Verdict::DidNotHappen,
        };
        let told = words::verdict(&verdict);
        let session = data.desk().await?.settle(call, verdict).await?;
        if data.json {
            terminal::json(&json!({ "call": call, "session": session }));
            return Ok(());
        }
        terminal::say(&format!("settled in {session}: {told}"));
        Ok(())
    }
}
