//! Usage and limits: costs, budgets and rate limits.
use crate::Client;
use crate::http::{parse_json, with_json};
use outlast_api::costs::{BudgetLimits, BudgetResource, CostParams, CostResource, RateLimitResource};
use outlast_views::{BudgetAccountView, CostDimension, CostTotals, RateView};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::{Error, SessionId};
use reqwest::Method;
use std::collections::BTreeMap;

impl Client {
    /// Returns the total costs of models and tools.
    pub async fn spending(
        &self,
        session: Option<SessionId>,
        by: CostDimension,
    ) -> Result<BTreeMap<String, CostTotals>, Error> {
        let params = CostParams { by: Some(by.name().to_owned()), session, ..CostParams::default() };
        let costs: Vec<CostResource> = self.list(&["v1", "cost"], &params, usize::MAX).await?;
        let named = |mut cost: CostResource| (std::mem::take(&mut cost.name), cost.into());
        Ok(costs.into_iter().map(named).collect())
    }

    /// Lists all budgets that were ever used or set, by name.
    pub async fn budgets(&self) -> Result<Vec<BudgetAccountView>, Error> {
        let budgets: Vec<BudgetResource> = self.list(&["v1", "budgets"], &(), usize::MAX).await?;
        Ok(budgets.into_iter().map(BudgetAccountView::from).collect())
    }

    /// Lists all rate limits that ever applied to a call, by name.
    pub async fn rates(&self) -> Result<Vec<RateView>, Error> {
        let rates: Vec<RateLimitResource> = self.list(&["v1", "rates"], &(), usize::MAX).await?;
        Ok(rates.into_iter().map(RateView::from).collect())
    }

    /// Sets a budget.
    pub async fn set_budget(&self, of: &BudgetAccount, budget: Budget) -> Result<(), Error> {
        let request = self.request(Method::PUT, &["v1", "budgets", &of.to_string()], &());
        parse_json(self.send(with_json(request, &BudgetLimits::from(budget))?).await?).await
    }

    /// Resets a budget to the setting of its agent.
    pub async fn clear_budget(&self, of: &BudgetAccount) -> Result<(), Error> {
        self.delete(&["v1", "budgets", &of.to_string()]).await
    }
}
