//! The state of all sessions that run or wait, and of those that ended since the command started.
use crate::backend::CommandBackend;
use crate::formatting;
use outlast::runtime::views::costs;
use outlast::store::{SessionState, SessionView};
use outlast::views::{SessionFilter, TitledSession, TurnProgress, WaitExplanation};
use outlast::vocab::Millis;
use outlast::vocab::cost::Cost;
use outlast::vocab::effect::{ModelOutcome, Outcome};
use outlast::vocab::message::text_of;
use outlast::vocab::record::{EffectPerformed, Fact, Record};
use outlast::{Error, Kind, SessionId, TurnId};
use serde::Serialize;
use std::collections::BTreeSet;

/// The maximum number of sessions per state.
const SHOWN: usize = 50;

/// The state of one session.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WatchRow {
    pub(super) session: SessionId,
    pub(super) key: Option<String>,
    /// `idle`, `ready`, `running`, `parked` or `held`.
    pub(super) state: &'static str,
    /// The active turn, or else the last one.
    pub(super) turn: Option<TurnId>,
    /// The agent of the turn.
    pub(super) agent: Option<String>,
    /// The current activity or wait of the turn.
    pub(super) doing: String,
    /// The tokens that the turn used.
    pub(super) tokens: u64,
    /// The cost of the turn.
    pub(super) cost: Cost,
    /// The last message.
    pub(super) words: String,
    pub(super) updated: Millis,
}

impl WatchRow {
    /// Creates a row with only a session id.
    #[cfg(test)]
    pub(super) fn known(session: SessionId) -> Self {
        Self {
            session,
            key: None,
            state: "idle",
            turn: None,
            agent: None,
            doing: String::new(),
            tokens: 0,
            cost: Cost::ZERO,
            words: String::new(),
            updated: Millis(0),
        }
    }

    async fn of(backend: &CommandBackend, session: SessionView) -> Result<Self, Error> {
        let turn = match session.active {
            Some(turn) => Some(turn),
            None => {
                backend.turns(session.id, session.turns.saturating_sub(1), 1).await?.pop().map(|turn| turn.id)
            }
        };
        let (agent, records) = match turn {
            Some(turn) => (backend.agent_of(turn).await?, backend.turn_records(turn).await?),
            None => (None, Vec::new()),
        };
        let doing = match session.active {
            Some(turn) => doing(&backend.why(&turn.to_string()).await?),
            None => String::new(),
        };
        let (usage, cost) = costs::of_turn(&records);
        Ok(Self {
            session: session.id,
            key: session.key,
            state: session.state.name(),
            turn,
            agent,
            doing,
            tokens: usage.input + usage.cache_read + usage.cache_write + usage.output + usage.reasoning,
            cost,
            words: last_words(&records),
            updated: session.updated,
        })
    }
}

/// Describes briefly what a turn does or waits for.
fn doing(why: &WaitExplanation) -> String {
    match &why.progress {
        TurnProgress::Driven { doing, .. } => doing.clone(),
        TurnProgress::Waits => {
            let waits = why.waits.iter().map(|blocked| match &blocked.call {
                Some((tool, _)) => format!("{} of {tool}", blocked.wait.kind.name()),
                None => blocked.wait.kind.name().to_owned(),
            });
            waits.collect::<Vec<_>>().join(", ")
        }
        TurnProgress::Stuck(failure) => format!("stuck: {failure}"),
        TurnProgress::Held { deaths, .. } => {
            format!(
                "held back: {} while it ran",
                formatting::count(*deaths as usize, "worker died", "workers died")
            )
        }
        TurnProgress::Behind(turn) => format!("behind {turn}"),
        TurnProgress::Ready => "no worker has taken it".to_owned(),
        TurnProgress::Ended(end) => formatting::end(end),
        TurnProgress::Rests => String::new(),
    }
}

/// Returns the last message of a turn, from the user or the model.
fn last_words(records: &[Record]) -> String {
    let said = records.iter().rev().find_map(|record| match &record.fact {
        Fact::Performed(EffectPerformed {
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
        }) => Some(text_of(&reply.parts).into_owned()).filter(|text| !text.is_empty()),
        Fact::Interrupted(interrupted) => Some(interrupted.text.clone()).filter(|text| !text.is_empty()),
        Fact::Accepted(accepted) => Some(text_of(&accepted.parts).into_owned()),
        _ => None,
    });
    said.unwrap_or_default()
}

/// The watched sessions, most recently changed first. Idle sessions come last.
pub(super) struct WatchRows {
    rows: Vec<WatchRow>,
    /// The position in the feed of all sessions.
    after: u64,
}

impl WatchRows {
    /// Reads the sessions that run or wait now.
    pub(super) async fn of(backend: &CommandBackend) -> Result<Self, Error> {
        let mut rows = Self { rows: Vec::new(), after: backend.feed_end().await? };
        for state in [SessionState::Leased, SessionState::Ready, SessionState::Parked, SessionState::Held] {
            let filter = SessionFilter { state: Some(state), ..SessionFilter::default() };
            for TitledSession { session, .. } in backend.sessions(&filter, SHOWN).await? {
                rows.put(WatchRow::of(backend, session).await?);
            }
        }
        rows.sort();
        Ok(rows)
    }

    /// Reads the changes since the last call, and returns the changed sessions.
    pub(super) async fn refresh(&mut self, backend: &CommandBackend) -> Result<BTreeSet<SessionId>, Error> {
        let (after, changed) = backend.changed(self.after).await?;
        for session in &changed {
            match backend.session(*session).await {
                Ok(view) => self.put(WatchRow::of(backend, view).await?),
                Err(error) if error.kind() == Kind::SessionNotFound => {
                    self.rows.retain(|row| row.session != *session);
                }
                Err(error) => return Err(error),
            }
        }
        self.after = after;
        self.sort();
        Ok(changed)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &WatchRow> {
        self.rows.iter()
    }

    pub(super) fn find(&self, session: SessionId) -> Option<&WatchRow> {
        self.rows.iter().find(|row| row.session == session)
    }

    fn put(&mut self, row: WatchRow) {
        self.rows.retain(|known| known.session != row.session);
        self.rows.push(row);
    }

    fn sort(&mut self) {
        self.rows.sort_by_key(|row| (row.state == SessionState::Idle.name(), std::cmp::Reverse(row.updated)));
        self.rows.truncate(4 * SHOWN);
    }
}
