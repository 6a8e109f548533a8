//! Budget accounts: amounts are reserved before an effect and settled after it, in writes that happen anyway.
//!
//! A reservation that is never settled is counted as used, because the real charge is unknown. This happens if the
//! process dies or the reply breaks off. So usage never exceeds a budget, even if a process dies at any point.
//!
//! This module has the types and the [`Books`] trait. The rules are in [`crate::ledger`].
use crate::Answer;
use crate::page::Page;
use outlast_vocab::budget::{Amount, Budget, Budgets, Lacks, Purse};
use outlast_vocab::id::OrgId;
use outlast_vocab::{Millis, ReplayKey, TurnId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The changes that a write makes to the budget accounts of its turn. It settles first and reserves afterwards.
#[derive(Clone, Debug)]
pub struct Metering {
    /// The agent that runs the turn.
    pub agent: String,
    /// The budgets that the agent declares.
    pub budgets: Arc<Budgets>,
    /// Effects that finished, with what they used.
    pub settled: Vec<Settlement>,
    /// The effect that begins next.
    pub hold: Option<Hold>,
    /// Effects that the turn is to pause for, if it pauses. It does not pause if one of them fits by now.
    pub wishes: Vec<Wish>,
    /// How long the turn ran since its last write.
    pub driven: Duration,
    /// The maximum amount that reading the conversation takes in the session's next turn. `None` leaves it unchanged.
    pub standing: Option<Amount>,
}

/// The reservation for the first model call of a turn that begins with its input.
#[derive(Clone, Debug)]
pub struct FirstCall {
    /// The changes to the budget accounts.
    pub metering: Metering,
    /// The maximum amount the call may use, not counting the session's earlier conversation.
    pub most: Amount,
    /// Whether its price is known.
    pub price: Price,
}

/// Whether the price of an effect is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// The price is known, or the effect is free.
    Known,
    /// The price is unknown, so the effect does not fit a budget that limits money.
    Unknown,
}

/// An effect that a turn pauses for until a budget has room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key of the wait.
    pub wait: ReplayKey,
    /// The reservation that did not fit.
    pub hold: Hold,
}

/// An effect that finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The key of the effect.
    pub key: ReplayKey,
    /// What it used. If `None`, the usage is unknown and the whole reservation is counted as used.
    pub used: Option<Amount>,
    /// The part of `used` that is assumed because the real usage is unknown.
    pub lost: Amount,
}

impl Settlement {
    /// Creates the settlement of an effect that used this amount. `None` means that the usage is unknown.
    pub fn new(key: ReplayKey, used: Option<Amount>) -> Self {
        Self { key, used, lost: Amount::ZERO }
    }
}

/// A request to reserve budget for an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The key of the effect.
    pub key: ReplayKey,
    /// The maximum amount that the effect may use.
    pub most: Amount,
    /// How an earlier reservation of the effect is handled.
    pub if_held: IfHeld,
    /// Whether its price is known.
    pub price: Price,
}

impl Hold {
    /// Creates a request for an effect that may be charged each time it is started.
    pub fn new(key: ReplayKey, most: Amount, price: Price) -> Self {
        Self { key, most, if_held: IfHeld::Lost, price }
    }
}

/// What happens to an earlier reservation of the same effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfHeld {
    /// It is counted as used: the effect had begun, and its charge is unknown.
    Lost,
    /// It is reused: the effect is the same one, however often it is started.
    Stands,
}

/// The result of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The amount is reserved.
    Yes {
        /// The reserved amount.
        most: Amount,
        /// The budgets that have little left.
        low: Vec<Short>,
    },
    /// The amount is not reserved, because this budget does not have enough left.
    No(Short),
}

/// A budget that has too little left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The owner of the budget.
    pub purse: Purse,
    /// The reason why the effect does not fit.
    pub lacks: Lacks,
    /// Whether turns pause until the budget is raised. Otherwise they end.
    pub pauses: bool,
    /// When the budget's next period begins.
    pub until: Option<Millis>,
}

/// A budget account, as queries return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurseView {
    /// The organisation.
    pub org: OrgId,
    /// The name of the owner within the organisation, and of the period if the budget is per day or month.
    pub name: String,
    /// The budget that an operator set. `None` if the agent's budget applies.
    pub set: Option<Budget>,
    /// The budget that applies. `None` if nothing is limited any longer.
    pub limit: Option<Limit>,
    /// The amount used, including `lost`.
    pub spent: Amount,
    /// The amount reserved for running effects.
    pub held: Amount,
    /// The part of `spent` that is assumed because the real usage is unknown.
    pub lost: Amount,
}

/// A budget that applies, with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The budget.
    pub budget: Budget,
    /// Who set it.
    pub by: LimitBy,
}

/// Who set a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitBy {
    /// An operator, overriding the agent.
    Operator,
    /// The agent, as declared when usage was last counted.
    Agent,
}

/// A budget that a turn pauses for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The key of the wait.
    pub wait: ReplayKey,
    /// The owner of the budget.
    pub purse: Purse,
}

/// The budget accounts of a store.
pub trait Books: Send + Sync {
    /// Returns all accounts that were ever used or set, by name.
    fn budgets(&self, limit: usize) -> Answer<'_, Vec<PurseView>>;

    /// Returns a page of these accounts, after the one with this organisation and name.
    fn budgets_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> Answer<'_, Page<PurseView, (OrgId, String)>>;

    /// Returns whether an operator has set any budget. Cheap.
    fn budgets_are_set(&self) -> Answer<'_, bool>;

    /// Returns the budgets that a turn pauses for.
    fn awaited(&self, turn: TurnId) -> Answer<'_, Vec<Awaited>>;

    /// Sets a budget that overrides the agent's, or removes the override. Turns that pause for a budget try again.
    fn set_budget(&self, purse: Purse, budget: Option<Budget>, now: Millis) -> Answer<'_, ()>;
}
