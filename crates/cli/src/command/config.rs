//! `outlast config`: validates a configuration and prints the schema of its keys.
use crate::agent::sources::{AgentSources, LayeredAgent};
use crate::agent::validated_package;
use crate::cedar;
use crate::config::document::Document;
use crate::config::{keys, schema};
use crate::config_file::ConfigFile;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::{Args, Subcommand};
use outlast::objects::ObjectContents;
use outlast::providers::{ProviderTable, Providers};
use outlast::vocab::message::ToolName;
use outlast::vocab::overlay::{Layer, Overlay};
use outlast::vocab::package::{Package, PinnedPackage};
use outlast::{Error, Kind, Outlast};
use outlast_kernel::overlay::{LayerRegistry, OriginLayer, fold};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks a configuration or prints its schema.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check a configuration or an agent file, and report each error with its file and line
    ///
    /// If a table cannot be read, only its first error is reported. Errors in values appear once every table can be
    /// read, so fix the errors and check again. A warning is not an error.
    Check {
        /// Configuration or agent file; default: `./outlast.toml`
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of `outlast.toml`
    Schema,
}

impl ConfigArgs {
    /// Runs the command. A mistake in the configuration sets the exit code.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<ExitCode, Error> {
        match self.what {
            ConfigCommand::Schema if terminal::is_json() => {
                terminal::json(&schema::configuration());
                Ok(ExitCode::SUCCESS)
            }
            ConfigCommand::Schema => {
                let schema = serde_json::to_string_pretty(&schema::configuration());
                terminal::say(&schema.map_err(|cause| Error::new(Kind::Internal, cause.to_string()))?);
                Ok(ExitCode::SUCCESS)
            }
            ConfigCommand::Check { file } => check(file, data).await,
        }
    }
}

async fn check(file: Option<PathBuf>, data: &GlobalArgs) -> Result<ExitCode, Error> {
    let configuration = ConfigFile::of(file);
    let Some(path) = configuration.file() else {
        let detail = "there is no `outlast.toml` here; name another file: `outlast config check FILE`";
        return Err(Error::new(Kind::IoFailed, detail));
    };
    let document = match Document::read(path, "configuration") {
        Ok(document) => document,
        Err(error) if error.kind() == Kind::ConfigInvalid => return Ok(print_mistakes(&[error])),
        Err(error) => return Err(error),
    };
    if is_agent(&document)? {
        return check_agent(&document, data).await;
    }
    let ConfigFindings { mistakes, warnings } = found(&configuration, &document, data).await?;
    warned(&warnings);
    if mistakes.is_empty() {
        let count = |table: &str| Ok::<_, Error>(document.names(&[table])?.len());
        terminal::say(&format!(
            "{}: {}, {}, {}, {}, {}",
            path.display(),
            formatting::count(count("providers")?, "provider", "providers"),
            formatting::count(count("agents")?, "agent", "agents"),
            formatting::count(count("harnesses")?, "harness", "harnesses"),
            formatting::count(count("capabilities")?, "capability", "capabilities"),
            no_mistakes(&warnings),
        ));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(print_mistakes(&mistakes))
}

/// Returns whether a file is an agent file: it has keys of an agent, and none that only a configuration has.
fn is_agent(document: &Document) -> Result<bool, Error> {
    let keys = |schema: Value| schema["properties"].as_object().cloned().unwrap_or_default();
    let (of_agent, of_all) = (keys(schema::agent()), keys(schema::configuration()));
    let written = document.names(&[])?;
    let has = |these: &Map<String, Value>, others: &Map<String, Value>| {
        written.iter().any(|key| these.contains_key(key) && !others.contains_key(key))
    };
    Ok(has(&of_agent, &of_all) && !has(&of_all, &of_agent))
}

/// Checks an agent file. Its layers may come from `./outlast.toml`.
async fn check_agent(document: &Document, data: &GlobalArgs) -> Result<ExitCode, Error> {
    let mistakes = keys::unknown(document, &schema::agent())?;
    if !mistakes.is_empty() {
        return Ok(print_mistakes(&mistakes));
    }
    let usual = ConfigFile::of(None);
    let path = document.path();
    let sources = AgentSources::read(&usual)?.with_stored(data).await?;
    let made = sources.in_file(path, None).map_err(|error| placed(document, &[], &error));
    let made = made.and_then(|LayeredAgent { agent, layers }| {
        let pinned =
            validated_package(&agent, &usual).map_err(|error| document.invalid(&[], &said(&error)))?;
        Ok((pinned, layers))
    });
    let (PinnedPackage { package, .. }, layers) = match made {
        Ok(made) => made,
        Err(mistake) => return Ok(print_mistakes(&[mistake])),
    };
    let warnings = rules_without_tool(document, &[], &layers, &package);
    warned(&warnings);
    terminal::say(&format!(
        "{}: agent {}, {}, {}, {}",
        path.display(),
        package.agent,
        formatting::count(package.tools.len(), "tool", "tools"),
        formatting::count(package.policy.rules.len(), "rule", "rules"),
        no_mistakes(&warnings),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Adds the line to an error that has none.
fn placed(document: &Document, at: &[&str], error: &Error) -> Error {
    let has_place = error.detail().starts_with(&format!("{}:", document.path().display()));
    if has_place {
        Error::new(Kind::ConfigInvalid, error.detail())
    } else {
        document.invalid(at, &said(error))
    }
}

/// Returns the error's detail, with its code unless the code is only `config.invalid`.
fn said(error: &Error) -> String {
    if error.kind() == Kind::ConfigInvalid { error.detail().to_owned() } else { error.to_string() }
}

fn print_mistakes(mistakes: &[Error]) -> ExitCode {
    for mistake in mistakes {
        terminal::say(mistake.detail());
    }
    ExitCode::FAILURE
}

fn warned(warnings: &[Error]) {
    for warning in warnings {
        terminal::say(warning.detail());
    }
}

fn no_mistakes(warnings: &[Error]) -> String {
    match warnings.len() {
        0 => "no mistakes".to_owned(),
        found => format!("no mistakes, {}", formatting::count(found, "warning", "warnings")),
    }
}

/// The mistakes and warnings of a configuration.
#[derive(Default)]
struct ConfigFindings {
    mistakes: Vec<Error>,
    warnings: Vec<Error>,
}

/// Checks a configuration: first whether it can be read, then whether its agents can be built.
///
/// Agents may use harnesses and capabilities from the database.
async fn found(
    configuration: &ConfigFile,
    document: &Document,
    data: &GlobalArgs,
) -> Result<ConfigFindings, Error> {
    let mut mistakes = keys::unknown(document, &schema::configuration())?;
    for name in document.names(&["providers"])? {
        mistakes.extend(document.value::<ProviderTable>(&["providers", &name]).err());
    }
    mistakes.extend(AgentSources::table_errors(document)?);
    if !mistakes.is_empty() {
        // An unknown key is reported once, not again by the table that contains it.
        mistakes.retain(|mistake| !mistake.detail().contains(": unknown field `"));
        return Ok(ConfigFindings { mistakes, ..ConfigFindings::default() });
    }
    let unserved = Providers::from_file(document.path()).err();
    let are_served = unserved.is_none();
    mistakes.extend(unserved);
    match configuration.attachments() {
        Ok(store) => {
            let wrong = store.and_then(|store| ObjectContents::check(&store).err());
            mistakes.extend(wrong.map(|error| document.invalid(&["attachments", "store"], &said(&error))));
        }
        Err(error) => mistakes.push(error),
    }
    mistakes.extend(configuration.telemetry().err());
    match configuration.sinks() {
        Ok(sinks) => mistakes.extend(sinks.iter().filter_map(|sink| sink.outlet().err())),
        Err(error) => mistakes.push(error),
    }
    match configuration.server().map(|server| server.public_url()) {
        Ok(url) => {
            mistakes.extend(url.err().map(|error| document.invalid(&["server", "url"], error.detail())));
        }
        Err(error) => mistakes.push(error),
    }
    let engaged = cedar::add_policies(Outlast::ephemeral(), Some(document)).map(drop);
    mistakes.extend(engaged.err().map(|error| placed(document, &["cedar"], &error)));
    let mut warnings = Vec::new();
    let sources = AgentSources::of(Some(document.clone()))?.with_stored(data).await?;
    let below = layer_errors(document, &sources.registry)?;
    // An error in a harness or capability is reported there, not again for each agent that uses it.
    let is_below = |mistake: &Error| {
        below.iter().any(|other| without_place(document, other) == without_place(document, mistake))
    };
    for name in document.names(&["agents"])? {
        let at = ["agents", name.as_str()];
        match sources.named(&name, None).map_err(|error| placed(document, &at, &error)) {
            Err(mistake) if is_below(&mistake) => {}
            Err(mistake) => mistakes.push(mistake),
            // Without any provider, every model would be unknown.
            Ok(_) if !are_served => {}
            Ok(LayeredAgent { agent, layers }) => match validated_package(&agent, configuration) {
                Ok(PinnedPackage { package, .. }) => {
                    warnings.extend(rules_without_tool(document, &at, &layers, &package));
                }
                Err(error) => mistakes.push(document.invalid(&at, &said(&error))),
            },
        }
    }
    mistakes.extend(below);
    // Several parts read the same table, and each reports its errors.
    let mut seen = BTreeSet::new();
    mistakes.retain(|mistake| seen.insert(mistake.detail().to_owned()));
    Ok(ConfigFindings { mistakes, warnings })
}

/// Returns the detail of an error without its line.
fn without_place<'e>(document: &Document, mistake: &'e Error) -> &'e str {
    let place = format!("{}:", document.path().display());
    let behind = mistake.detail().strip_prefix(&place).and_then(|rest| rest.split_once(": "));
    behind.map_or(mistake.detail(), |(_, what)| what)
}

/// Returns the errors of harnesses and capabilities, whether or not an agent uses them.
fn layer_errors(document: &Document, registry: &LayerRegistry) -> Result<Vec<Error>, Error> {
    let mut mistakes = Vec::new();
    let mut check = |kind: &str, name: &str, from: String, layer: Layer| {
        let wrong = registry.layers(from, layer, []).and_then(fold).err();
        mistakes.extend(wrong.map(|error| placed(document, &[kind, name], &error)));
    };
    for name in document.names(&["harnesses"])? {
        if let Some(layer) = registry.harnesses.get(&name) {
            check("harnesses", &name, format!("harness {name}"), layer.clone());
        }
    }
    for name in document.names(&["capabilities"])? {
        let overlay = Overlay { capabilities: vec![name.clone()], ..Overlay::default() };
        let layer = Layer { overlay, ..Layer::default() };
        check("capabilities", &name, format!("capability {name}"), layer);
    }
    Ok(mistakes)
}

/// Warns about an agent's rules for tools that it does not have.
///
/// Rules of its harnesses and capabilities are not checked, because they may be for other agents. An agent
/// with MCP servers is not checked, because its tools may not be accepted yet.
fn rules_without_tool(
    document: &Document,
    at: &[&str],
    layers: &[OriginLayer],
    package: &Package,
) -> Vec<Error> {
    if layers.iter().any(|layer| !layer.overlay.mcp.is_empty()) {
        return Vec::new();
    }
    let tools: Vec<&str> = package.tools.iter().map(ToolName::as_str).collect();
    let own = layers.last().map(|layer| layer.overlay.rules.as_slice()).unwrap_or_default();
    let is_missing = |tool: &str| !tool.contains('*') && !tools.contains(&tool);
    let missing = own.iter().enumerate().filter(|(_, rule)| is_missing(&rule.tool));
    let warnings = missing.map(|(index, rule)| {
        let meant = keys::nearest(&rule.tool, &tools).map(|meant| format!("; did you mean `{meant}`?"));
        let what = format!(
            "warning: the rule `{}` is for the tool `{}`, which the agent `{}` does not have{}",
            rule.id,
            rule.tool,
            package.agent,
            meant.unwrap_or_default()
        );
        document.invalid(&[at, &["rules", &index.to_string(), "tool"]].concat(), &what)
    });
    warnings.collect()
}
