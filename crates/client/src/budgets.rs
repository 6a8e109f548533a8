//! Usage and limits: costs, budgets and rate limits.
use crate::Client;
use crate::http::{parse_json, with_json};
use outlast_views::{BudgetAccountView, BudgetSetBy, CostDimension, CostTotals, EffectiveBudget, RateView};
use outlast_vocab::budget::{Budget, BudgetAccount, Percent, Period, UsageAmount};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::rate;
use outlast_vocab::{Error, Millis, OrgId, SessionId};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize)]
struct SpendingJson {
    name: String,
    replies: u64,
    usage: Usage,
    cost: Cost,
    unpriced: u64,
    #[serde(default)]
    estimated: Cost,
}

#[derive(Deserialize)]
struct BudgetAccountJson {
    org: OrgId,
    name: String,
    set: Option<BudgetJson>,
    #[serde(default)]
    limit: Option<BudgetJson>,
    #[serde(default)]
    limit_by: Option<BudgetSetBy>,
    spent: UsageAmount,
    held: UsageAmount,
    lost: UsageAmount,
}

/// A budget in the format of the API.
#[derive(Deserialize, Serialize)]
struct BudgetJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    money: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warn_at: Option<Percent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_at: Option<Percent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<Period>,
}

impl From<Budget> for BudgetJson {
    fn from(Budget { tokens, money, calls, time, warn_at, pause_at, per }: Budget) -> Self {
        Self { tokens, money, calls, time_s: time.map(|time| time.as_secs()), warn_at, pause_at, per }
    }
}

impl From<BudgetJson> for Budget {
    fn from(BudgetJson { tokens, money, calls, time_s, warn_at, pause_at, per }: BudgetJson) -> Self {
        Self { tokens, money, calls, time: time_s.map(Duration::from_secs), warn_at, pause_at, per }
    }
}

impl From<BudgetAccountJson> for BudgetAccountView {
    fn from(
        BudgetAccountJson { org, name, set, limit, limit_by, spent, held, lost }: BudgetAccountJson,
    ) -> Self {
        let limit = limit.zip(limit_by).map(|(bounds, by)| EffectiveBudget { budget: bounds.into(), by });
        Self {
            org,
            name,
            operator_budget: set.map(Budget::from),
            effective: limit,
            spent,
            reserved: held,
            lost,
        }
    }
}

#[derive(Deserialize)]
struct RateLimitJson {
    org: OrgId,
    name: String,
    every_us: u64,
    burst: u32,
    next_us: u64,
    line_us: u64,
    taken: u64,
    refused: u64,
    asked: Millis,
}

impl From<RateLimitJson> for RateView {
    fn from(paced: RateLimitJson) -> Self {
        let RateLimitJson { org, name, every_us, burst, next_us, line_us, taken, refused, asked } = paced;
        let standing = rate::RateState { next: next_us, queue_end: line_us };
        Self { org, name, every: every_us, burst, state: standing, taken, refused, asked }
    }
}

impl Client {
    /// Returns the total costs of models and tools.
    pub async fn spending(
        &self,
        session: Option<SessionId>,
        by: CostDimension,
    ) -> Result<BTreeMap<String, CostTotals>, Error> {
        let mut query = vec![("by", by.name().to_owned())];
        query.extend(session.map(|session| ("session", session.to_string())));
        let spending: Vec<SpendingJson> = self.list(&["v1", "cost"], &query, usize::MAX).await?;
        let spent = |SpendingJson { name, replies, usage, cost, unpriced, estimated }: SpendingJson| {
            (name, CostTotals { replies, usage, cost, unpriced, estimated })
        };
        Ok(spending.into_iter().map(spent).collect())
    }

    /// Lists all budgets that were ever used or set, by name.
    pub async fn budgets(&self) -> Result<Vec<BudgetAccountView>, Error> {
        let budgets: Vec<BudgetAccountJson> = self.list(&["v1", "budgets"], &[], usize::MAX).await?;
        Ok(budgets.into_iter().map(BudgetAccountView::from).collect())
    }

    /// Lists all rate limits that ever applied to a call, by name.
    pub async fn rates(&self) -> Result<Vec<RateView>, Error> {
        let rates: Vec<RateLimitJson> = self.list(&["v1", "rates"], &[], usize::MAX).await?;
        Ok(rates.into_iter().map(RateView::from).collect())
    }

    /// Sets a budget.
    pub async fn set_budget(&self, of: &BudgetAccount, budget: Budget) -> Result<(), Error> {
        let request = self.request(Method::PUT, &["v1", "budgets", &of.to_string()], &[]);
        parse_json(self.send(with_json(request, &BudgetJson::from(budget))?).await?).await
    }

    /// Resets a budget to the setting of its agent.
    pub async fn clear_budget(&self, of: &BudgetAccount) -> Result<(), Error> {
        self.delete(&["v1", "budgets", &of.to_string()]).await
    }
}
