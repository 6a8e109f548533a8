//! Budgets as the store keeps them: reserved before an effect and settled after it, in writes that happen anyway (R11.5).
//!
//! What was reserved and never settled, because its process died or its reply broke off, counts as used: nobody knows what was
//! charged for it. So what is used never goes over a budget, whoever dies when.
use crate::Answer;
use crate::page::Page;
use outlast_vocab::budget::{Amount, Budget, Budgets, Lacks, Purse};
use outlast_vocab::id::OrgId;
use outlast_vocab::{Millis, ReplayKey, TurnId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What a write does to the books of its turn. First it settles, then it reserves.
#[derive(Clone, Debug)]
pub struct Metering {
    /// The agent whose turn it is.
    pub agent: String,
    /// The budgets that the agent brings.
    pub budgets: Arc<Budgets>,
    /// Effects that are over, and what they used.
    pub settled: Vec<Settlement>,
    /// The effect that is to begin next.
    pub hold: Option<Hold>,
    /// Effects that the turn holds still for, if it does. It does not where one of them fits by now.
    pub wishes: Vec<Wish>,
    /// How long the turn was driven since its last write.
    pub driven: Duration,
    /// What it takes at most to read the conversation once more in the session's next turn; none leaves it as it was.
    pub standing: Option<Amount>,
}

/// What is reserved when a turn begins with its input, for its first model call.
#[derive(Clone, Debug)]
pub struct FirstCall {
    /// The books.
    pub metering: Metering,
    /// What it may use at most, besides reading what was said in the session before.
    pub most: Amount,
    /// Whether its price is known.
    pub price: Price,
}

/// Whether the price of an effect is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// It is, or it costs nothing.
    Known,
    /// Nobody knows it, so it does not fit where money is bounded.
    Unknown,
}

/// An effect that a turn holds still for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The wait.
    pub wait: ReplayKey,
    /// What did not fit.
    pub hold: Hold,
}

/// An effect that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Which.
    pub key: ReplayKey,
    /// What it used; none if nobody knows, and then it is all that was reserved for it.
    pub used: Option<Amount>,
    /// What of that counts as used because nobody knows.
    pub lost: Amount,
}

impl Settlement {
    /// An effect that used this; none if nobody knows.
    pub fn new(key: ReplayKey, used: Option<Amount>) -> Self {
        Self { key, used, lost: Amount::ZERO }
    }
}

/// An effect for which something is reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which.
    pub key: ReplayKey,
    /// What it may use at most.
    pub most: Amount,
    /// What is to be done if something is reserved for it already.
    pub if_held: IfHeld,
    /// Whether its price is known.
    pub price: Price,
}

impl Hold {
    /// For an effect that may be charged each time it is begun.
    pub fn new(key: ReplayKey, most: Amount, price: Price) -> Self {
        Self { key, most, if_held: IfHeld::Lost, price }
    }
}

/// What a reservation from before is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfHeld {
    /// It is lost: the effect had begun, and nobody knows what was charged for it.
    Lost,
    /// It stands: the effect is the same one, however often it is begun.
    Stands,
}

/// What became of a wish to reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is reserved.
    Yes {
        /// How much that is.
        most: Amount,
        /// The budgets of which little is left.
        low: Vec<Short>,
    },
    /// It is not; this budget has not enough left.
    No(Short),
}

/// A budget of which too little is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// Whose.
    pub purse: Purse,
    /// What is lacking.
    pub lacks: Lacks,
    /// Whether turns hold still for it until it is raised, or end.
    pub pauses: bool,
    /// When it begins anew.
    pub until: Option<Millis>,
}

/// A budget and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurseView {
    /// The organisation.
    pub org: OrgId,
    /// Whose it is there, and of which period.
    pub name: String,
    /// What an operator set; none if it is as its agent says.
    pub set: Option<Budget>,
    /// What counts; none where nothing is bounded any more.
    pub limit: Option<Limit>,
    /// What was used, what was lost included.
    pub spent: Amount,
    /// What is reserved for effects that run.
    pub held: Amount,
    /// What counts as used because nobody knows.
    pub lost: Amount,
}

/// A budget that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What may be used.
    pub budget: Budget,
    /// Who said so.
    pub by: LimitBy,
}

/// Who said what may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitBy {
    /// An operator, in place of the agent.
    Operator,
    /// The agent, as it was when something was counted last.
    Agent,
}

/// A budget that a turn holds still for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The wait.
    pub wait: ReplayKey,
    /// Whose budget it is.
    pub purse: Purse,
}

/// The books of budgets.
pub trait Books: Send + Sync {
    /// All that was ever counted or set, by name.
    fn budgets(&self, limit: usize) -> Answer<'_, Vec<PurseView>>;

    /// A page of them, behind the one of this organisation and name.
    fn budgets_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> Answer<'_, Page<PurseView, (OrgId, String)>>;

    /// Whether an operator has set any. Cheap.
    fn budgets_are_set(&self) -> Answer<'_, bool>;

    /// The budgets that a turn holds still for.
    fn awaited(&self, turn: TurnId) -> Answer<'_, Vec<Awaited>>;

    /// Sets a budget in place of what an agent says, or goes back to that. Turns that hold still for a budget try again.
    fn set_budget(&self, purse: Purse, budget: Option<Budget>, now: Millis) -> Answer<'_, ()>;
}
