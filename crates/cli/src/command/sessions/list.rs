//! `outlast sessions list`.
use crate::data::Data;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::Error;
use outlast::store::{SessionView, Store};
use outlast::vocab::message::text_of;
use outlast::vocab::record::Fact;

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
}

impl List {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        list(data.open().await?.as_ref(), self.limit).await
    }
}

/// Prints the newest sessions.
pub(crate) async fn list(store: &dyn Store, limit: usize) -> Result<(), Error> {
    let mut rows = Vec::new();
    for session in store.sessions(None, limit).await? {
        rows.push(vec![
            session.id.to_string(),
            session.key.clone().unwrap_or_default(),
            session.state.name().to_owned(),
            session.turns.to_string(),
            words::when(session.updated),
            terminal::one_line(&title(store, &session).await?, TITLE_LETTERS),
        ]);
    }
    if rows.is_empty() {
        terminal::note("· there are no sessions");
        return Ok(());
    }
    terminal::table(&["SESSION", "KEY", "STATE", "TURNS", "UPDATED", "TITLE"], &rows);
    Ok(())
}

/// A session's title is its first input.
async fn title(store: &dyn Store, session: &SessionView) -> Result<String, Error> {
    let Some(first) = store.turns(session.id, 0, 1).await?.into_iter().next() else {
        let title = session.forked_from.map(|node| format!("fork of {}", words::place(Some(node))));
        return Ok(title.unwrap_or_default());
    };
    let before = outlast::vocab::record::Seq(first.span.0.0.saturating_sub(1));
    let accepted = store.records(session.id, before, 1).await?.into_iter().next();
    Ok(match accepted.map(|record| record.fact) {
        Some(Fact::Accepted(accepted)) => text_of(&accepted.parts).into_owned(),
        _ => String::new(),
    })
}
