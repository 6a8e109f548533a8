//! `outlast sessions list`: lists the newest sessions that match a filter.
use crate::backend::CommandBackend;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::{Args, ValueEnum};
use outlast::Error;
use outlast::store::{LastEnd, SessionState, SessionView};
use outlast::views::{SessionFilter, TitledSession};
use outlast::vocab::Millis;
use outlast::vocab::record::TurnEndKind;
use outlast::vocab::wait::Wait;
use serde_json::{Value, json};

/// The default number of listed sessions.
pub(super) const MOST: usize = 50;

/// The maximum length of a title, in characters.
const TITLE_LETTERS: usize = 60;

/// Lists sessions, newest first.
#[derive(Args)]
pub(crate) struct SessionListArgs {
    /// Maximum number of sessions
    #[arg(long, value_name = "N", default_value_t = MOST)]
    limit: usize,
    /// List only sessions in this state
    #[arg(long, value_enum)]
    state: Option<SessionStateFilter>,
    /// List only sessions whose last turn ended like this: answered, failed, cancelled, sealed, stuck, …
    #[arg(long, value_name = "END")]
    last_end: Option<LastEnd>,
    /// List only sessions whose key or first input contains this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum SessionStateFilter {
    /// The session has nothing to do
    Idle,
    /// A turn is ready to run
    Ready,
    /// A worker runs a turn
    Running,
    /// A turn waits for something outside, like an approval
    Parked,
    /// A turn is held back, because workers died while it ran
    Held,
}

impl SessionListArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let state = self.state.map(|state| match state {
            SessionStateFilter::Idle => SessionState::Idle,
            SessionStateFilter::Ready => SessionState::Ready,
            SessionStateFilter::Running => SessionState::Leased,
            SessionStateFilter::Parked => SessionState::Parked,
            SessionStateFilter::Held => SessionState::Held,
        });
        let filter = SessionFilter { state, last_end: self.last_end, text: self.search };
        found(&data.backend().await?, &filter, self.limit, data.json).await
    }
}

/// Prints the newest sessions.
pub(super) async fn newest(data: &GlobalArgs) -> Result<(), Error> {
    found(&data.backend().await?, &SessionFilter::default(), MOST, data.json).await
}

/// Prints a table of the newest `limit` sessions.
pub(crate) async fn list(backend: &CommandBackend, limit: usize) -> Result<(), Error> {
    table(backend.sessions(&SessionFilter::default(), limit).await?);
    Ok(())
}

async fn found(
    backend: &CommandBackend,
    filter: &SessionFilter,
    limit: usize,
    json: bool,
) -> Result<(), Error> {
    let sessions = backend.sessions(filter, limit).await?;
    if json {
        for TitledSession { session, title } in &sessions {
            let mut line = session_json(session);
            line["title"] = json!(title);
            terminal::json(&line);
        }
    } else {
        table(sessions);
    }
    Ok(())
}

/// Returns a session as JSON.
pub(crate) fn session_json(session: &SessionView) -> Value {
    let SessionView { id, org, key, state, created, updated, turns, last, heads, forked_from, .. } = session;
    let SessionView { active, worker, waits, wake_at, deaths, last_turn, .. } = session;
    let heads: Vec<Value> = heads.iter().map(|(name, at)| json!({ "name": name, "at": at })).collect();
    json!({
        "id": id, "org": org, "key": key, "state": state.name(), "created": created, "updated": updated,
        "turns": turns, "last": last.seq, "hash": last.hash, "heads": heads, "forked_from": forked_from,
        "active": active, "worker": worker, "waits": waits, "wake_at": wake_at,
        "deaths": deaths,
        "last_turn": last_turn.map(|last| last.id), "last_end": last_turn.map(|last| last.end.name()),
    })
}

/// Formats the state of a session, with the provider that it waits for, or the end of its last turn unless that was answered.
fn state(session: &SessionView) -> String {
    let state = session.state.name();
    let provider = |wait: &Wait| Some((wait.key.awaited_provider()?.to_owned(), wait.deadline?));
    let (names, retries): (Vec<String>, Vec<Millis>) = session.waits.iter().filter_map(provider).unzip();
    if let Some(retry) = retries.into_iter().min() {
        return format!("{state}, provider {} until {}", names.join(" or "), formatting::when(retry));
    }
    match session.last_turn.map(|last| last.end).filter(|end| *end != LastEnd::Ended(TurnEndKind::Answered)) {
        Some(end) if matches!(session.state, SessionState::Idle | SessionState::Parked) => {
            format!("{state}, {}", end.name().replace('_', " "))
        }
        Some(_) | None => state.to_owned(),
    }
}

fn table(sessions: Vec<TitledSession>) {
    let mut rows = Vec::new();
    for TitledSession { session, title } in sessions {
        rows.push(vec![
            session.id.to_string(),
            session.key.clone().unwrap_or_default(),
            state(&session),
            session.turns.to_string(),
            formatting::when(session.updated),
            terminal::one_line(&title, TITLE_LETTERS),
        ]);
    }
    if rows.is_empty() {
        terminal::note("· there are no sessions");
        return;
    }
    terminal::table(&["SESSION", "KEY", "STATE", "TURNS", "UPDATED", "TITLE"], &rows);
}
