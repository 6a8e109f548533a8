//! API keys of the caller's organisation, and its audit.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_api::access::{ApiKeyResource, AuditEntryResource, AuditParams, IssuedApiKey, NewApiKey};
use outlast_api::list_page::{ListPage, PageParams};
use outlast_http::caller::{Administers, Caller};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_runtime::worker::keys::ApiKeyGrant;
use outlast_views::AuditRange;
use outlast_vocab::Millis;
use outlast_vocab::id::KeyId;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(keys, create)).routes(routes!(revoke)).routes(routes!(audit))
}

/// Returns the API keys of the organisation, oldest first.
#[utoipa::path(get, path = "/v1/keys", tag = "access", params(PageParams),
    responses((status = 200, body = ListPage<ApiKeyResource>), ProblemResponses), security(("key" = ["admin"])))]
async fn keys(
    caller: Caller<Administers>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<ApiKeyResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "keys");
    let (after, limit) =
        list_page::read(&most.or_max_limit(&shared.http.limits), &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(caller.runtime.store().keys_after(after, limit).await?, &cursors)))
}

/// Create an API key.
///
/// The key cannot have scopes that the caller does not have.
#[utoipa::path(post, path = "/v1/keys", tag = "access", request_body = NewApiKey,
    responses((status = 201, body = IssuedApiKey), ProblemResponses), security(("key" = ["admin"])))]
async fn create(
    caller: Caller<Administers>,
    State(shared): State<ServerState>,
    JsonBody(NewApiKey { by, scopes, expires_in_s, org }): JsonBody<NewApiKey>,
) -> ApiResult<(StatusCode, Json<IssuedApiKey>)> {
    let expires = expires_in_s.map(|seconds| caller.runtime.now().after(Duration::from_secs(seconds)));
    let (runtime, org) = match org {
        Some(named) => {
            let operator =
                caller.operator(&shared.http, "only the operator may manage keys of other organisations")?;
            let org = operator.find_org(&named).await?;
            (operator, org)
        }
        None => (caller.runtime.clone(), caller.runtime.access().visibility.home()),
    };
    let key = runtime.issue_key(ApiKeyGrant { org, by, scopes, expires }).await?;
    Ok((StatusCode::CREATED, Json(IssuedApiKey { id: key.id, key: key.reveal() })))
}

/// Revoke an API key, effective immediately.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "access", params(("key" = String, Path)),
    responses((status = 200, body = ApiKeyResource), ProblemResponses), security(("key" = ["admin"])))]
async fn revoke(
    caller: Caller<Administers>,
    PathParam(key): PathParam<KeyId>,
) -> ApiResult<Json<ApiKeyResource>> {
    Ok(Json(caller.runtime.store().revoke_key(key, caller.runtime.now()).await?.into()))
}

/// Returns the audit log, oldest entry first.
#[utoipa::path(get, path = "/v1/audit", tag = "access", params(AuditParams),
    responses((status = 200, body = ListPage<AuditEntryResource>), ProblemResponses), security(("key" = ["admin"])))]
async fn audit(
    caller: Caller<Administers>,
    State(shared): State<ServerState>,
    QueryParams(AuditParams { after, since, limit, cursor }): QueryParams<AuditParams>,
) -> ApiResult<Json<ListPage<AuditEntryResource>>> {
    let limit = list_page::page_limit(limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "audit");
    let after = list_page::decode_cursor(cursor.as_deref(), &cursors)?.or(after).unwrap_or(0);
    let range = AuditRange { after, since: Millis(since.unwrap_or(0)), limit: limit + 1 };
    let mut rows = caller.runtime.store().audit(range).await?;
    let there_is_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| there_is_more).map(|last| list_page::encode_cursor(&last.no, &cursors));
    Ok(Json(ListPage { items: rows.into_iter().map(AuditEntryResource::from).collect(), next }))
}
