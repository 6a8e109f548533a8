//! `outlast completions`: prints the completion script of a shell.
use crate::terminal;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use outlast::{Error, Kind};

/// Prints a completion script for a shell.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> Result<(), Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "outlast", &mut script);
        let script = String::from_utf8(script)
            .map_err(|cause| Error::new(Kind::Internal, format!("the script is not UTF-8 text: {cause}")))?;
        terminal::script(&script);
        Ok(())
    }
}
