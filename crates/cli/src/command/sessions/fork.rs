//! `outlast sessions fork`: branches a session at a message.
use crate::data::Data;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::vocab::record::Seq;
use serde_json::json;

/// Branches a session at a message.
#[derive(Args)]
pub(crate) struct Fork {
    /// The session, by id or key
    session: String,
    /// The message to branch after; the end of the main head without it
    #[arg(long, value_name = "N")]
    at: Option<u64>,
    /// The key of the new session
    #[arg(long, value_name = "KEY", conflicts_with = "head")]
    key: Option<String>,
    /// Branch within the session, under this head
    #[arg(long, value_name = "NAME")]
    head: Option<String>,
}

impl Fork {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let desk = data.desk().await?;
        let from = desk.find(&self.session).await?.id;
        let fork = desk.fork(from, self.at.map(Seq), (self.key, self.head)).await?;
        if data.json {
            terminal::json(&json!({ "session": fork }));
        } else {
            terminal::say(&fork.to_string());
        }
        Ok(())
    }
}
