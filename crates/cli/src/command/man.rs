//! `outlast man`: generates manual pages from the definitions of the flags.
use crate::terminal;
use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;
use outlast::{Error, Kind};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Prints the manual page of `outlast`, or writes a page for every command.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// Write a page for every command into this directory, which is created if it is missing: `outlast.1`,
    /// `outlast-run.1`, …
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Print one Markdown page that describes every command. The project's book contains it.
    #[arg(long, hide = true, conflicts_with = "into")]
    markdown: bool,
}

impl ManArgs {
    pub(crate) fn run(self) -> Result<(), Error> {
        let mut root = crate::Cli::command();
        root.build();
        if self.markdown {
            let mut page = String::new();
            write_markdown(&root, "outlast", &mut page);
            terminal::script(&page);
            return Ok(());
        }
        let Some(folder) = &self.into else {
            terminal::script(&page(&root, "outlast")?);
            return Ok(());
        };
        std::fs::create_dir_all(folder).map_err(|cause| unwritten(folder, cause))?;
        let pages = write(&root, "outlast", folder)?;
        terminal::note(&format!("· {pages} pages in {}", folder.display()));
        Ok(())
    }
}

/// Writes the pages of a command and its subcommands, and returns their number.
fn write(command: &clap::Command, name: &str, folder: &Path) -> Result<usize, Error> {
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)?).map_err(|cause| unwritten(&path, cause))?;
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        pages += write(below, &format!("{name}-{}", below.get_name()), folder)?;
    }
    Ok(pages)
}

fn page(command: &clap::Command, name: &str) -> Result<String, Error> {
    let mut roff = Vec::new();
    // A built command knows its full name.
    Page::new(command.clone()).render(&mut roff).map_err(|cause| {
        Error::new(Kind::Internal, format!("the page of `{name}` cannot be written: {cause}"))
    })?;
    String::from_utf8(roff).map_err(|cause| Error::new(Kind::Internal, cause.to_string()))
}

/// Appends a section about a command and its visible subcommands.
fn write_markdown(command: &clap::Command, name: &str, page: &mut String) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    // A global option is described once, at the top.
    let is_listed = |argument: &&clap::Arg| {
        let is_inherited = name != "outlast" && argument.is_global_set();
        !argument.is_hide_set() && !is_inherited && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let arguments: String = command.get_arguments().filter(is_listed).map(argument_item).collect();
    let write = write!(page, "## `{name}`\n\n{about}\n\n```text\n{usage}\n```\n\n{arguments}\n");
    write.expect("writing to a string succeeds");
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        write_markdown(below, &format!("{name} {}", below.get_name()), page);
    }
}

/// Formats an argument as a list item: its form, what it does, and its values.
fn argument_item(argument: &clap::Arg) -> String {
    let values: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| if argument.is_positional() { name.to_string() } else { format!(" <{name}>") })
        .collect();
    let takes_value = argument.get_action().takes_values();
    let values = if takes_value { values.concat() } else { String::new() };
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let long = argument.get_long().map(|long| format!("--{long}")).unwrap_or_default();
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut notes = Vec::new();
    let possible = argument.get_possible_values();
    let possible: Vec<String> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes_value && !possible.is_empty() {
        notes.push(format!("One of {}.", possible.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.display())).collect();
    if takes_value && !defaults.is_empty() {
        notes.push(format!("Default: {}.", defaults.join(", ")));
    }
    if let Some(variable) = argument.get_env() {
        notes.push(format!("Environment: `{}`.", variable.display()));
    }
    let text = format!("{} {}", full_sentence(&help), notes.join(" ")).replace('\n', "\n  ");
    format!("- `{short}{long}{values}`: {}\n", text.trim())
}

/// Returns the text with a full stop, which clap leaves out.
fn full_sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '!', '?', ':']) { text.to_owned() } else { format!("{text}.") }
}

fn unwritten(path: &Path, cause: std::io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", path.display())).because(cause)
}
