//! `outlast sessions fork`: branches a session at a message.
use crate::data::Data;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::vocab::record::Seq;
use serde_json::json;

/// Forks a session at a message.
#[derive(Args)]
pub(crate) struct Fork {
    /// Session, by id or key
    session: String,
    /// Number of the message to fork after; default: the end of the main head
    #[arg(long, value_name = "N")]
    at: Option<u64>,
    /// Key of the new session
    #[arg(long, value_name = "KEY", conflicts_with = "head")]
    key: Option<String>,
    /// Fork within the session, as a head of this name
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
