//! `outlast sessions fork`.
use crate::data::Data;
use crate::find;
use crate::terminal;
use clap::Args;
use outlast::clock::{Clock, Entropy};
use outlast::runtime::system::{SystemClock, SystemEntropy};
use outlast::store::{self, ForkTo};
use outlast::vocab::record::Seq;
use outlast::{Error, SessionId};

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
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let store = data.open().await?;
        let from = find::session(store.as_ref(), &self.session).await?.id;
        let now = SystemClock.now();
        let fresh = SessionId::fresh(now, SystemEntropy.for_id());
        let to = self.head.map_or(ForkTo::Session { fresh, key: self.key }, ForkTo::Head);
        let at = self.at.map(Seq);
        let fork = store.fork(store::Fork { from, at, to, now }).await?;
        terminal::say(&fork.to_string());
        Ok(())
    }
}
