//! Usage and limits: costs, budgets and rate limits.
use crate::Client;
use crate::http::{read, with_json};
use outlast_ports::budget::{Limit, LimitBy, PurseView};
use outlast_ports::rate::RateView;
use outlast_runtime::costs::{By, Spent};
use outlast_vocab::budget::{Amount, Budget, Percent, Period, Purse};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::rate;
use outlast_vocab::{Error, Millis, OrgId, SessionId};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize)]
struct Spending {
    name: String,
    replies: u64,
    usage: Usage,
    cost: Cost,
    unpriced: u64,
    #[serde(default)]
    estimated: Cost,
}

#[derive(Deserialize)]
struct Standing {
    org: OrgId,
    name: String,
    set: Option<Bounds>,
    #[serde(default)]
    limit: Option<Bounds>,
    #[serde(default)]
    limit_by: Option<LimitBy>,
    spent: Amount,
    held: Amount,
    lost: Amount,
}

/// A budget in the format of the API.
#[derive(Deserialize, Serialize)]
struct Bounds {
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

impl From<Budget> for Bounds {
    fn from(Budget { tokens, money, calls, time, warn_at, pause_at, per }: Budget) -> Self {
        Self { tokens, money, calls, time_s: time.map(|time| time.as_secs()), warn_at, pause_at, per }
    }
}

impl From<Bounds> for Budget {
    fn from(Bounds { tokens, money, calls, time_s, warn_at, pause_at, per }: Bounds) -> Self {
        Self { tokens, money, calls, time: time_s.map(Duration::from_secs), warn_at, pause_at, per }
    }
}

impl From<Standing> for PurseView {
    fn from(Standing { org, name, set, limit, limit_by, spent, held, lost }: Standing) -> Self {
        let limit = limit.zip(limit_by).map(|(bounds, by)| Limit { budget: bounds.into(), by });
        Self { org, name, set: set.map(Budget::from), limit, spent, held, lost }
    }
}

#[derive(Deserialize)]
struct Paced {
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

impl From<Paced> for RateView {
    fn from(paced: Paced) -> Self {
        let Paced { org, name, every_us, burst, next_us, line_us, taken, refused, asked } = paced;
        let standing = rate::Standing { next: next_us, line: line_us };
        Self { org, name, every: every_us, burst, standing, taken, refused, asked }
    }
}

impl Client {
    /// Returns the total costs of models and tools.
    pub async fn spent(&self, session: Option<SessionId>, by: By) -> Result<BTreeMap<String, Spent>, Error> {
        let mut query = vec![("by", by.name().to_owned())];
        query.extend(session.map(|session| ("session", session.to_string())));
        let spending: Vec<Spending> = self.list(&["v1", "cost"], &query, usize::MAX).await?;
        let spent = |Spending { name, replies, usage, cost, unpriced, estimated }: Spending| {
            (name, Spent { replies, usage, cost, unpriced, estimated })
        };
        Ok(spending.into_iter().map(spent).collect())
    }

    /// Lists all budgets that were ever used or set, by name.
    pub async fn budgets(&self) -> Result<Vec<PurseView>, Error> {
        let budgets: Vec<Standing> = self.list(&["v1", "budgets"], &[], usize::MAX).await?;
        Ok(budgets.into_iter().map(PurseView::from).collect())
    }

    /// Lists all rate limits that ever applied to a call, by name.
    pub async fn rates(&self) -> Result<Vec<RateView>, Error> {
        let rates: Vec<Paced> = self.list(&["v1", "rates"], &[], usize::MAX).await?;
        Ok(rates.into_iter().map(RateView::from).collect())
    }

    /// Sets a budget.
    pub async fn set_budget(&self, of: &Purse, budget: Budget) -> Result<(), Error> {
        let request = self.request(Method::PUT, &["v1", "budgets", &of.to_string()], &[]);
        read(self.send(with_json(request, &Bounds::from(budget))?).await?).await
    }

    /// Resets a budget to the setting of its agent.
    pub async fn clear_budget(&self, of: &Purse) -> Result<(), Error> {
        self.delete(&["v1", "budgets", &of.to_string()]).await
    }
}
