//! Budgets and rate limits, with what is used of them.
use outlast_vocab::Millis;
use outlast_vocab::budget::{Budget, UsageAmount};
use outlast_vocab::id::OrgId;
use outlast_vocab::rate::RateState;
use serde::{Deserialize, Serialize};

/// A budget account, as queries return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetAccountView {
    /// The organisation.
    pub org: OrgId,
    /// The name of the owner within the organisation, and of the period if the budget is per day or month.
    pub name: String,
    /// The budget that an operator set. `None` if the agent's budget applies.
    pub operator_budget: Option<Budget>,
    /// The budget that applies. `None` if nothing is limited any longer.
    pub effective: Option<EffectiveBudget>,
    /// The amount used, including `lost`.
    pub spent: UsageAmount,
    /// The amount reserved for running effects.
    pub reserved: UsageAmount,
    /// The part of `spent` that is assumed because the real usage is unknown.
    pub lost: UsageAmount,
}

/// A budget that applies, with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveBudget {
    /// The budget.
    pub budget: Budget,
    /// Who set it.
    pub by: BudgetSetBy,
}

/// Who set a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetSetBy {
    /// An operator, overriding the agent.
    Operator,
    /// The agent, as declared when usage was last counted.
    Agent,
}

/// A rate and its current state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateView {
    /// The organisation.
    pub org: OrgId,
    /// Its name.
    pub name: String,
    /// Microseconds between two calls, as of the last request.
    pub every: u64,
    /// The maximum number of calls at once.
    pub burst: u32,
    /// When the next call fits, and where the queue ends.
    pub state: RateState,
    /// The number of admitted calls.
    pub taken: u64,
    /// The number of rejected calls.
    pub refused: u64,
    /// When it was last used.
    pub asked: Millis,
}

impl RateView {
    /// Creates the view of a rate that was never used.
    pub fn unused(org: OrgId, name: &str) -> Self {
        let name = name.to_owned();
        let state = RateState::default();
        Self { org, name, every: 0, burst: 1, state, taken: 0, refused: 0, asked: Millis(0) }
    }

    /// Returns how many calls could start at this time.
    pub fn calls_available(&self, now: Millis) -> u32 {
        let ahead = now.0.saturating_mul(1_000).checked_sub(self.state.next.max(self.state.queue_end));
        let available = ahead.map_or(0, |ahead| ahead / self.every.max(1) + 1);
        u32::try_from(available).unwrap_or(u32::MAX).min(self.burst)
    }
}
