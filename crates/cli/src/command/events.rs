//! `outlast events`: prints the events of a session after a cursor.
use crate::backend::CommandBackend;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use crate::turn_backend::SessionEvents;
use clap::Args;
use outlast::vocab::event::Event;
use outlast::vocab::record::{Record, Seq};
use outlast::{Error, Limits, SessionId};
use std::time::Duration;

/// How often a follower checks for records of other processes.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Prints the events of a session.
#[derive(Args)]
pub(crate) struct EventsArgs {
    /// Session, by id or key
    session: String,
    /// Keep printing new events
    #[arg(long)]
    follow: bool,
    /// Start after the event with this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
}

impl EventsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = backend.find(&self.session).await?.id;
        let rows = Limits::default().page_rows;
        let mut after = Seq(self.after);
        let mut seen = None;
        loop {
            let changes = match &backend {
                CommandBackend::File(store) => store.changes().await?,
                CommandBackend::Server(_) => 0,
            };
            while seen != Some(changes) {
                let page = backend.records(session, after, rows).await?;
                if page.len() < rows {
                    seen = Some(changes);
                }
                for record in page {
                    after = record.seq;
                    self.print(session, record);
                }
            }
            if !self.follow {
                return Ok(());
            }
            if let CommandBackend::Server(client) = &backend {
                return self
                    .follow(session, SessionEvents::Server(Box::new(client.follow(session, after))))
                    .await;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Prints the events from a server. Never returns unless there is an error.
    async fn follow(&self, session: SessionId, mut events: SessionEvents) -> Result<(), Error> {
        loop {
            if let Event::Durable(record) = events.next().await? {
                self.print(session, *record);
            }
        }
    }

    fn print(&self, session: SessionId, record: Record) {
        if self.json {
            terminal::json(&Event::Durable(Box::new(record)).frame(session));
        } else {
            terminal::say(&format!("{} {}", formatting::when(record.at), formatting::record(&record)));
        }
    }
}
