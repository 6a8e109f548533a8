//! `outlast work`: drives all unfinished turns.
use crate::agent::AgentArgs;
use crate::follow::interrupt;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::runtime::delivery::feed::newest;
use outlast::store::{FeedCursor, Store};
use outlast::vocab::event::Event;
use outlast::vocab::record::Fact;
use outlast::{Error, Limits, Outlast};
use std::time::Duration;

/// How often the feed is read.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Runs unfinished turns until none can continue now, or until Ctrl-C.
#[derive(Args)]
pub(crate) struct WorkArgs {
    /// Keep running until Ctrl-C
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

impl WorkArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let mut feed = FeedPrinter { after: newest(data.operator()?.as_ref()).await? };
        // A worker drives the turns of every organisation.
        let outlast = self.agent.start(data).await?.operator();
        let ran = self.until_done(&outlast, &mut feed).await;
        let store = outlast.store().clone();
        outlast.shut_down().await;
        feed.print(store.as_ref()).await?;
        if ran.is_ok() && !self.follow {
            terminal::note("· no turn can continue now");
        }
        ran
    }

    async fn until_done(&self, outlast: &Outlast, feed: &mut FeedPrinter) -> Result<(), Error> {
        let done = async {
            if self.follow {
                interrupt().await;
                return Ok(());
            }
            outlast.runtime().idle().await?;
            // A turn that was just claimed may not have started. After this pause it has.
            tokio::time::sleep(LOOK_AGAIN).await;
            outlast.runtime().idle().await
        };
        tokio::pin!(done);
        loop {
            tokio::select! {
                done = &mut done => return done,
                () = tokio::time::sleep(LOOK_AGAIN) => feed.print(outlast.store().as_ref()).await?,
            }
        }
    }
}

/// Prints the ends, waits and failures of turns.
struct FeedPrinter {
    after: FeedCursor,
}

impl FeedPrinter {
    async fn print(&mut self, store: &dyn Store) -> Result<(), Error> {
        loop {
            let page = store.feed(self.after, Limits::default().page_rows).await?;
            let Some(last) = page.last() else { return Ok(()) };
            self.after = last.cursor;
            for fed in page {
                if terminal::is_json() {
                    terminal::json(&Event::Durable(Box::new(fed.record)).frame(fed.session));
                } else if is_told(&fed.record.fact) {
                    terminal::say(&format!("{} {}", fed.session, formatting::record(&fed.record)));
                }
            }
        }
    }
}

/// Returns whether a fact is printed.
fn is_told(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Ended { .. }
            | Fact::Parked { .. }
            | Fact::Stuck { .. }
            | Fact::Reminded { .. }
            | Fact::Escalated { .. }
    )
}
