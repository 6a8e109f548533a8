//! `outlast completions`: prints the completion script of a shell.
use crate::terminal;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use outlast::{Error, Kind};

/// Prints the script that lets a shell complete commands and flags.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<(), Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "outlast", &mut script);
        let script = String::from_utf8(script)
            .map_err(|cause| Error::new(Kind::Internal, format!("the script is no text: {cause}")))?;
        terminal::script(&script);
        Ok(())
    }
}
