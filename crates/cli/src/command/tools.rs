//! `outlast tools`: lists the tools of an agent, and previews a call.
use crate::agent::AgentArgs;
use crate::global_args::GlobalArgs;
use crate::input;
use crate::terminal;
use clap::Args;
use outlast::vocab::message::ToolName;
use outlast::vocab::tool::ToolContract;
use outlast::{Error, Kind, Outlast};
use outlast_client::Client;

/// Lists the tools of an agent, shows one, or previews a call.
#[derive(Args)]
pub(crate) struct ToolsArgs {
    /// Show only this tool, with all details
    name: Option<ToolName>,
    /// Preview a call with these arguments, without making it
    #[arg(long, value_name = "JSON", requires = "name")]
    preview: Option<String>,
    /// Print the output as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

impl ToolsArgs {
    /// Runs the command. Stores nothing, because no turn is driven.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        if let Some(client) = data.client()? {
            return self.there(&client).await;
        }
        let arguments = self.preview.as_deref().map(|json| input::json("--preview", json)).transpose()?;
        let outlast =
            self.agent.build(Outlast::ephemeral(), &self.agent.sources(data).await?)?.start().await?;
        let tools = outlast.runtime().tools();
        match (&self.name, arguments) {
            (Some(name), Some(arguments)) => match tools.preview(name, &arguments).await? {
                Some(preview) => terminal::say(&preview),
                None => terminal::note(&format!("· `{name}` has no preview")),
            },
            (Some(name), None) => {
                let contract = tools.contract(name).ok_or_else(|| {
                    let names: Vec<&str> = tools.names().map(ToolName::as_str).collect();
                    let detail = format!("no tool is called `{name}`; there are: {}", names.join(", "));
                    Error::new(Kind::ToolUnknown, detail)
                })?;
                if self.json { terminal::json(contract) } else { show(contract) }
            }
            (None, _) => {
                for contract in tools.names().filter_map(|name| tools.contract(name)) {
                    if self.json {
                        terminal::json(contract);
                    } else {
                        line(contract);
                    }
                }
            }
        }
        outlast.shut_down().await;
        Ok(())
    }
}

impl ToolsArgs {
    /// Prints the tools in the package of a server's agent.
    async fn there(&self, client: &Client) -> Result<(), Error> {
        if self.preview.is_some() {
            let detail = "`--preview` works only with local tools; remove it, or remove `--server`";
            return Err(Error::new(Kind::CommandLocal, detail));
        }
        let agent = match self.agent.server_agent_name()? {
            Some(name) => name,
            None => first(client).await?,
        };
        let contracts = client.agent(&agent).await?.package.and_then(|pinned| pinned.contracts);
        let contracts = contracts.unwrap_or_default();
        let wanted: Vec<&ToolContract> = contracts
            .iter()
            .filter(|contract| self.name.as_ref().is_none_or(|name| contract.name == *name))
            .collect();
        if let (Some(name), true) = (&self.name, wanted.is_empty()) {
            let names: Vec<&str> = contracts.iter().map(|contract| contract.name.as_str()).collect();
            let detail = format!("no tool of `{agent}` is called `{name}`; there are: {}", names.join(", "));
            return Err(Error::new(Kind::ToolUnknown, detail));
        }
        for contract in wanted {
            match (self.json, &self.name) {
                (true, _) => terminal::json(contract),
                (false, Some(_)) => show(contract),
                (false, None) => line(contract),
            }
        }
        Ok(())
    }
}

/// Returns the server's default agent.
async fn first(client: &Client) -> Result<String, Error> {
    let agents = client.agents().await?;
    agents.into_iter().find(|agent| agent.first).map(|agent| agent.name).ok_or_else(|| {
        Error::new(Kind::AgentNotFound, "the server has no default agent; name one with `--agent`")
    })
}

/// Prints a tool as one line.
fn line(contract: &ToolContract) {
    let summary = contract.manifest().summary;
    terminal::say(&format!("{:<14} {:<14} {summary}", contract.name.as_str(), contract.class.name()));
}

fn show(contract: &ToolContract) {
    terminal::say(&format!("{} ({})\n{}", contract.name, contract.class.name(), contract.description));
    terminal::say(&format!("arguments: {}", contract.input));
    if let Some(output) = &contract.output {
        terminal::say(&format!("result: {output}"));
    }
    if contract.retry.attempts > 1 {
        terminal::say(&format!("attempts: {}", contract.retry.attempts));
    }
    if let Some(deadline) = contract.deadline {
        terminal::say(&format!("deadline: {} s", deadline.as_secs()));
    }
    if contract.approval {
        terminal::say("requires an approval before it runs");
    }
}
