//! What models and calls of tools with a price cost, added up from the records (R5.6): by session, turn, agent, model, source,
//! tool or day.
use outlast_ports::store::{FeedCursor, Store};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{BatchCall, Command, DirectOutcome, ModelOutcome, Outcome, Usage};
use outlast_vocab::message::ToolName;
use outlast_vocab::package::{Package, Pinned};
use outlast_vocab::record::{Answered, Asked, ClaimRef, Compacted, Fact, Performed, Record, Seq, Shorter};
use outlast_vocab::{Error, Hash, Millis, ReplayKey, SessionId, TurnId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Records that are read at once.
const PAGE: usize = 1_000;

/// What is added up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each session.
    Session,
    /// Each agent.
    Agent,
    /// Each model.
    Model,
    /// The conversation, summaries of it, and each tool that asks models itself or has a price.
    Source,
    /// Each tool that asks models itself or has a price, and nothing else.
    Tool,
    /// Each day, in UTC.
    Day,
    /// Each turn.
    Turn,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Session, Self::Agent, Self::Model, Self::Source, Self::Tool, Self::Day, Self::Turn];

    /// One word for wires.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Source => "source",
            Self::Tool => "tool",
            Self::Day => "day",
            Self::Turn => "turn",
        }
    }
}

/// What was spent on one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Replies.
    pub replies: u64,
    /// Tokens.
    pub usage: Usage,
    /// Money, as far as prices were known.
    pub cost: Cost,
    /// Replies whose price was not known.
    pub unpriced: u64,
}

/// One reply, with all that it may be added up by.
struct Said<'a> {
    model: &'a str,
    source: &'a str,
    usage: Usage,
    cost: Option<Cost>,
    replies: u64,
}

impl<'a> Said<'a> {
    /// A call of a tool with a price, which says nothing.
    fn call(source: &'a str, price: Cost) -> Self {
        Self { model: "none", source, usage: Usage::default(), cost: Some(price), replies: 0 }
    }
}

impl Spent {
    fn add(&mut self, more: &Self) {
        self.replies += more.replies;
        self.usage = self.usage + more.usage;
        self.cost = self.cost + more.cost;
        self.unpriced += more.unpriced;
    }
}

/// What was spent, by name.
pub async fn spent(
    store: &dyn Store,
    of: Option<SessionId>,
    by: By,
) -> Result<BTreeMap<String, Spent>, Error> {
    let mut spent: BTreeMap<String, Spent> = BTreeMap::new();
    for ((_, name), more) in daily(store, of, by).await? {
        spent.entry(name).or_default().add(&more);
    }
    Ok(spent)
}

/// What was spent on each day, in UTC, by day and name.
pub async fn daily(
    store: &dyn Store,
    of: Option<SessionId>,
    by: By,
) -> Result<BTreeMap<(String, String), Spent>, Error> {
    let mut books = Books::by(by);
    match of {
        Some(session) => books.read_session(store, session).await?,
        None => books.read_all(store).await?,
    }
    Ok(books.spent)
}

/// What the models of one turn used, and what they and calls of tools with a price cost, from its records.
pub fn of_turn(records: &[Record]) -> (Usage, Cost) {
    let mut total = (Usage::default(), Cost::ZERO);
    for record in records {
        let usage = match &record.fact {
            Fact::Performed(Performed {
                outcome:
                    Outcome::ModelCall(ModelOutcome::Reply(reply))
                    | Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))),
                ..
            }) => reply.usage,
            Fact::Compacted(Compacted { shorter: Shorter::Summary { usage, .. }, .. }) => *usage,
            _ => Usage::default(),
        };
        total = (total.0 + usage, total.1 + record.fact.cost().unwrap_or_default());
    }
    total
}

/// What was spent in one session, by turn. Reads that session alone.
pub async fn spent_by_turn(store: &dyn Store, session: SessionId) -> Result<BTreeMap<TurnId, Spent>, Error> {
    let spent = spent(store, Some(session), By::Turn).await?;
    spent.into_iter().map(|(turn, spent)| Ok((turn.parse()?, spent))).collect()
}

/// What must be known of a turn while it is read.
#[derive(Default)]
struct Open {
    package: Option<Hash>,
    /// The tool of each call, by its place and its claim.
    calls: Vec<(ReplayKey, ClaimRef, ToolName)>,
}

struct Books {
    by: By,
    packages: HashMap<Hash, Option<Package>>,
    /// Turns that have not ended so far in the reading.
    turns: HashMap<TurnId, Open>,
    /// By day and name.
    spent: BTreeMap<(String, String), Spent>,
}

impl Books {
    fn by(by: By) -> Self {
        Self { by, packages: HashMap::new(), turns: HashMap::new(), spent: BTreeMap::new() }
    }

    async fn read_all(&mut self, store: &dyn Store) -> Result<(), Error> {
        let mut after = FeedCursor(0);
        loop {
            let page = store.feed(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.cursor;
            for found in page {
                self.take(store, found.session, &found.record).await?;
            }
        }
    }

    /// Reads one session, however many others there are.
    async fn read_session(&mut self, store: &dyn Store, session: SessionId) -> Result<(), Error> {
        let mut after = Seq(0);
        loop {
            let page = store.records(session, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            for record in page {
                self.take(store, session, &record).await?;
            }
        }
    }

    async fn take(&mut self, store: &dyn Store, session: SessionId, record: &Record) -> Result<(), Error> {
        let Some(turn) = record.turn else { return Ok(()) };
        match &record.fact {
            Fact::Started(started) => {
                self.turns.entry(turn).or_default().package = Some(started.package);
                if let Entry::Vacant(unread) = self.packages.entry(started.package) {
                    let pinned = store.package(turn).await.ok();
                    let pinned: Option<Pinned> = pinned.and_then(|json| serde_json::from_slice(&json).ok());
                    unread.insert(pinned.map(|pinned| pinned.package));
                }
            }
            Fact::Asked(Asked { key, command: Command::ToolBatch(batch) }) => {
                for (index, call) in batch.calls.iter().enumerate() {
                    if let BatchCall::Run(call) = call {
                        let place = key.child(index, call.model_id.as_str());
                        let claim =
                            ClaimRef { asked: record.seq, child: u32::try_from(index).unwrap_or(u32::MAX) };
                        self.turns.entry(turn).or_default().calls.push((place, claim, call.tool.clone()));
                    }
                }
            }
            Fact::Performed(Performed { key, command, outcome, cost: charged, .. }) => {
                match (command, outcome) {
                    (Command::ModelCall(call), Outcome::ModelCall(ModelOutcome::Reply(reply))) => {
                        let (usage, cost) = (reply.usage, reply.cost);
                        let model = call.model.as_str();
                        self.add(
                            session,
                            record,
                            &Said { model, source: "conversation", usage, cost, replies: 1 },
                        );
                    }
                    (
                        Command::DirectCall(call),
                        Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))),
                    ) => {
                        let tool = self.tool(turn, key).map(|tool| format!("tool {tool}"));
                        let source = tool.as_deref().unwrap_or(&call.usage_source);
                        let (usage, cost) = (reply.usage, reply.cost);
                        self.add(
                            session,
                            record,
                            &Said { model: call.model.as_str(), source, usage, cost, replies: 1 },
                        );
                    }
                    _ => {
                        let tool = key.nested_tool().or_else(|| self.tool(turn, key).map(ToolName::as_str));
                        if let (Some(price), Some(tool)) = (*charged, tool) {
                            let source = format!("tool {tool}");
                            self.add(session, record, &Said::call(&source, price));
                        }
                    }
                }
            }
            Fact::Compacted(Compacted { shorter: Shorter::Summary { usage, cost, .. }, .. }) => {
                let model = self.package(turn).map(|package| package.model.to_string());
                let model = model.as_deref().unwrap_or("unknown");
                self.add(
                    session,
                    record,
                    &Said { model, source: "summaries", usage: *usage, cost: *cost, replies: 1 },
                );
            }
            Fact::Answered(Answered { claim, cost: Some(price), .. }) => {
                let calls = self.turns.get(&turn).map_or(&[][..], |open| &open.calls);
                let tool = calls.iter().find(|(_, of, _)| of == claim).map(|(.., tool)| tool.as_str());
                let source = format!("tool {}", tool.unwrap_or("unknown"));
                self.add(session, record, &Said::call(&source, *price));
            }
            Fact::Ended { .. } => drop(self.turns.remove(&turn)),
            _ => {}
        }
        Ok(())
    }

    fn package(&self, turn: TurnId) -> Option<&Package> {
        self.packages.get(&self.turns.get(&turn)?.package?)?.as_ref()
    }

    /// The tool whose call asked at this place.
    fn tool(&self, turn: TurnId, place: &ReplayKey) -> Option<&ToolName> {
        let calls = &self.turns.get(&turn)?.calls;
        calls.iter().find(|(call, ..)| place.is_under(call)).map(|(.., tool)| tool)
    }

    fn add(&mut self, session: SessionId, record: &Record, entry: &Said<'_>) {
        if self.by == By::Tool && !entry.source.starts_with("tool ") {
            return;
        }
        let name = match self.by {
            By::Session => session.to_string(),
            By::Model => entry.model.to_owned(),
            By::Source | By::Tool => entry.source.to_owned(),
            By::Day => day(record.at),
            By::Turn => record.turn.map(|turn| turn.to_string()).unwrap_or_default(),
            By::Agent => {
                let agent =
                    record.turn.and_then(|turn| self.package(turn)).map(|package| package.agent.clone());
                agent.unwrap_or_else(|| "unknown".to_owned())
            }
        };
        let (cost, unpriced) = entry.cost.map_or((Cost::ZERO, 1), |price| (price, 0));
        let more = Spent { replies: entry.replies, usage: entry.usage, cost, unpriced };
        self.spent.entry((day(record.at), name)).or_default().add(&more);
    }
}

fn day(at: Millis) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "unknown".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}
