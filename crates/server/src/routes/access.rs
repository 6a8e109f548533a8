//! API keys of the caller's organisation, and its audit.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_http::caller::{Administers, Caller};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page::{self, ListPage, PageParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_runtime::worker::keys::ApiKeyGrant;
use outlast_views::{AuditRange, AuditRow, KeyView};
use outlast_vocab::access::{Principal, Scopes};
use outlast_vocab::id::KeyId;
use outlast_vocab::{Millis, OrgId};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(keys, create)).routes(routes!(revoke)).routes(routes!(audit))
}

/// An API key, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyResource {
    /// The id of the key.
    #[schema(value_type = String)]
    id: KeyId,
    /// The id of the organisation that the key gives access to.
    #[schema(value_type = String)]
    org: OrgId,
    /// The person or service that the key acts for.
    by: String,
    /// The scopes of the key, separated by commas.
    scopes: String,
    /// When the key was created, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    created: Millis,
    /// When the key expires, as a Unix timestamp in milliseconds. Absent if it never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    expires: Option<Millis>,
    /// When the key was revoked, as a Unix timestamp in milliseconds. Absent if it is not revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    revoked: Option<Millis>,
}

impl From<KeyView> for ApiKeyResource {
    fn from(KeyView { id, org, by, scopes, created, expires, revoked }: KeyView) -> Self {
        Self { id, org, by: by.to_string(), scopes: scopes.to_string(), created, expires, revoked }
    }
}

/// Returns the API keys of the organisation, oldest first.
#[utoipa::path(get, path = "/v1/keys", tag = "access", params(PageParams),
    responses((status = 200, body = ListPage<ApiKeyResource>), ProblemResponses), security(("key" = ["admin"])))]
async fn keys(
    caller: Caller<Administers>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<ApiKeyResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "keys");
    let (after, limit) = most.or_max_limit(&shared.http.limits).read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(caller.runtime.store().keys_after(after, limit).await?, &cursors)))
}

/// An API key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApiKey {
    /// The person or service that the key acts for, such as `service:ci` or `person:ann`.
    #[schema(value_type = String, example = "service:ci")]
    by: Principal,
    /// The scopes of the key, separated by commas: `read`, `run`, `approve`, `operate` or `admin`.
    #[schema(value_type = String, example = "run,approve")]
    scopes: Scopes,
    /// The lifetime of the key in seconds. If absent, the key never expires.
    expires_in_s: Option<u64>,
    /// The name or id of the organisation that the key gives access to. Defaults to the caller's
    /// organisation. Naming another one requires a key of the default organisation.
    #[schema(example = "acme")]
    org: Option<String>,
}

/// A new API key.
#[derive(Serialize, ToSchema)]
pub(crate) struct IssuedApiKey {
    /// The id of the key.
    #[schema(value_type = String)]
    id: KeyId,
    /// The secret key. This response is the only place where it is shown.
    key: String,
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
            let operator = caller.operator(&shared.http, "keys of other organisations are the operator's")?;
            let org = operator.find_org(&named).await?;
            (operator, org)
        }
        None => (caller.runtime.clone(), caller.runtime.access().reach.home()),
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

/// Parameters that select a part of the audit log.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParams {
    /// Return entries after the entry with this number.
    after: Option<u64>,
    /// Return entries from this time, as a Unix timestamp in milliseconds.
    since: Option<u64>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `after`.
    cursor: Option<String>,
}

/// An entry of the audit log.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditEntryResource {
    /// The number of the entry, for `after`.
    no: u64,
    /// When the action happened, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
    /// The id of the organisation.
    #[schema(value_type = String)]
    org: OrgId,
    /// The person or service that acted.
    by: String,
    /// The action: `turn.cancel`, `approval.approve`, `session.delete`, …
    act: String,
    /// The object of the action.
    subject: String,
    /// Details of the action.
    detail: String,
}

impl From<AuditRow> for AuditEntryResource {
    fn from(AuditRow { no, at, org, by, act, subject, detail }: AuditRow) -> Self {
        Self { no, at, org, by: by.to_string(), act, subject, detail }
    }
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
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "audit");
    let after = list_page::decode_cursor(cursor.as_deref(), &cursors)?.or(after).unwrap_or(0);
    let range = AuditRange { after, since: Millis(since.unwrap_or(0)), limit: limit + 1 };
    let mut rows = caller.runtime.store().audit(range).await?;
    let there_is_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| there_is_more).map(|last| list_page::encode_cursor(&last.no, &cursors));
    Ok(Json(ListPage { items: rows.into_iter().map(AuditEntryResource::from).collect(), next }))
}
