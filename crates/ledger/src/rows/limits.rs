//! Limits: budget accounts with their reservations, and rate limits.
use super::RowAccess;
use outlast_ports::turns::TurnNo;
use outlast_views::RateView;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::budget::{Budget, UsageAmount};
use outlast_vocab::id::OrgId;
use outlast_vocab::key::ReplayKey;

/// A budget account: what the owner of a budget may use and has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetAccountRow {
    /// The organisation.
    pub org: OrgId,
    /// The name of the owner within the organisation, and of the period if the budget is per day or month.
    pub name: String,
    /// The budget that an operator set.
    pub operator_budget: Option<Budget>,
    /// The budget that the agent declared when usage was last counted.
    pub agent_budget: Option<Budget>,
    /// The amount used.
    pub spent: UsageAmount,
    /// The amount reserved.
    pub reserved: UsageAmount,
    /// The part of `spent` that is assumed because the real usage is unknown.
    pub lost: UsageAmount,
    /// The maximum amount that reading a session's conversation once more takes.
    pub conversation_cost: UsageAmount,
}

impl BudgetAccountRow {
    /// Creates an account without usage.
    pub fn empty(org: OrgId, name: &str) -> Self {
        let (name, none) = (name.to_owned(), UsageAmount::ZERO);
        Self {
            org,
            name,
            operator_budget: None,
            agent_budget: None,
            spent: none,
            reserved: none,
            lost: none,
            conversation_cost: none,
        }
    }
}

/// A budget reservation for an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRow {
    /// The turn.
    pub turn: TurnNo,
    /// The effect.
    pub key: ReplayKey,
    /// The maximum amount that the effect may use.
    pub amount_max: UsageAmount,
    /// The names of the accounts in which the amount is reserved.
    pub accounts: Vec<String>,
}

/// Reads budget accounts, reservations and rate limits.
pub trait LimitRows: RowAccess {
    /// Returns one budget account.
    fn budget_account(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error>;
    /// Returns the budget reservations of a turn, by key.
    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error>;
    /// Returns one rate limit.
    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error>;
}

/// Lists budget accounts and rate limits.
pub trait LimitQueries: LimitRows {
    /// Returns budget accounts after a given one, by ascending organisation and name.
    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error>;
    /// Returns whether an operator has set any budget.
    fn budgets_are_set(&self) -> Result<bool, Error>;
    /// Returns rate limits after a given one, by ascending organisation and name.
    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<RateView>, Error>;
}

/// Writes budget accounts, reservations and rate limits.
pub trait LimitWrites: LimitRows {
    /// Inserts or replaces a budget account.
    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error>;
    /// Deletes a budget account if it exists.
    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error>;
    /// Inserts or replaces a budget reservation.
    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error>;
    /// Deletes a budget reservation.
    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Inserts or replaces a rate limit.
    fn put_rate(&mut self, row: &RateView) -> Result<(), Error>;
}
