//! `outlast sessions fork`: branches a session at a message.
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::vocab::record::Seq;
use serde_json::json;

/// Forks a session at a message.
#[derive(Args)]
pub(crate) struct SessionForkArgs {
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

impl SessionForkArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let from = backend.find(&self.session).await?.id;
        let fork = backend.fork(from, self.at.map(Seq), self.key, self.head).await?;
        if data.json {
            terminal::json(&json!({ "session": fork }));
        } else {
            terminal::say(&fork.to_string());
        }
        Ok(())
    }
}
