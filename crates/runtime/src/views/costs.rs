//! Adds up the costs of model calls and priced tool calls from the records.
//!
//! Costs are grouped by session, turn, agent, model, source, tool or day. [`OrgCostCache`] caches the totals of an
//! organisation.
mod cost_cache;
mod reader;

pub use cost_cache::OrgCostCache;
use outlast_views::{CostDimension, CostTotals};

use outlast_ports::journal::{FeedCursor, FeedRecord};
use outlast_ports::store::Store;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::record::{Record, Seq};
use outlast_vocab::{Error, Millis, SessionId, TurnId};
use reader::{CostEntry, CostReader, LoadedPackageNames};
use std::collections::BTreeMap;

/// Records read at once.
const PAGE: usize = 1_000;

/// Returns the spending by group name.
pub async fn spent(
    store: &dyn Store,
    of: Option<SessionId>,
    by: CostDimension,
) -> Result<BTreeMap<String, CostTotals>, Error> {
    Ok(over_days(daily(store, of, by).await?))
}

/// Adds up the spending of all days.
pub fn over_days(daily: BTreeMap<(String, String), CostTotals>) -> BTreeMap<String, CostTotals> {
    let mut spent: BTreeMap<String, CostTotals> = BTreeMap::new();
    for ((_, name), more) in daily {
        spent.entry(name).or_default().add(&more);
    }
    spent
}

/// Returns the spending by UTC day and group name. Reads the whole journal, or one session.
pub async fn daily(
    store: &dyn Store,
    of: Option<SessionId>,
    by: CostDimension,
) -> Result<BTreeMap<(String, String), CostTotals>, Error> {
    let mut accumulator = CostAccumulator { by, reader: CostReader::default(), spent: BTreeMap::new() };
    match of {
        Some(session) => accumulator.read_session(store, session).await?,
        None => accumulator.read_all(store).await?,
    }
    Ok(accumulator.spent)
}

/// Returns the tokens and the cost of one turn, from its records. The cost includes priced tool calls.
pub fn of_turn(records: &[Record]) -> (Usage, Cost) {
    records.iter().fold((Usage::default(), Cost::ZERO), |(usage, cost), record| {
        let charged = record.fact.charge().map(|charge| charge.usage).unwrap_or_default();
        (usage + charged, cost + record.fact.cost().unwrap_or_default())
    })
}

/// Returns the spending of one session by turn. Reads only that session.
pub async fn spent_by_turn(
    store: &dyn Store,
    session: SessionId,
) -> Result<BTreeMap<TurnId, CostTotals>, Error> {
    let spent = spent(store, Some(session), CostDimension::Turn).await?;
    spent.into_iter().map(|(turn, spent)| Ok((turn.parse()?, spent))).collect()
}

/// Accumulates spending under one grouping.
struct CostAccumulator {
    by: CostDimension,
    reader: CostReader,
    /// By day and name.
    spent: BTreeMap<(String, String), CostTotals>,
}

impl CostAccumulator {
    async fn read_all(&mut self, store: &dyn Store) -> Result<(), Error> {
        let mut after = FeedCursor(0);
        loop {
            let page = store.feed(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.cursor;
            self.learn(store, page.iter().map(|found| &found.record)).await;
            for FeedRecord { session, record, .. } in &page {
                self.add(*session, record);
            }
        }
    }

    /// Reads one session, without reading the others.
    async fn read_session(&mut self, store: &dyn Store, session: SessionId) -> Result<(), Error> {
        let mut after = Seq(0);
        loop {
            let page = store.records(session, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            self.learn(store, page.iter()).await;
            for record in &page {
                self.add(session, record);
            }
        }
    }

    async fn learn<'a>(&mut self, store: &dyn Store, records: impl Iterator<Item = &'a Record>) {
        let unread = self.reader.unread(records);
        self.reader.learn(LoadedPackageNames::of(store, unread).await);
    }

    fn add(&mut self, session: SessionId, record: &Record) {
        let Some(CostEntry { day, agent, model, source, spent }) = self.reader.read(session, record) else {
            return;
        };
        let under = CostGroupNames {
            session,
            turn: record.turn,
            day: &day,
            agent: &agent,
            model: &model,
            source: &source,
        };
        if let Some(name) = under.name(self.by) {
            self.spent.entry((day, name)).or_default().add(&spent);
        }
    }
}

/// The group names of one entry.
struct CostGroupNames<'a> {
    session: SessionId,
    turn: Option<TurnId>,
    day: &'a str,
    agent: &'a str,
    model: &'a str,
    source: &'a str,
}

impl CostGroupNames<'_> {
    /// Returns the name under this grouping, or `None` if the entry does not belong to it.
    fn name(&self, by: CostDimension) -> Option<String> {
        let name = match by {
            CostDimension::Session => return Some(self.session.to_string()),
            CostDimension::Turn => return self.turn.map(|turn| turn.to_string()),
            CostDimension::Tool if !self.source.starts_with("tool ") => return None,
            CostDimension::Source | CostDimension::Tool => self.source,
            CostDimension::Model => self.model,
            CostDimension::Agent => self.agent,
            CostDimension::Day => self.day,
        };
        Some(name.to_owned())
    }
}

fn day(at: Millis) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "unknown".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}
