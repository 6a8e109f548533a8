//! `outlast man`: generates manual pages from the definitions of the flags.
use crate::terminal;
use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;
use outlast::{Error, Kind};
use std::path::{Path, PathBuf};

/// Prints the manual page of `outlast`, or writes a page for every command.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// Write a page for every command into this directory, which is created if it is missing: `outlast.1`,
    /// `outlast-run.1`, …
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

impl ManArgs {
    pub(crate) fn run(self) -> Result<(), Error> {
        let mut root = crate::Cli::command();
        root.build();
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
        Error::new(Kind::Internal, format!("the page of `{name}` cannot be made: {cause}"))
    })?;
    String::from_utf8(roff).map_err(|cause| Error::new(Kind::Internal, cause.to_string()))
}

fn unwritten(path: &Path, cause: std::io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", path.display())).because(cause)
}
