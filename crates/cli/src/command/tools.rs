//! `outlast tools`: what an agent can do, and what a call would do.
use crate::agent::Agent;
use crate::data::Data;
use crate::input;
use crate::terminal;
use clap::Args;
use outlast::vocab::message::ToolName;
use outlast::vocab::tool::Contract;
use outlast::{Error, Kind, Outlast};

/// Lists the tools of an agent, shows one, or says what a call would do.
#[derive(Args)]
pub(crate) struct Tools {
    /// Only this one, with all that is known of it
    name: Option<ToolName>,
    /// Say what a call with these arguments would do, without doing it
    #[arg(long, value_name = "JSON", requires = "name")]
    preview: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

impl Tools {
    /// Does it. Nothing is kept: no turn is driven.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        data.only_on_a_file()?;
        let arguments = self.preview.as_deref().map(|json| input::json("--preview", json)).transpose()?;
        let outlast = self.agent.build(Outlast::ephemeral(), &self.agent.staff(data).await?)?.start().await?;
        let tools = &outlast.runtime().world().tools;
        match (&self.name, arguments) {
            (Some(name), Some(arguments)) => match tools.preview(name, &arguments).await? {
                Some(preview) => terminal::say(&preview),
                None => terminal::note(&format!("· `{name}` cannot say what it would do")),
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
                        let summary = contract.manifest().summary;
                        terminal::say(&format!(
                            "{:<14} {:<14} {summary}",
                            contract.name.as_str(),
                            contract.class.name()
                        ));
                    }
                }
            }
        }
        outlast.shut_down().await;
        Ok(())
    }
}

fn show(contract: &Contract) {
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
        terminal::say("should be asked for before it runs");
    }
}
