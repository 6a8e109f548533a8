//! Costs, budgets and rate limits.
use outlast_views::{BudgetAccountView, BudgetSetBy, CostTotals, EffectiveBudget, RateView};
use outlast_vocab::budget::{Budget, Percent, Period, UsageAmount};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::rate::RateState;
use outlast_vocab::{Millis, OrgId, SessionId};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Parameters of a cost report.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CostParams {
    /// How to group costs: `session`, `agent`, `model`, `source`, `tool`, `day` or `turn`. Defaults to
    /// `model`.
    pub by: Option<String>,
    /// Only include costs of this session.
    #[param(value_type = Option<String>)]
    pub session: Option<SessionId>,
    /// `day` splits the costs by day, in UTC. By default, all days are added up.
    #[param(value_type = Option<String>, example = "day")]
    pub per: Option<CostInterval>,
    /// The maximum number of items to return. Defaults to the maximum that the server allows.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    pub cursor: Option<String>,
}

/// The intervals by which costs can be split.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostInterval {
    /// A day, in UTC.
    Day,
}

/// The costs of one group.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Cost)]
pub struct CostResource {
    /// The day, in UTC. Absent unless `per` is `day`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-16")]
    pub day: Option<String>,
    /// The name of the group.
    pub name: String,
    /// The number of model replies.
    pub replies: u64,
    /// The tokens used.
    #[schema(value_type = Object)]
    pub usage: Usage,
    /// The cost in US dollars. Calls without a known price are not included.
    #[schema(value_type = String)]
    pub cost: Cost,
    /// The number of replies without a known price.
    pub unpriced: u64,
    /// The part of `cost` that is estimated, for model calls whose usage the provider did not report. Absent
    /// if it is zero.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(value_type = Option<String>)]
    pub estimated: Cost,
    /// The estimated part of `usage`. Absent if nothing is estimated.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(value_type = Option<Object>)]
    pub estimated_usage: Usage,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<CostResource> for CostTotals {
    fn from(resource: CostResource) -> Self {
        let CostResource { replies, usage, cost, unpriced, estimated, estimated_usage, .. } = resource;
        Self { replies, usage, cost, unpriced, estimated, estimated_usage }
    }
}

/// A budget and its usage.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetResource {
    /// The id of the organisation.
    #[schema(value_type = String)]
    pub org: OrgId,
    /// The owner of the budget, and the period if the budget is per day or month.
    pub name: String,
    /// The limits that an operator set. Absent if the agent's limits apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<BudgetLimits>,
    /// The limits that apply. Absent if nothing is limited any longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<BudgetLimits>,
    /// Who set the limits that apply: `operator`, or `agent` as declared when usage was last counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "agent")]
    pub limit_by: Option<BudgetSetBy>,
    /// The amount used, including `lost`.
    #[schema(value_type = Object)]
    pub spent: UsageAmount,
    /// The amount reserved for running effects.
    #[schema(value_type = Object)]
    pub held: UsageAmount,
    /// The part of `spent` that is assumed, because the real usage is unknown.
    #[schema(value_type = Object)]
    pub lost: UsageAmount,
}

/// The limits of a budget. A measure without a limit is unlimited.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetLimits {
    /// The maximum number of tokens that models read and write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The maximum cost in US dollars, such as `2.50`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub money: Option<Cost>,
    /// The maximum number of model and tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The maximum time for which turns run, in seconds. Time spent waiting is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_s: Option<u64>,
    /// The percentage of the budget at which a warning is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 100)]
    pub warn_at: Option<Percent>,
    /// The percentage of the budget at which turns pause until the budget is raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 100)]
    pub pause_at: Option<Percent>,
    /// The period after which usage restarts at zero: `day` or `month`, in UTC. If absent, usage never
    /// restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub per: Option<Period>,
}

impl From<Budget> for BudgetLimits {
    fn from(Budget { tokens, money, calls, time, warn_at, pause_at, per }: Budget) -> Self {
        Self { tokens, money, calls, time_s: time.map(|time| time.as_secs()), warn_at, pause_at, per }
    }
}

impl From<BudgetLimits> for Budget {
    fn from(BudgetLimits { tokens, money, calls, time_s, warn_at, pause_at, per }: BudgetLimits) -> Self {
        Self { tokens, money, calls, time: time_s.map(Duration::from_secs), warn_at, pause_at, per }
    }
}

impl From<BudgetAccountView> for BudgetResource {
    fn from(
        BudgetAccountView { org, name, operator_budget: set, effective: limit, spent, reserved: held, lost }: BudgetAccountView,
    ) -> Self {
        let (limit, limit_by) =
            limit.map(|EffectiveBudget { budget, by }| (BudgetLimits::from(budget), by)).unzip();
        Self { org, name, set: set.map(BudgetLimits::from), limit, limit_by, spent, held, lost }
    }
}

impl From<BudgetResource> for BudgetAccountView {
    fn from(account: BudgetResource) -> Self {
        let BudgetResource { org, name, set, limit, limit_by, spent, held, lost } = account;
        let limit = limit.zip(limit_by);
        Self {
            org,
            name,
            operator_budget: set.map(Budget::from),
            effective: limit.map(|(limit, by)| EffectiveBudget { budget: limit.into(), by }),
            spent,
            reserved: held,
            lost,
        }
    }
}

/// A rate limit for outgoing calls, and its state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RateLimit)]
pub struct RateLimitResource {
    /// The id of the organisation.
    #[schema(value_type = String)]
    pub org: OrgId,
    /// The name of the rate limit.
    pub name: String,
    /// The interval between two calls in microseconds, as of the last call.
    pub every_us: u64,
    /// The number of calls that may start at once.
    pub burst: u32,
    /// When the next call may start, as a Unix timestamp in microseconds.
    pub next_us: u64,
    /// The end of the queue of waiting calls, as a Unix timestamp in microseconds.
    pub line_us: u64,
    /// The number of admitted calls.
    pub taken: u64,
    /// The number of rejected calls.
    pub refused: u64,
    /// When the rate limit was last used, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub asked: Millis,
}

impl From<RateView> for RateLimitResource {
    fn from(RateView { org, name, every, burst, state, taken, refused, asked }: RateView) -> Self {
        let (next_us, line_us) = (state.next, state.queue_end);
        Self { org, name, every_us: every, burst, next_us, line_us, taken, refused, asked }
    }
}

impl From<RateLimitResource> for RateView {
    fn from(limit: RateLimitResource) -> Self {
        let RateLimitResource { org, name, every_us, burst, next_us, line_us, taken, refused, asked } = limit;
        let state = RateState { next: next_us, queue_end: line_us };
        Self { org, name, every: every_us, burst, state, taken, refused, asked }
    }
}
