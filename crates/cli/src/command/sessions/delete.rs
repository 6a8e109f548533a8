//! `outlast sessions delete`: deletes a session after a confirmation.
use crate::formatting::count;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::store::SessionView;
use outlast::{Error, Kind};
use serde_json::json;
use std::io::{self, IsTerminal};

/// Deletes a session and everything that only it uses.
#[derive(Args)]
pub(crate) struct SessionDeleteArgs {
    /// Session, by id or key
    session: String,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
}

impl SessionDeleteArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = backend.find(&self.session).await?;
        if !self.yes && !is_meant(&session)? {
            terminal::note("· nothing was deleted");
            return Ok(());
        }
        backend.delete(session.id).await?;
        if data.json {
            terminal::json(&json!({ "deleted": session.id }));
        } else {
            terminal::say(&format!("{} deleted", session.id));
        }
        Ok(())
    }
}

/// Asks for a confirmation on the terminal.
fn is_meant(session: &SessionView) -> Result<bool, Error> {
    if !io::stdin().is_terminal() {
        let detail = "standard input is not a terminal, so the deletion cannot be confirmed; pass `--yes`";
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    let turns = count(session.turns as usize, "turn", "turns");
    terminal::note(&format!("delete {} with {turns}? It cannot be brought back. [y/N]", session.id));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("the answer cannot be read: {cause}")).because(cause)
    })?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
