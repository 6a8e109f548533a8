//! Budget accounts: amounts are reserved before an effect and settled after it, in writes that happen anyway.
//!
//! A reservation that is never settled is counted as used, because the real charge is unknown. This happens if the
//! process dies or the reply breaks off. So usage never exceeds a budget, even if a process dies at any point.
//!
//! This module has the types and the [`BudgetStore`] trait. The rules are in `outlast-ledger`.
use crate::ResultFuture;
use crate::page::Page;
use outlast_views::BudgetAccountView;
use outlast_vocab::budget::{Budget, BudgetAccount, BudgetDeficit, Budgets, UsageAmount};
use outlast_vocab::id::OrgId;
use outlast_vocab::{Millis, ReplayKey, TurnId};
use std::time::Duration;

/// The changes that a write makes to the budget accounts of its turn. It settles first and reserves afterwards.
#[derive(Clone, Debug)]
pub struct BudgetUpdate {
    /// The agent that runs the turn.
    pub agent: String,
    /// The budgets that the agent declares.
    pub budgets: Budgets,
    /// Effects that finished, with what they used.
    pub settled: Vec<BudgetSettlement>,
    /// The effect that begins next.
    pub reservation: Option<BudgetReservation>,
    /// Effects that the turn is to pause for, if it pauses. It does not pause if one of them fits by now.
    pub waits: Vec<BudgetWait>,
    /// How long the turn ran since its last write.
    pub run_time: Duration,
    /// The maximum amount that reading the conversation takes in the session's next turn. `None` leaves it unchanged.
    pub conversation_cost: Option<UsageAmount>,
}

/// The reservation for the first model call of a turn that begins with its input.
#[derive(Clone, Debug)]
pub struct FirstCallReservation {
    /// The changes to the budget accounts.
    pub budget_update: BudgetUpdate,
    /// The maximum amount the call may use, not counting the session's earlier conversation.
    pub amount_max: UsageAmount,
    /// Whether its price is known.
    pub price: PriceKnowledge,
}

/// Whether the price of an effect is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceKnowledge {
    /// The price is known, or the effect is free.
    Known,
    /// The price is unknown, so the effect does not fit a budget that limits money.
    Unknown,
}

/// An effect that a turn pauses for until a budget has room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetWait {
    /// The key of the wait.
    pub wait: ReplayKey,
    /// The reservation that did not fit.
    pub reservation: BudgetReservation,
}

/// An effect that finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSettlement {
    /// The key of the effect.
    pub key: ReplayKey,
    /// What it used.
    pub used: UsageAmount,
    /// The part of `used` that is assumed because the real usage is unknown.
    pub lost: UsageAmount,
}

impl BudgetSettlement {
    /// Creates the settlement of an effect that used this amount.
    pub fn new(key: ReplayKey, used: UsageAmount) -> Self {
        Self { key, used, lost: UsageAmount::ZERO }
    }
}

/// A request to reserve budget for an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetReservation {
    /// The key of the effect.
    pub key: ReplayKey,
    /// The maximum amount that the effect may use.
    pub amount_max: UsageAmount,
    /// How an earlier reservation of the effect is handled.
    pub existing: ExistingReservation,
    /// Whether its price is known.
    pub price: PriceKnowledge,
}

impl BudgetReservation {
    /// Creates a request for an effect that may be charged each time it is started.
    pub fn new(key: ReplayKey, amount_max: UsageAmount, price: PriceKnowledge) -> Self {
        Self { key, amount_max, existing: ExistingReservation::Lost, price }
    }
}

/// What happens to an earlier reservation of the same effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingReservation {
    /// It is counted as used: the effect had begun, and its charge is unknown.
    Lost,
    /// It is reused: the effect is the same one, however often it is started.
    Reused,
}

/// The result of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationResult {
    /// The amount is reserved.
    Reserved {
        /// The reserved amount.
        most: UsageAmount,
        /// The budgets that have little left.
        low: Vec<BudgetShortfall>,
    },
    /// The amount is not reserved, because this budget does not have enough left.
    Exhausted(BudgetShortfall),
}

/// A budget that has too little left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetShortfall {
    /// The owner of the budget.
    pub account: BudgetAccount,
    /// The reason why the effect does not fit.
    pub reason: BudgetDeficit,
    /// Whether turns pause until the budget is raised. Otherwise they end.
    pub pauses_turns: bool,
    /// When the budget's next period begins.
    pub renewed_at: Option<Millis>,
}

/// A budget that a turn pauses for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedBudget {
    /// The key of the wait.
    pub wait: ReplayKey,
    /// The owner of the budget.
    pub account: BudgetAccount,
}

/// A reservation that is not settled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReservation {
    /// The key of the effect.
    pub key: ReplayKey,
    /// The reserved amount.
    pub amount_max: UsageAmount,
}

/// The budget accounts of a store.
pub trait BudgetStore: Send + Sync {
    /// Returns all accounts that were ever used or set, by name.
    fn budgets(&self, limit: usize) -> ResultFuture<'_, Vec<BudgetAccountView>>;

    /// Returns a page of these accounts, after the one with this organisation and name.
    fn budgets_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> ResultFuture<'_, Page<BudgetAccountView, (OrgId, String)>>;

    /// Returns whether an operator has set any budget. Cheap.
    fn budgets_are_set(&self) -> ResultFuture<'_, bool>;

    /// Returns the budgets that a turn pauses for.
    fn awaited_budgets(&self, turn: TurnId) -> ResultFuture<'_, Vec<AwaitedBudget>>;

    /// Returns the reservations of a turn that are not settled yet, by key.
    fn open_reservations(&self, turn: TurnId) -> ResultFuture<'_, Vec<OpenReservation>>;

    /// Sets a budget that overrides the agent's, or removes the override. Turns that pause for a budget try again.
    fn set_budget(&self, account: BudgetAccount, budget: Option<Budget>, now: Millis)
    -> ResultFuture<'_, ()>;
}
