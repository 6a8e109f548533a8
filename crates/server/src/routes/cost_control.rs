//! Costs, budgets and rate limits.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_http::caller::{Caller, Operates, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page::{self, ListPage, PageParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::store::Store;
use outlast_runtime::Runtime;
use outlast_runtime::views::costs;
use outlast_views::{BudgetAccountView, BudgetSetBy, CostDimension, CostTotals, EffectiveBudget, RateView};
use outlast_vocab::access::Scope;
use outlast_vocab::budget::{Budget, BudgetAccount, Percent, Period, UsageAmount};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::{Error, Kind, Millis, OrgId, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(cost))
        .routes(routes!(budgets))
        .routes(routes!(set, clear))
        .routes(routes!(rates))
}

/// Parameters of a cost report.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CostParams {
    /// How to group costs: `session`, `agent`, `model`, `source`, `tool`, `day` or `turn`. Defaults to
    /// `model`.
    by: Option<String>,
    /// Only include costs of this session.
    #[param(value_type = Option<String>)]
    session: Option<SessionId>,
    /// `day` splits the costs by day, in UTC. By default, all days are added up.
    #[param(value_type = Option<String>, example = "day")]
    per: Option<CostInterval>,
    /// The maximum number of items to return. Defaults to the maximum that the server allows.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    cursor: Option<String>,
}

/// The intervals by which costs can be split.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CostInterval {
    Day,
}

/// The costs of one group.
#[derive(Serialize, ToSchema)]
#[schema(as = Cost)]
pub(crate) struct CostResource {
    /// The day, in UTC. Absent unless `per` is `day`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-16")]
    day: Option<String>,
    /// The name of the group.
    name: String,
    /// The number of model replies.
    replies: u64,
    /// The tokens used.
    #[schema(value_type = Object)]
    usage: Usage,
    /// The cost in US dollars. Calls without a known price are not included.
    #[schema(value_type = String)]
    cost: Cost,
    /// The number of replies without a known price.
    unpriced: u64,
    /// The part of `cost` that is estimated: the maximum that cancelled model calls could have cost. Absent
    /// if nothing is estimated.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(value_type = Option<String>)]
    estimated: Cost,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(cost: &Cost) -> bool {
    *cost == Cost::ZERO
}

impl From<(CostPosition, CostTotals)> for CostResource {
    fn from((CostPosition { day, name, .. }, spent): (CostPosition, CostTotals)) -> Self {
        let CostTotals { replies, usage, cost, unpriced, estimated } = spent;
        Self { day, name, replies, usage, cost, unpriced, estimated }
    }
}

/// The sort key of a cost row, and a position in the list.
#[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct CostPosition {
    /// The session, if turns are listed by session.
    session: Option<SessionId>,
    day: Option<String>,
    name: String,
}

/// Returns what models and tools cost.
///
/// The costs are computed from the journal. Each request reads the records that were written since the last
/// one.
#[utoipa::path(get, path = "/v1/cost", tag = "books", params(CostParams),
    responses((status = 200, body = ListPage<CostResource>), ProblemResponses), security(("key" = ["read"])))]
async fn cost(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(CostParams { by, session, per, limit, cursor }): QueryParams<CostParams>,
) -> ApiResult<Json<ListPage<CostResource>>> {
    let by = parse_grouping(by.as_deref().unwrap_or("model"))?;
    let reach = caller.runtime.access().reach;
    let cursors = CursorSigner::of(&shared.secret, reach, "cost");
    let most = PageParams { limit, cursor }.or_max_limit(&shared.http.limits);
    let (after, limit): (Option<CostPosition>, usize) = most.read(&cursors, &shared.http.limits)?;
    let store = caller.runtime.store().as_ref();
    let rows = match (session, by) {
        (Some(session), by) => cost_rows(None, per, costs::daily(store, Some(session), by).await?),
        (None, CostDimension::Turn) => {
            let sums =
                shared.cost_cache.sums_within(&shared.http.runtime, reach, &shared.http.limits).await?;
            let first = after.as_ref().and_then(|after| after.session);
            let sessions = sums.sessions_from(first.unwrap_or(SessionId::from_u128(0)));
            turn_costs(store, sessions, per, after.as_ref(), limit).await?
        }
        (None, by) => {
            let sums =
                shared.cost_cache.sums_within(&shared.http.runtime, reach, &shared.http.limits).await?;
            cost_rows(None, per, sums.daily(by))
        }
    };
    let behind = rows.into_iter().filter(|(place, _)| after.as_ref().is_none_or(|after| place > after));
    let mut rows: Vec<(CostPosition, CostTotals)> = behind.take(limit + 1).collect();
    let there_is_more = rows.len() > limit;
    rows.truncate(limit);
    let next =
        rows.last().filter(|_| there_is_more).map(|(place, _)| list_page::encode_cursor(place, &cursors));
    Ok(Json(ListPage { items: rows.into_iter().map(CostResource::from).collect(), next }))
}

/// Returns the costs in the order of the list.
fn cost_rows(
    session: Option<SessionId>,
    per: Option<CostInterval>,
    daily: BTreeMap<(String, String), CostTotals>,
) -> BTreeMap<CostPosition, CostTotals> {
    let place = |day, name| CostPosition { session, day, name };
    match per {
        Some(CostInterval::Day) => {
            daily.into_iter().map(|((day, name), spent)| (place(Some(day), name), spent)).collect()
        }
        None => costs::over_days(daily).into_iter().map(|(name, spent)| (place(None, name), spent)).collect(),
    }
}

/// Returns the costs of turns, session by session, until there are more than fit on a page.
async fn turn_costs(
    store: &dyn Store,
    sessions: BTreeSet<SessionId>,
    per: Option<CostInterval>,
    after: Option<&CostPosition>,
    limit: usize,
) -> Result<BTreeMap<CostPosition, CostTotals>, Error> {
    let mut found = BTreeMap::new();
    for session in sessions {
        match costs::daily(store, Some(session), CostDimension::Turn).await {
            // The session was deleted meanwhile.
            Err(error) if error.kind() == Kind::SessionNotFound => {}
            daily => {
                let rows = cost_rows(Some(session), per, daily?).into_iter();
                found.extend(rows.filter(|(place, _)| after.is_none_or(|after| place > after)));
            }
        }
        if found.len() > limit {
            break;
        }
    }
    Ok(found)
}

fn parse_grouping(by: &str) -> Result<CostDimension, Error> {
    CostDimension::ALL.into_iter().find(|named| named.name() == by).ok_or_else(|| {
        let names = CostDimension::ALL.map(CostDimension::name).join(", ");
        Error::new(Kind::InputInvalid, format!("expected one of {names}, got `{by}`"))
    })
}

/// A budget and its usage.
#[derive(Serialize, ToSchema)]
#[schema(as = Budget)]
pub(crate) struct BudgetResource {
    /// The id of the organisation.
    #[schema(value_type = String)]
    org: OrgId,
    /// The owner of the budget, and the period if the budget is per day or month.
    name: String,
    /// The limits that an operator set. Absent if the agent's limits apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<BudgetLimits>,
    /// The limits that apply. Absent if nothing is limited any longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<BudgetLimits>,
    /// Who set the limits that apply: `operator`, or `agent` as declared when usage was last counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "agent")]
    limit_by: Option<BudgetSetBy>,
    /// The amount used, including `lost`.
    #[schema(value_type = Object)]
    spent: UsageAmount,
    /// The amount reserved for running effects.
    #[schema(value_type = Object)]
    held: UsageAmount,
    /// The part of `spent` that is assumed, because the real usage is unknown.
    #[schema(value_type = Object)]
    lost: UsageAmount,
}

/// The limits of a budget. A measure without a limit is unlimited.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetLimits {
    /// The maximum number of tokens that models read and write.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// The maximum cost in US dollars, such as `2.50`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    money: Option<Cost>,
    /// The maximum number of model and tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    /// The maximum time for which turns run, in seconds. Time spent waiting is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_s: Option<u64>,
    /// The percentage of the budget at which a warning is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 100)]
    warn_at: Option<Percent>,
    /// The percentage of the budget at which turns pause until the budget is raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u8>, minimum = 1, maximum = 100)]
    pause_at: Option<Percent>,
    /// The period after which usage restarts at zero: `day` or `month`, in UTC. If absent, usage never
    /// restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    per: Option<Period>,
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

/// Returns all budgets that were ever used or set, by name.
#[utoipa::path(get, path = "/v1/budgets", tag = "books", params(PageParams),
    responses((status = 200, body = ListPage<BudgetResource>), ProblemResponses), security(("key" = ["read"])))]
async fn budgets(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<BudgetResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "budgets");
    let (after, limit) = most.or_max_limit(&shared.http.limits).read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(caller.runtime.store().budgets_after(after, limit).await?, &cursors)))
}

/// A rate limit for outgoing calls, and its state.
#[derive(Serialize, ToSchema)]
#[schema(as = RateLimit)]
pub(crate) struct RateLimitResource {
    /// The id of the organisation.
    #[schema(value_type = String)]
    org: OrgId,
    /// The name of the rate limit.
    name: String,
    /// The interval between two calls in microseconds, as of the last call.
    every_us: u64,
    /// The number of calls that may start at once.
    burst: u32,
    /// When the next call may start, as a Unix timestamp in microseconds.
    next_us: u64,
    /// The end of the queue of waiting calls, as a Unix timestamp in microseconds.
    line_us: u64,
    /// The number of admitted calls.
    taken: u64,
    /// The number of rejected calls.
    refused: u64,
    /// When the rate limit was last used, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    asked: Millis,
}

impl From<RateView> for RateLimitResource {
    fn from(RateView { org, name, every, burst, state: standing, taken, refused, asked }: RateView) -> Self {
        let (next_us, line_us) = (standing.next, standing.queue_end);
        Self { org, name, every_us: every, burst, next_us, line_us, taken, refused, asked }
    }
}

/// Returns all rate limits that ever applied to a call, by name.
#[utoipa::path(get, path = "/v1/rates", tag = "books", params(PageParams),
    responses((status = 200, body = ListPage<RateLimitResource>), ProblemResponses), security(("key" = ["read"])))]
async fn rates(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<RateLimitResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "rates");
    let (after, limit) = most.or_max_limit(&shared.http.limits).read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(caller.runtime.store().rates_after(after, limit).await?, &cursors)))
}

/// Set the limits of a budget.
///
/// The limits override those of the agent. Turns that wait for the budget continue if it has room. Setting
/// the budget of an organisation requires a key of the default organisation with the scope `admin`.
#[utoipa::path(put, path = "/v1/budgets/{of}", tag = "books",
    params(("of" = String, Path, description = "The owner of the budget: `agent:NAME`, or the id of a turn, a session or an organisation.")),
    request_body = BudgetLimits, responses((status = 204, description = "The limits are set."), ProblemResponses), security(("key" = ["operate"])))]
async fn set(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
    PathParam(of): PathParam<BudgetAccount>,
    JsonBody(bounds): JsonBody<BudgetLimits>,
) -> ApiResult<StatusCode> {
    let budget = Budget::from(bounds);
    if budget.is_empty() {
        let detail = "a budget bounds something; expected `tokens`, `money`, `calls` or `time_s`";
        return Err(Error::new(Kind::InputInvalid, detail).into());
    }
    budget_setter(&of, &caller, &shared)?.set_budget(of, Some(budget)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remove the limits that an operator set.
///
/// The limits of the agent apply again. An organisation then has no budget. Removing the budget of an
/// organisation requires a key of the default organisation with the scope `admin`.
#[utoipa::path(delete, path = "/v1/budgets/{of}", tag = "books", params(("of" = String, Path)),
    responses((status = 204, description = "The limits of the agent apply again."), ProblemResponses), security(("key" = ["operate"])))]
async fn clear(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
    PathParam(of): PathParam<BudgetAccount>,
) -> ApiResult<StatusCode> {
    budget_setter(&of, &caller, &shared)?.set_budget(of, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the worker handle that may set this budget. Only the operator may set the budget of an
/// organisation, so that none can raise its own.
fn budget_setter(
    of: &BudgetAccount,
    caller: &Caller<Operates>,
    shared: &ServerState,
) -> Result<Runtime, Error> {
    match of {
        BudgetAccount::Org(_) => {
            caller.runtime.access().require(Scope::Admin)?;
            caller.operator(&shared.http, "budgets of organisations are the operator's")
        }
        BudgetAccount::Turn(_) | BudgetAccount::Session(_) | BudgetAccount::Agent(_) => {
            Ok(caller.runtime.clone())
        }
    }
}
