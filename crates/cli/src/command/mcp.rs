//! `outlast mcp`: manages the MCP servers of an agent and their accepted definitions. `outlast mcp serve` is
//! an MCP server.
mod serve;

use crate::agent::definition::{AgentDefinition, pins_of};
use crate::agent::here;
use crate::agent::sources::AgentSources;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::private_file;
use crate::terminal::{self, one_line};
use clap::{Args, Subcommand};
use outlast::{Error, Kind};
use outlast_mcp::{
    McpConnection, McpServerSpec, PinChange, PinnedDefinitions, PromptLine, ResourceBody, ServerListing,
    ToolDefinition,
};
use std::path::{Path, PathBuf};

/// The maximum length of a description in a line, in characters.
const LETTERS: usize = 100;

/// The default agent file.
const USUAL: &str = "agent.toml";

/// Adds, lists, tests and accepts MCP servers, reads their resources and prompts, and serves agents to MCP clients.
#[derive(Args)]
pub(crate) struct McpArgs {
    /// Agent, as a TOML file; default: `agent.toml`. `mcp serve` also accepts the name of an agent in the configuration
    /// or the database
    #[arg(long, value_name = "FILE", global = true)]
    agent: Option<String>,
    #[command(subcommand)]
    what: McpCommand,
}

#[derive(Subcommand)]
enum McpCommand {
    /// Add a server to the agent's file, and accept its tools
    Add(McpAddArgs),
    /// List the servers, and how many tools of each were accepted
    List,
    /// Connect to a server, and show what it offers and what changed since it was accepted
    Test {
        /// Name of the server
        name: String,
    },
    /// Accept the current tool definitions of a server
    Accept {
        /// Name of the server
        name: String,
    },
    /// Print a resource of a server
    Read {
        /// Name of the server
        name: String,
        /// Address of the resource, as `outlast mcp test` lists it
        uri: String,
        /// File to save the resource to, unchanged; an existing file is not overwritten
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Print the messages of a server's prompt
    Prompt {
        /// Name of the server
        name: String,
        /// Name of the prompt, as `outlast mcp test` lists it
        prompt: String,
        /// Arguments of the prompt
        #[arg(value_name = "KEY=VALUE", value_parser = argument)]
        arguments: Vec<(String, String)>,
    },
    /// Serve agents over standard input and output, to the MCP client that started this command
    Serve(serve::McpServeArgs),
}

fn argument(word: &str) -> Result<(String, String), String> {
    let (key, value) = word.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Args)]
struct McpAddArgs {
    /// Name of the server; the model sees its tools as `NAME.tool`
    name: String,
    /// Address of a server over HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command", required_unless_present = "command")]
    url: Option<String>,
    /// Allow an address on this machine or in a private network
    #[arg(long, requires = "url")]
    private: bool,
    /// Program that runs the server, and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl McpArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let path = &PathBuf::from(self.agent.as_deref().unwrap_or(USUAL));
        if !matches!(self.what, McpCommand::Serve(_)) {
            data.only_here("this command works on a local agent file")?;
        }
        match self.what {
            McpCommand::Serve(serve) => Box::pin(serve.run(data, self.agent)).await,
            McpCommand::Add(add) => {
                add.write(path)?;
                accept(path, &add.name).await
            }
            McpCommand::List => list(path),
            McpCommand::Test { name } => test(path, &name).await,
            McpCommand::Accept { name } => accept(path, &name).await,
            McpCommand::Read { name, uri, to } => read(path, &name, &uri, to.as_deref()).await,
            McpCommand::Prompt { name, prompt, arguments } => {
                let (_, link) = connect(path, &name).await?;
                say(&link.prompt(&prompt, arguments.into_iter().collect()).await?);
                Ok(())
            }
        }
    }
}

impl McpAddArgs {
    /// Appends the server to the agent's file. Restores the file if it is invalid afterwards.
    fn write(&self, path: &Path) -> Result<(), Error> {
        let before = agent(path)?;
        if before.servers(&here()?)?.iter().any(|server| server.name == self.name) {
            let detail = format!("{} has a server `{}` already", path.display(), self.name);
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let unwritten = |cause| {
            Error::new(Kind::IoFailed, format!("{} cannot be changed: {cause}", path.display()))
                .because(cause)
        };
        let old = std::fs::read_to_string(path).map_err(unwritten)?;
        let quoted = |text: &String| serde_json::Value::from(text.as_str()).to_string();
        let how = match &self.url {
            Some(url) if self.private => format!("url = {}\nprivate = true", quoted(url)),
            Some(url) => format!("url = {}", quoted(url)),
            None => format!("command = [{}]", self.command.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        };
        let new = format!("{}\n\n[mcp.{}]\n{how}\n", old.trim_end(), quoted(&self.name));
        std::fs::write(path, new).map_err(unwritten)?;
        agent(path).map(drop).inspect_err(|_| {
            // The old content was valid.
            let _restored = std::fs::write(path, &old);
        })
    }
}

/// Reads an agent file, without the harnesses and capabilities of a configuration.
fn agent(path: &Path) -> Result<AgentDefinition, Error> {
    Ok(AgentSources::of(None)?.in_file(path, None)?.agent)
}

fn list(path: &Path) -> Result<(), Error> {
    let agent = agent(path)?;
    let row = |server: &McpServerSpec| {
        let accepted = formatting::count(agent.pins().of(&server.name).count(), "tool", "tools");
        vec![server.name.clone(), one_line(&server.transport.to_string(), LETTERS), accepted]
    };
    let rows: Vec<Vec<String>> = agent.servers(&here()?)?.iter().map(row).collect();
    if rows.is_empty() {
        terminal::note("· there are no MCP servers; `outlast mcp add NAME -- COMMAND` adds one");
        return Ok(());
    }
    terminal::table(&["SERVER", "WAY", "ACCEPTED"], &rows);
    Ok(())
}

/// Returns the accepted definitions of all servers, and a connection to this one.
async fn connect(path: &Path, name: &str) -> Result<(PinnedDefinitions, McpConnection), Error> {
    let agent = agent(path)?;
    let servers = agent.servers(&here()?)?;
    let server: &McpServerSpec = servers.iter().find(|server| server.name == name).ok_or_else(|| {
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let detail = format!("{} has no MCP server `{name}`; it has: {}", path.display(), names.join(", "));
        Error::new(Kind::ConfigInvalid, detail)
    })?;
    let link = McpConnection::open(server, agent.pins()).await?;
    Ok((agent.pins().clone(), link))
}

/// Returns the accepted definitions of all servers, and what this one offers now.
async fn listing(path: &Path, name: &str) -> Result<(PinnedDefinitions, ServerListing), Error> {
    let (pins, link) = connect(path, name).await?;
    Ok((pins, link.list().await?))
}

/// Prints or saves a resource. Only text is printed.
async fn read(path: &Path, name: &str, uri: &str, to: Option<&Path>) -> Result<(), Error> {
    let (_, link) = connect(path, name).await?;
    let contents = link.read(uri).await?;
    let Some(to) = to else {
        contents.iter().for_each(print);
        return Ok(());
    };
    let whole: Vec<u8> = contents.into_iter().flat_map(ResourceBody::into_bytes).collect();
    private_file::write(to, &whole).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", to.display())).because(cause)
    })?;
    terminal::note(&format!("· {} in {}", formatting::count(whole.len(), "byte", "bytes"), to.display()));
    Ok(())
}

fn print(contents: &ResourceBody) {
    match contents {
        ResourceBody::Text(text) => terminal::say(text),
        ResourceBody::Bytes { media_type, bytes } => {
            let size = formatting::count(bytes.len(), "byte", "bytes");
            let media_type = one_line(media_type, LETTERS);
            terminal::note(&format!("· {media_type}, {size}; `--to FILE` saves it"));
        }
    }
}

/// Prints the messages of a prompt. Roles are printed only if a message is not from the user, so that a
/// user's prompt can be passed to an agent unchanged.
fn say(lines: &[PromptLine]) {
    let users = lines.iter().all(|line| line.role == "user");
    for PromptLine { role, text } in lines {
        if users {
            terminal::say(text);
        } else {
            terminal::say(&format!("{role}: {text}"));
        }
    }
}

async fn test(path: &Path, name: &str) -> Result<(), Error> {
    let (pins, listing) = listing(path, name).await?;
    let changes = pins.changes(name, &listing.tools);
    show(&listing, &changes);
    if changes.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "{} not as accepted; `outlast mcp accept {name}` accepts the current definitions",
        formatting::count(changes.len(), "tool is", "tools are")
    );
    Err(Error::new(Kind::McpChanged, detail))
}

async fn accept(path: &Path, name: &str) -> Result<(), Error> {
    let (mut pins, listing) = listing(path, name).await?;
    show(&listing, &pins.changes(name, &listing.tools));
    let count = listing.tools.len();
    pins.accept(name, listing.tools)?;
    let place = pins_of(path);
    std::fs::write(&place, pins.to_json()).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", place.display())).because(cause)
    })?;
    terminal::note(&format!(
        "· accepted {} in {}",
        formatting::count(count, "tool", "tools"),
        place.display()
    ));
    Ok(())
}

/// Prints what a server offers, and how it differs from the accepted definitions.
fn show(listing: &ServerListing, changes: &[PinChange]) {
    let ServerListing { title, tools, resources, prompts } = listing;
    terminal::say(&format!(
        "{}: {}, {}, {}",
        one_line(title, LETTERS),
        formatting::count(tools.len(), "tool", "tools"),
        formatting::count(resources.len(), "resource", "resources"),
        formatting::count(prompts.len(), "prompt", "prompts"),
    ));
    for tool in tools {
        let how = changes.iter().find_map(|change| match change {
            PinChange::New(new) if new.name == tool.name => Some("new      "),
            PinChange::Changed { now, .. } if now.name == tool.name => Some("changed  "),
            _ => None,
        });
        terminal::say(&format!("{}{}", how.unwrap_or("accepted "), described(tool)));
    }
    for change in changes {
        match change {
            PinChange::Gone(gone) => terminal::say(&format!("gone     {}", described(gone))),
            PinChange::Changed { accepted, now } => {
                terminal::say(&format!("- {}", serde_json::json!(accepted)));
                terminal::say(&format!("+ {}", serde_json::json!(now)));
            }
            PinChange::New(_) => {}
        }
    }
    for resource in resources {
        terminal::say(&format!("resource {}", one_line(resource, LETTERS)));
    }
    for prompt in prompts {
        terminal::say(&format!("prompt   {}", one_line(prompt, LETTERS)));
    }
}

fn described(tool: &ToolDefinition) -> String {
    let description = tool.description.as_deref().unwrap_or_default();
    format!("{} {}", one_line(&tool.name, LETTERS), one_line(description, LETTERS)).trim_end().to_owned()
}
