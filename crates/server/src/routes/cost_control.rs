//! Costs, budgets and rate limits.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_api::costs::{
    BudgetLimits, BudgetResource, CostInterval, CostParams, CostResource, RateLimitResource,
};
use outlast_api::list_page::{ListPage, PageParams};
use outlast_http::caller::{Caller, Operates, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::store::Store;
use outlast_runtime::Runtime;
use outlast_runtime::views::costs;
use outlast_views::{CostDimension, CostTotals};
use outlast_vocab::access::Scope;
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::{Error, Kind, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

fn cost_resource(position: CostPosition, totals: &CostTotals) -> CostResource {
    let CostPosition { day, name, .. } = position;
    let CostTotals { replies, usage, cost, unpriced, estimated, estimated_usage } = *totals;
    CostResource { day, name, replies, usage, cost, unpriced, estimated, estimated_usage }
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
#[utoipa::path(get, path = "/v1/cost", tag = "costs", params(CostParams),
    responses((status = 200, body = ListPage<CostResource>), ProblemResponses), security(("key" = ["read"])))]
async fn cost(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(CostParams { by, session, per, limit, cursor }): QueryParams<CostParams>,
) -> ApiResult<Json<ListPage<CostResource>>> {
    let by = parse_grouping(by.as_deref().unwrap_or("model"))?;
    let visibility = caller.runtime.access().visibility;
    let cursors = CursorSigner::of(&shared.secret, visibility, "cost");
    let most = PageParams { limit, cursor }.or_max_limit(&shared.http.limits);
    let (after, limit): (Option<CostPosition>, usize) =
        list_page::read(&most, &cursors, &shared.http.limits)?;
    let store = caller.runtime.store().as_ref();
    let rows = match (session, by) {
        (Some(session), by) => cost_rows(None, per, costs::daily(store, Some(session), by).await?),
        (None, CostDimension::Turn) => {
            let sums =
                shared.cost_cache.sums_within(&shared.http.runtime, visibility, &shared.http.limits).await?;
            let first = after.as_ref().and_then(|after| after.session);
            let sessions = sums.sessions_from(first.unwrap_or(SessionId::from_u128(0)));
            turn_costs(store, sessions, per, after.as_ref(), limit).await?
        }
        (None, by) => {
            let sums =
                shared.cost_cache.sums_within(&shared.http.runtime, visibility, &shared.http.limits).await?;
            cost_rows(None, per, sums.daily(by))
        }
    };
    let behind = rows.into_iter().filter(|(place, _)| after.as_ref().is_none_or(|after| place > after));
    let mut rows: Vec<(CostPosition, CostTotals)> = behind.take(limit + 1).collect();
    let there_is_more = rows.len() > limit;
    rows.truncate(limit);
    let next =
        rows.last().filter(|_| there_is_more).map(|(place, _)| list_page::encode_cursor(place, &cursors));
    let items = rows.into_iter().map(|(position, totals)| cost_resource(position, &totals)).collect();
    Ok(Json(ListPage { items, next }))
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

/// Returns all budgets that were ever used or set, by name.
#[utoipa::path(get, path = "/v1/budgets", tag = "costs", params(PageParams),
    responses((status = 200, body = ListPage<BudgetResource>), ProblemResponses), security(("key" = ["read"])))]
async fn budgets(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<BudgetResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "budgets");
    let (after, limit) =
        list_page::read(&most.or_max_limit(&shared.http.limits), &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(caller.runtime.store().budgets_after(after, limit).await?, &cursors)))
}

/// Returns all rate limits that ever applied to a call, by name.
#[utoipa::path(get, path = "/v1/rates", tag = "costs", params(PageParams),
    responses((status = 200, body = ListPage<RateLimitResource>), ProblemResponses), security(("key" = ["read"])))]
async fn rates(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<RateLimitResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "rates");
    let (after, limit) =
        list_page::read(&most.or_max_limit(&shared.http.limits), &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(caller.runtime.store().rates_after(after, limit).await?, &cursors)))
}

/// Set the limits of a budget.
///
/// The limits override those of the agent. Turns that wait for the budget continue if it has room. Setting
/// the budget of an organisation requires a key of the default organisation with the scope `admin`.
#[utoipa::path(put, path = "/v1/budgets/{of}", tag = "costs",
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
        let detail = "a budget needs a limit; expected `tokens`, `money`, `calls` or `time_s`";
        return Err(Error::new(Kind::InputInvalid, detail).into());
    }
    budget_setter(&of, &caller, &shared)?.set_budget(of, Some(budget)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Remove the limits that an operator set.
///
/// The limits of the agent apply again. An organisation then has no budget. Removing the budget of an
/// organisation requires a key of the default organisation with the scope `admin`.
#[utoipa::path(delete, path = "/v1/budgets/{of}", tag = "costs", params(("of" = String, Path)),
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
            caller.operator(&shared.http, "only the operator may set budgets of organisations")
        }
        BudgetAccount::Turn(_) | BudgetAccount::Session(_) | BudgetAccount::Agent(_) => {
            Ok(caller.runtime.clone())
        }
    }
}
