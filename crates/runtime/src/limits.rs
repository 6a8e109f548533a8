//! Limits what turns use: budgets, rate limits of tools and providers, provider outages, and the work of validation.

pub(crate) mod budget_meter;
pub(crate) mod fair_permits;
pub(crate) mod operator_budgets;
pub mod provider_health;
pub mod provider_limits;
pub(crate) mod reply_bound;
pub(crate) mod tool_limits;
pub(crate) mod validation;
mod wake_up_queue;
