//! `outlast sessions list`.
use crate::data::Data;
use crate::terminal;
use crate::words;
use clap::{Args, ValueEnum};
use outlast::Error;
use outlast::runtime::listing::{self, Filter, Listed};
use outlast::store::{SessionState, Store};

/// Sessions that are listed when nobody says how many.
pub(super) const MOST: usize = 50;

/// Letters of a title before it is cut.
const TITLE_LETTERS: usize = 60;

/// Lists sessions, newest first.
#[derive(Args)]
pub(crate) struct List {
    /// How many
    #[arg(long, value_name = "N", default_value_t = MOST)]
    limit: usize,
    /// Only those that stand so
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Only those whose key or first input holds this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    /// Nothing to do
    Idle,
    /// A turn wants to be driven
    Ready,
    /// A worker drives a turn
    Running,
    /// A turn waits for something outside
    Parked,
}

impl List {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let state = self.state.map(|state| match state {
            State::Idle => SessionState::Idle,
            State::Ready => SessionState::Ready,
            State::Running => SessionState::Leased,
            State::Parked => SessionState::Parked,
        });
        let filter = Filter { state, text: self.search };
        found(data.open().await?.as_ref(), &filter, self.limit).await
    }
}

/// Prints the newest sessions.
pub(crate) async fn list(store: &dyn Store, limit: usize) -> Result<(), Error> {
    found(store, &Filter::default(), limit).await
}

async fn found(store: &dyn Store, filter: &Filter, limit: usize) -> Result<(), Error> {
    let mut rows = Vec::new();
    for Listed { session, title } in listing::page(store, filter, None, (limit, usize::MAX)).await?.sessions {
        rows.push(vec![
            session.id.to_string(),
            session.key.clone().unwrap_or_default(),
            session.state.name().to_owned(),
            session.turns.to_string(),
            words::when(session.updated),
            terminal::one_line(&title, TITLE_LETTERS),
        ]);
    }
    if rows.is_empty() {
        terminal::note("· there are no sessions");
        return Ok(());
    }
    terminal::table(&["SESSION", "KEY", "STATE", "TURNS", "UPDATED", "TITLE"], &rows);
    Ok(())
}
