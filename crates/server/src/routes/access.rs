//! API keys of the caller's organisation, and its audit.
use crate::caller::{Administers, Caller};
use crate::cursor::Cursors;
use crate::extract::{Asked, At, Said};
use crate::page::{self, Most, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_ports::orgs::{AuditRange, KeyView};
use outlast_ports::rows::AuditRow;
use outlast_runtime::keys::Grant;
use outlast_vocab::access::{Principal, Scopes};
use outlast_vocab::id::KeyId;
use outlast_vocab::{Millis, OrgId};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(keys, create)).routes(routes!(revoke)).routes(routes!(audit))
}

/// An API key; of none the secret is known.
#[derive(Serialize, ToSchema)]
pub(crate) struct Key {
    #[schema(value_type = String)]
    id: KeyId,
    /// The organisation it opens.
    #[schema(value_type = String)]
    org: OrgId,
    /// In whose name it acts.
    by: String,
    /// What it may do, with commas between.
    scopes: String,
    #[schema(value_type = u64)]
    created: Millis,
    /// From when on it counts no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    expires: Option<Millis>,
    /// Since when it counts no more because somebody said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    revoked: Option<Millis>,
}

impl From<KeyView> for Key {
    fn from(KeyView { id, org, by, scopes, created, expires, revoked }: KeyView) -> Self {
        Self { id, org, by: by.to_string(), scopes: scopes.to_string(), created, expires, revoked }
    }
}

/// The API keys of the organisation, by age.
#[utoipa::path(get, path = "/v1/keys", tag = "access", params(Most),
    responses((status = 200, body = Page<Key>), Problems), security(("key" = ["admin"])))]
async fn keys(
    caller: Caller<Administers>,
    State(shared): State<Shared>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Key>>> {
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "keys");
    let (after, limit) = most.or_all(&shared.limits).read(&cursors, &shared.limits)?;
    Ok(Json(Page::of(caller.runtime.store().keys_after(after, limit).await?, &cursors)))
}

/// A key to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    /// In whose name it acts: `service:ci` or `person:ann`.
    #[schema(value_type = String, example = "service:ci")]
    by: Principal,
    /// What it may do: `read`, `run`, `approve`, `operate`, `admin`, with commas between.
    #[schema(value_type = String, example = "run,approve")]
    scopes: Scopes,
    /// Seconds for which it counts; for ever without it.
    expires_in_s: Option<u64>,
    /// The organisation it opens, by name or id; the caller's own without it. For keys of the default one.
    #[schema(example = "acme")]
    org: Option<String>,
}

/// A key that was just made.
#[derive(Serialize, ToSchema)]
pub(crate) struct Made {
    #[schema(value_type = String)]
    id: KeyId,
    /// The key itself. It is shown this once and kept nowhere.
    key: String,
}

/// Makes an API key, with no more scopes than the caller has.
#[utoipa::path(post, path = "/v1/keys", tag = "access", request_body = NewKey,
    responses((status = 201, body = Made), Problems), security(("key" = ["admin"])))]
async fn create(
    caller: Caller<Administers>,
    State(shared): State<Shared>,
    Said(NewKey { by, scopes, expires_in_s, org }): Said<NewKey>,
) -> Answer<(StatusCode, Json<Made>)> {
    let expires = expires_in_s.map(|seconds| caller.runtime.now().after(Duration::from_secs(seconds)));
    let (runtime, org) = match org {
        Some(named) => {
            let operator = caller.operator(&shared, "keys of other organisations are the operator's")?;
            let org = operator.find_org(&named).await?;
            (operator, org)
        }
        None => (caller.runtime.clone(), caller.runtime.access().reach.home()),
    };
    let key = runtime.issue_key(Grant { org, by, scopes, expires }).await?;
    Ok((StatusCode::CREATED, Json(Made { id: key.id, key: key.reveal() })))
}

/// Ends the life of an API key at once.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "access", params(("key" = String, Path)),
    responses((status = 200, body = Key), Problems), security(("key" = ["admin"])))]
async fn revoke(caller: Caller<Administers>, At(key): At<KeyId>) -> Answer<Json<Key>> {
    Ok(Json(caller.runtime.store().revoke_key(key, caller.runtime.now()).await?.into()))
}

/// Which part of the audit.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Range {
    /// After this number.
    after: Option<u64>,
    /// Not before this time, in milliseconds since 1970.
    since: Option<u64>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` of the page before; counts for more than `after`.
    cursor: Option<String>,
}

/// What somebody did.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deed {
    /// Its number, which `after` takes.
    no: u64,
    #[schema(value_type = u64)]
    at: Millis,
    /// In which organisation.
    #[schema(value_type = String)]
    org: OrgId,
    /// Who.
    by: String,
    /// What: `turn.cancel`, `approval.approve`, `session.delete`, …
    act: String,
    /// To what.
    subject: String,
    detail: String,
}

impl From<AuditRow> for Deed {
    fn from(AuditRow { no, at, org, by, act, subject, detail }: AuditRow) -> Self {
        Self { no, at, org, by: by.to_string(), act, subject, detail }
    }
}

/// Who did what, in order.
#[utoipa::path(get, path = "/v1/audit", tag = "access", params(Range),
    responses((status = 200, body = Page<Deed>), Problems), security(("key" = ["admin"])))]
async fn audit(
    caller: Caller<Administers>,
    State(shared): State<Shared>,
    Asked(Range { after, since, limit, cursor }): Asked<Range>,
) -> Answer<Json<Page<Deed>>> {
    let limit = page::size(limit, &shared.limits)?;
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "audit");
    let after = page::behind(cursor.as_deref(), &cursors)?.or(after).unwrap_or(0);
    let range = AuditRange { after, since: Millis(since.unwrap_or(0)), limit: limit + 1 };
    let mut rows = caller.runtime.store().audit(range).await?;
    let there_is_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| there_is_more).map(|last| page::goes_on(&last.no, &cursors));
    Ok(Json(Page { items: rows.into_iter().map(Deed::from).collect(), next }))
}
