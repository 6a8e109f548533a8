//! Extracts the spending and its group names from records.
use super::{CostTotals, day};
use outlast_ports::store::Store;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{BatchCall, Command, DirectOutcome, ModelCharge, ModelOutcome, Outcome, Reply};
use outlast_vocab::message::ToolName;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::record::{
    ClaimRef, CompactionMethod, CompactionRecord, EffectAnswered, EffectPerformed, EffectRequested, Fact,
    InterruptedReply, Record,
};
use outlast_vocab::{Hash, ReplayKey, SessionId, TurnId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Packages cached at the same time. When the cache is full it is cleared, and packages are read again as
/// turns begin.
const PACKAGES: usize = 1_000;

/// The spending of one record, with its group names.
pub(super) struct CostEntry {
    pub(super) day: String,
    pub(super) agent: String,
    pub(super) model: String,
    pub(super) source: String,
    pub(super) spent: CostTotals,
}

/// The agent and the model of a package.
struct PackageNames {
    agent: String,
    model: String,
}

/// The state of a turn while its records are read.
struct OpenTurn {
    session: SessionId,
    named: Option<Arc<PackageNames>>,
    /// The tool of each call, by its key and its claim.
    calls: Vec<(ReplayKey, ClaimRef, ToolName)>,
}

/// Reads records in the order they were written. Each record reports spending at most once.
#[derive(Default)]
pub(super) struct CostReader {
    packages: HashMap<Hash, Option<Arc<PackageNames>>>,
    /// Turns that have begun but not ended.
    turns: HashMap<TurnId, OpenTurn>,
}

/// Packages to read, each with one of the turns that began under it.
pub(super) type UnreadPackages = BTreeMap<Hash, TurnId>;

/// The agents and models of packages, by hash.
pub(super) struct LoadedPackageNames(Vec<(Hash, Option<Arc<PackageNames>>)>);

impl LoadedPackageNames {
    /// Reads packages. An unreadable package has no names.
    pub(super) async fn of(store: &dyn Store, unread: UnreadPackages) -> Self {
        let mut learned = Vec::with_capacity(unread.len());
        for (hash, turn) in unread {
            let pinned = store.package(turn).await.ok();
            let pinned: Option<PinnedPackage> = pinned.and_then(|json| serde_json::from_slice(&json).ok());
            let named = |PinnedPackage { package, .. }| {
                Arc::new(PackageNames { agent: package.agent, model: package.model.to_string() })
            };
            learned.push((hash, pinned.map(named)));
        }
        Self(learned)
    }
}

impl CostReader {
    /// Returns the packages that must be read before these records.
    pub(super) fn unread<'a>(&mut self, records: impl Iterator<Item = &'a Record>) -> UnreadPackages {
        if self.packages.len() >= PACKAGES {
            self.packages.clear();
        }
        let begun = records.filter_map(|record| match (&record.fact, record.turn) {
            (Fact::Started(started), Some(turn)) => Some((started.package, turn)),
            _ => None,
        });
        begun.filter(|(package, _)| !self.packages.contains_key(package)).collect()
    }

    pub(super) fn learn(&mut self, LoadedPackageNames(learned): LoadedPackageNames) {
        self.packages.extend(learned);
    }

    /// Returns how many turns have begun but not ended.
    pub(super) fn open(&self) -> usize {
        self.turns.len()
    }

    /// Forgets the turns of a session.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.turns.retain(|_, open| open.session != session);
    }

    /// Returns the spending of the next record.
    pub(super) fn read(&mut self, session: SessionId, record: &Record) -> Option<CostEntry> {
        let turn = record.turn?;
        match &record.fact {
            Fact::Started(started) => {
                let named = self.packages.get(&started.package).cloned().flatten();
                self.open_turn(session, turn).named = named;
                None
            }
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                let open = self.open_turn(session, turn);
                for (index, call) in batch.calls.iter().enumerate() {
                    if let BatchCall::Run(call) = call {
                        let place = key.child(index, call.model_id.as_str());
                        let claim =
                            ClaimRef { asked: record.seq, child: u32::try_from(index).unwrap_or(u32::MAX) };
                        open.calls.push((place, claim, call.tool.clone()));
                    }
                }
                None
            }
            Fact::Performed(performed) => self.performed(record, turn, performed),
            Fact::Compacted(CompactionRecord {
                shorter: CompactionMethod::Summary { estimate, .. }, ..
            }) => {
                let model = self.named(turn).map_or("unknown", |named| &named.model).to_owned();
                let spent = replied(record.fact.charge()?, estimate.is_some());
                Some(self.entry(record, model, "summaries".to_owned(), spent))
            }
            Fact::Interrupted(InterruptedReply { key, model, .. }) => {
                let spent = CostTotals { replies: 0, ..replied(record.fact.charge()?, true) };
                let source = match (key.model_call(), self.tool(turn, key)) {
                    (Some(_), _) => "conversation".to_owned(),
                    (None, Some(tool)) => format!("tool {tool}"),
                    (None, None) => "summaries".to_owned(),
                };
                Some(self.entry(record, model.to_string(), source, spent))
            }
            Fact::Answered(EffectAnswered { claim, cost: Some(price), .. }) => {
                let calls = self.turns.get(&turn).map_or(&[][..], |open| &open.calls);
                let tool = calls.iter().find(|(_, of, _)| of == claim).map(|(.., tool)| tool.as_str());
                let source = format!("tool {}", tool.unwrap_or("unknown"));
                Some(self.entry(record, "none".to_owned(), source, charged(*price)))
            }
            Fact::Ended { .. } => {
                self.turns.remove(&turn);
                None
            }
            _ => None,
        }
    }

    fn performed(&self, record: &Record, turn: TurnId, performed: &EffectPerformed) -> Option<CostEntry> {
        let EffectPerformed { key, command, outcome, cost, reused, .. } = performed;
        match (command, outcome) {
            // The retried turn has already paid for it.
            _ if *reused => None,
            (Command::ModelCall(call), Outcome::ModelCall(ModelOutcome::Reply(reply))) => {
                let source = "conversation".to_owned();
                Some(self.entry(record, call.model.to_string(), source, reply_totals(reply)))
            }
            (Command::DirectCall(call), Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply)))) => {
                let tool = self.tool(turn, key).map(|tool| format!("tool {tool}"));
                let source = tool.unwrap_or_else(|| call.usage_source.clone());
                Some(self.entry(record, call.model.to_string(), source, reply_totals(reply)))
            }
            _ => {
                let tool = key.nested_tool().or_else(|| self.tool(turn, key).map(ToolName::as_str))?;
                Some(self.entry(record, "none".to_owned(), format!("tool {tool}"), charged((*cost)?)))
            }
        }
    }

    fn entry(&self, record: &Record, model: String, source: String, spent: CostTotals) -> CostEntry {
        let named = record.turn.and_then(|turn| self.named(turn));
        let agent = named.map_or("unknown", |named| &named.agent).to_owned();
        CostEntry { day: day(record.at), agent, model, source, spent }
    }

    fn open_turn(&mut self, session: SessionId, turn: TurnId) -> &mut OpenTurn {
        self.turns.entry(turn).or_insert_with(|| OpenTurn { session, named: None, calls: Vec::new() })
    }

    fn named(&self, turn: TurnId) -> Option<&PackageNames> {
        self.turns.get(&turn)?.named.as_deref()
    }

    /// Returns the tool whose call contains this key.
    fn tool(&self, turn: TurnId, place: &ReplayKey) -> Option<&ToolName> {
        let calls = &self.turns.get(&turn)?.calls;
        calls.iter().find(|(call, ..)| place.is_under(call)).map(|(.., tool)| tool)
    }
}

/// The spending of a model reply.
fn reply_totals(reply: &Reply) -> CostTotals {
    replied(reply.charge(), reply.estimate.is_some())
}

/// The spending of one reply with this charge.
fn replied(ModelCharge { usage, cost }: ModelCharge, is_estimate: bool) -> CostTotals {
    let (cost, unpriced) = cost.map_or((Cost::ZERO, 1), |price| (price, 0));
    let (estimated, estimated_usage) = if is_estimate { (cost, usage) } else { Default::default() };
    CostTotals { replies: 1, usage, cost, unpriced, estimated, estimated_usage }
}

/// The spending of a priced tool call, which has no tokens.
fn charged(price: Cost) -> CostTotals {
    CostTotals { cost: price, ..CostTotals::default() }
}
