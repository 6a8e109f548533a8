//! What turns wait for from outside: completions, approvals, and calls with an unknown outcome.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::list_page::{ListPage, PageParams};
use outlast_api::waits::{
    ApprovalResource, CompletionRequest, CompletionResult, DecisionRequest, OutcomeRequest,
    SettledCallResource, UnknownCallResource, VoteResult,
};
use outlast_http::caller::{Approves, Caller, Operates, Reads, Runs};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_runtime::policy::approvals::ApprovalCursor;
use outlast_vocab::CallId;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::policy::Approval;
use outlast_vocab::wait::CompletionKey;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(resolve))
        .routes(routes!(approvals))
        .routes(routes!(approval, decide))
        .routes(routes!(unknown))
        .routes(routes!(settle))
}

/// Complete a call or an event that a turn waits for.
///
/// You can also complete it before the turn starts to wait. The first result wins; later requests return it.
#[utoipa::path(post, path = "/v1/completions/{key}", tag = "waits", params(("key" = String, Path)),
    request_body = CompletionRequest, responses((status = 200, body = CompletionResult), ProblemResponses), security(("key" = ["run"])))]
async fn resolve(
    caller: Caller<Runs>,
    PathParam(key): PathParam<CompletionKey>,
    JsonBody(ending): JsonBody<CompletionRequest>,
) -> ApiResult<Json<CompletionResult>> {
    Ok(Json(caller.runtime.resolve(&key, ending.into()).await?.into()))
}

/// Returns the calls of all sessions that wait for approval, oldest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "waits", params(PageParams),
    responses((status = 200, body = ListPage<ApprovalResource>), ProblemResponses), security(("key" = ["read"])))]
async fn approvals(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(PageParams { limit, cursor }): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<ApprovalResource>>> {
    let limit = list_page::page_limit(limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "approvals");
    let after: Option<ApprovalCursor> = list_page::decode_cursor(cursor.as_deref(), &cursors)?;
    let (pending, next) =
        caller.runtime.approvals().pending_after(after, limit, caller.runtime.now()).await?;
    let next = next.map(|next| list_page::encode_cursor(&next, &cursors));
    Ok(Json(ListPage { items: pending.into_iter().map(ApprovalResource::from).collect(), next }))
}

/// Returns a call that waits for approval.
#[utoipa::path(get, path = "/v1/approvals/{approval}", tag = "waits", params(("approval" = String, Path)),
    responses((status = 200, body = ApprovalResource), ProblemResponses), security(("key" = ["read"])))]
async fn approval(
    caller: Caller<Reads>,
    PathParam(id): PathParam<ApprovalId>,
) -> ApiResult<Json<ApprovalResource>> {
    Ok(Json(caller.runtime.approvals().find(id).await?.into()))
}

/// Approve, edit or deny a call.
///
/// A denial decides immediately, and so does the last approval that is required. Later votes return the
/// decision.
#[utoipa::path(post, path = "/v1/approvals/{approval}", tag = "waits", params(("approval" = String, Path)),
    request_body = DecisionRequest, responses((status = 200, body = VoteResult), ProblemResponses), security(("key" = ["approve"])))]
async fn decide(
    caller: Caller<Approves>,
    PathParam(id): PathParam<ApprovalId>,
    JsonBody(decision): JsonBody<DecisionRequest>,
) -> ApiResult<Json<VoteResult>> {
    let caller = caller.acting_as(decision.by.as_deref())?;
    let by = caller.runtime.access().by.name();
    let approval = Approval::new(by, decision.verdict()?);
    Ok(Json(caller.runtime.approve(id, approval).await?.into()))
}

/// Returns the calls with an unknown outcome, oldest first.
///
/// The outcome of a call is unknown if the process died while the call ran.
#[utoipa::path(get, path = "/v1/unknown", tag = "waits", params(PageParams),
    responses((status = 200, body = ListPage<UnknownCallResource>), ProblemResponses), security(("key" = ["read"])))]
async fn unknown(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<UnknownCallResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "unknown");
    let (after, limit) = list_page::read(&most, &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(caller.runtime.store().unknown_after(after, limit).await?, &cursors)))
}

/// Set the outcome of a call with an unknown outcome.
///
/// The session then shows this outcome.
#[utoipa::path(post, path = "/v1/unknown/{call}", tag = "waits", params(("call" = String, Path)),
    request_body = OutcomeRequest, responses((status = 200, body = SettledCallResource), ProblemResponses), security(("key" = ["operate"])))]
async fn settle(
    caller: Caller<Operates>,
    PathParam(call): PathParam<CallId>,
    JsonBody(finding): JsonBody<OutcomeRequest>,
) -> ApiResult<Json<SettledCallResource>> {
    let session = caller.runtime.settle(call, finding.into()).await?;
    Ok(Json(SettledCallResource { session }))
}
