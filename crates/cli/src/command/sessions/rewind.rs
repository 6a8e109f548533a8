//! `outlast sessions rewind`: moves a head back to an earlier message.
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::store::MAIN_HEAD;
use outlast::vocab::record::Seq;
use serde_json::json;

/// Moves a head back to a message.
#[derive(Args)]
pub(crate) struct SessionRewindArgs {
    /// Session, by id or key
    session: String,
    /// Number of the message to move the head to; 0 is before the first message
    #[arg(long, value_name = "N")]
    to: u64,
    /// Name of the head to move
    #[arg(long, value_name = "NAME", default_value = MAIN_HEAD)]
    head: String,
}

impl SessionRewindArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = backend.find(&self.session).await?.id;
        let to = (self.to > 0).then_some(Seq(self.to));
        backend.rewind(session, &self.head, to).await?;
        if data.json {
            terminal::json(&json!({ "session": session, "head": self.head, "at": to }));
            return Ok(());
        }
        let place = to.map_or_else(|| "the beginning".to_owned(), |seq| format!("#{seq}"));
        terminal::say(&format!("{session}: {} is now at {place}", self.head));
        Ok(())
    }
}
