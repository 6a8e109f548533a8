//! Agents of this server, and versioned configurations in the database.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use outlast_api::agents::{AgentResource, ConfigDiff, ConfigVersionResource, DiffParams};
use outlast_api::list_page::{ListPage, PageParams};
use outlast_api::problem::Problem;
use outlast_http::caller::{Caller, Operates, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, PathParams, QueryParams, TextParam};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::store::Store;
use outlast_runtime::agents::agent_factory::{ConfigEffect, FailedAgent, SavedConfig};
use outlast_runtime::agents::agent_registry::{self, AgentView};
use outlast_runtime::views::difference;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::{Error, Hash, Kind, OrgId};
use serde_json::Value;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The number of recent turns in which to look for a package.
const SEARCHED_TURNS: usize = 500;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(agents))
        .routes(routes!(agent))
        .routes(routes!(package_by_fingerprint))
        .routes(routes!(configs))
        .routes(routes!(config, put, delete))
        .routes(routes!(versions))
        .routes(routes!(compare_versions))
}

fn agent_resource(AgentView { name, first, fingerprint, pinned }: AgentView) -> AgentResource {
    let model = pinned.package.model.to_string();
    let tools = pinned.package.tools.iter().map(ToString::to_string).collect();
    AgentResource { name, first, fingerprint, model, tools, package: Some(pinned) }
}

/// Returns the agents of this server.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", responses((status = 200, body = ListPage<AgentResource>), ProblemResponses),
    security(("key" = ["read"])))]
async fn agents(caller: Caller<Reads>) -> Json<ListPage<AgentResource>> {
    // Not paginated: only agents that are loaded in this process.
    let in_list = |view| AgentResource { package: None, ..agent_resource(view) };
    Json(ListPage::single(caller.runtime.agents().into_iter().map(in_list).collect()))
}

/// Returns an agent with its package.
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents", params(("name" = String, Path)),
    responses((status = 200, body = AgentResource), ProblemResponses), security(("key" = ["read"])))]
async fn agent(
    caller: Caller<Reads>,
    PathParam(TextParam(name)): PathParam<TextParam>,
) -> ApiResult<Json<AgentResource>> {
    let view = caller.runtime.agents().into_iter().find(|view| view.name == name).ok_or_else(|| {
        Error::new(Kind::AgentNotFound, format!("no agent is called `{name}` here; /v1/agents lists them"))
    })?;
    Ok(Json(agent_resource(view)))
}

/// Returns a package by its fingerprint, with the contracts of its tools.
///
/// Finds the packages of the agents on this server and of the newest turns of the organisation. For the
/// package of an older turn, use `GET /v1/turns/{turn}/package`.
#[utoipa::path(get, path = "/v1/packages/{fingerprint}", tag = "agents", params(("fingerprint" = String, Path)),
    responses((status = 200, body = Object), ProblemResponses), security(("key" = ["read"])))]
async fn package_by_fingerprint(
    caller: Caller<Reads>,
    PathParam(fingerprint): PathParam<Hash>,
) -> ApiResult<Json<PinnedPackage>> {
    if let Some(view) = caller.runtime.agents().into_iter().find(|view| view.fingerprint == fingerprint) {
        return Ok(Json(view.pinned));
    }
    let store = caller.runtime.store().as_ref();
    let found = match agent_registry::turn_under(store, fingerprint, SEARCHED_TURNS).await? {
        Some(turn) => agent_registry::of_turn(store, turn).await?,
        None => None,
    };
    let gone = || {
        let detail = format!(
            "no agent here and none of the newest {SEARCHED_TURNS} turns has the package {fingerprint}; name a turn that ran under it"
        );
        Error::new(Kind::BlobNotFound, detail)
    };
    Ok(Json(found.ok_or_else(gone)?))
}

type ConfigResponse = ([(HeaderName, String); 1], Json<ConfigVersionResource>);

/// Adds the version as the `etag`, which `if-match` accepts.
fn config_response(config: StoredConfig, note: Option<String>) -> ConfigResponse {
    let tag = format!("\"{}\"", config.version);
    ([(header::ETAG, tag)], Json(ConfigVersionResource { note, ..config.into() }))
}

/// Returns the agents, harnesses or capabilities in the database, by name.
///
/// Agents are built from these configurations. The list has the latest version of each.
#[utoipa::path(get, path = "/v1/configs/{kind}", tag = "agents", params(("kind" = String, Path), PageParams),
    responses((status = 200, body = ListPage<ConfigVersionResource>), ProblemResponses), security(("key" = ["read"])))]
async fn configs(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(kind): PathParam<ConfigKind>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<ConfigVersionResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "configs");
    let (after, limit) = list_page::read(&most, &cursors, &shared.http.limits)?;
    let outlast_ports::page::Page { items, next } =
        caller.runtime.store().configs_after(kind, after, limit).await?;
    let left_out = caller.runtime.left_out();
    let noted = |config: StoredConfig| {
        let note = left_out.iter().find(|left| is_about(left, &config)).map(left_out_note);
        ConfigVersionResource { note, ..config.into() }
    };
    let items: Vec<ConfigVersionResource> = items.into_iter().map(noted).collect();
    Ok(Json(list_page::of_store(outlast_ports::page::Page { items, next }, &cursors)))
}

/// Returns the latest version of a configuration.
///
/// Pass the `etag` response header in `if-match` to update or delete this version.
#[utoipa::path(get, path = "/v1/configs/{kind}/{name}", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ConfigVersionResource, headers(("etag" = String, description = "The version of the configuration."))), ProblemResponses), security(("key" = ["read"])))]
async fn config(
    caller: Caller<Reads>,
    PathParams(kind, TextParam(name)): PathParams<ConfigKind, TextParam>,
) -> ApiResult<ConfigResponse> {
    let found = caller.runtime.store().config(kind, name.clone()).await?;
    let found = found.ok_or_else(|| no_config(kind, &name))?;
    let left_out = caller.runtime.left_out();
    let note = left_out.iter().find(|left| is_about(left, &found)).map(left_out_note);
    Ok(config_response(found, note))
}

fn is_about(left: &FailedAgent, config: &StoredConfig) -> bool {
    config.kind == ConfigKind::Agent && config.name == left.name
}

/// Returns the note about an agent that cannot be created.
fn left_out_note(left: &FailedAgent) -> String {
    let FailedAgent { failure, answers, .. } = left;
    let instead = if *answers { "the previous version answers" } else { "it does not answer" };
    // Internal errors go only to the log.
    let why = if failure.code.status() < 500 { failure.to_string() } else { "the log says why".to_owned() };
    format!("it cannot be built here, and {instead}: {why}")
}

fn no_config(kind: ConfigKind, name: &str) -> Error {
    Error::new(Kind::AgentNotFound, format!("no {kind} in the database is called `{name}`"))
}

/// Save a new version of a configuration.
///
/// If the content is the same as in the latest version, no new version is created. On a server that was
/// started for the organisation, agents that use the configuration are updated from the next input. A version
/// that would break one of them is rejected.
#[utoipa::path(put, path = "/v1/configs/{kind}/{name}", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "The `etag` of the version to replace, or `*` for any existing version. If absent, the configuration may also be new."),
        ("if-none-match" = Option<String>, Header, description = "`*` saves the configuration only if it does not exist yet.")),
    request_body = Object,
    responses((status = 200, body = ConfigVersionResource, headers(("etag" = String, description = "The version of the configuration."))),
        (status = 412, description = "The latest version does not match the condition.", body = Problem, content_type = "application/problem+json"),
        ProblemResponses), security(("key" = ["operate"])))]
async fn put(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
    PathParams(kind, TextParam(name)): PathParams<ConfigKind, TextParam>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Value>,
) -> ApiResult<ConfigResponse> {
    let runtime = &caller.runtime;
    let saved = match expected_version(&caller, &headers, kind, &name).await? {
        Some(last) => runtime.replace_config(kind, name, body, last).await?,
        None => runtime.put_config(kind, name, body).await?,
    };
    let note = effect_note(&saved, runtime.access().visibility.home(), shared.home);
    Ok(config_response(saved.config, note))
}

/// Delete a configuration.
///
/// Agents that are built from it accept no further input. Its versions are kept, and turns that were already
/// accepted continue with the version that they have. A configuration that an agent of the server depends on
/// cannot be deleted.
#[utoipa::path(delete, path = "/v1/configs/{kind}/{name}", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "The `etag` of the version to delete, or `*` for any version.")),
    responses((status = 204),
        (status = 412, description = "The latest version does not match the condition.", body = Problem, content_type = "application/problem+json"),
        ProblemResponses), security(("key" = ["operate"])))]
async fn delete(
    caller: Caller<Operates>,
    PathParams(kind, TextParam(name)): PathParams<ConfigKind, TextParam>,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    let last = expected_version(&caller, &headers, kind, &name).await?;
    caller.runtime.delete_config(kind, name, last).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the version that the request expects as the current one, if it expects one. 0 means that no
/// version may exist.
async fn expected_version(
    caller: &Caller<Operates>,
    headers: &HeaderMap,
    kind: ConfigKind,
    name: &str,
) -> Result<Option<u32>, Error> {
    match version_condition(headers)? {
        VersionCondition::Anything => Ok(None),
        VersionCondition::Version(version) => Ok(Some(version)),
        VersionCondition::Existing => {
            let there = caller.runtime.store().config(kind, name.to_owned()).await?;
            let none = || {
                let detail = format!("expected a version of the {kind} `{name}`, but there is none");
                Error::new(Kind::ConfigChanged, detail)
            };
            Ok(Some(there.ok_or_else(none)?.version))
        }
    }
}

/// Returns a note for the caller if the saved configuration has no effect on this server.
fn effect_note(saved: &SavedConfig, org: OrgId, home: OrgId) -> Option<String> {
    let name = &saved.config.name;
    match saved.counts {
        ConfigEffect::Here => None,
        ConfigEffect::Hidden => Some(format!(
            "it is stored, but does not answer here: this server was started with its own agent `{name}`"
        )),
        ConfigEffect::Elsewhere if org != home => Some(format!(
            "it is stored, but does not answer here: it belongs to {org}, and this server was started for {home}"
        )),
        ConfigEffect::Elsewhere => Some(
            "it is stored, but this server loads no agents from the database; `outlast serve` does"
                .to_owned(),
        ),
    }
}

/// The condition for saving a new version.
enum VersionCondition {
    Anything,
    /// Any version must exist.
    Existing,
    /// This version must be the current one. 0 means that no version may exist.
    Version(u32),
}

fn version_condition(headers: &HeaderMap) -> Result<VersionCondition, Error> {
    let said = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
    let wrong = |detail: &str| Err(Error::new(Kind::InputInvalid, detail));
    match (said(header::IF_MATCH), said(header::IF_NONE_MATCH)) {
        (None, None) => Ok(VersionCondition::Anything),
        (None, Some("*")) => Ok(VersionCondition::Version(0)),
        (Some("*"), None) => Ok(VersionCondition::Existing),
        (Some(tag), None) => match tag.trim_matches('"').parse() {
            Ok(version) => Ok(VersionCondition::Version(version)),
            Err(_) => wrong("expected an `if-match` with the `etag` of a version, like `\"3\"`"),
        },
        _ => wrong("expected `if-match`, or `if-none-match: *`"),
    }
}

/// Returns all versions of a configuration, newest first.
#[utoipa::path(get, path = "/v1/configs/{kind}/{name}/versions", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path), PageParams),
    responses((status = 200, body = ListPage<ConfigVersionResource>), ProblemResponses), security(("key" = ["read"])))]
async fn versions(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParams(kind, TextParam(name)): PathParams<ConfigKind, TextParam>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<ConfigVersionResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "versions");
    let (before, limit) = list_page::read(&most, &cursors, &shared.http.limits)?;
    let page = caller.runtime.store().config_versions_before(kind, name.clone(), before, limit).await?;
    if before.is_none() && page.items.is_empty() {
        return Err(no_config(kind, &name).into());
    }
    Ok(Json(list_page::of_store(page, &cursors)))
}

/// Returns the difference between two versions of a configuration.
#[utoipa::path(get, path = "/v1/configs/{kind}/{name}/diff", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path), DiffParams),
    responses((status = 200, body = ConfigDiff), ProblemResponses), security(("key" = ["read"])))]
async fn compare_versions(
    caller: Caller<Reads>,
    PathParams(kind, TextParam(name)): PathParams<ConfigKind, TextParam>,
    QueryParams(DiffParams { from, to }): QueryParams<DiffParams>,
) -> ApiResult<Json<ConfigDiff>> {
    let store = caller.runtime.store();
    let (one, other) =
        (version_body(store, kind, &name, from).await?, version_body(store, kind, &name, to).await?);
    Ok(Json(ConfigDiff { lines: difference::between(&one, &other) }))
}

/// Returns the content of one version.
async fn version_body(
    store: &Arc<dyn Store>,
    kind: ConfigKind,
    name: &str,
    version: u32,
) -> Result<Value, Error> {
    let below = version.saturating_add(1);
    let found = store.config_versions_before(kind, name.to_owned(), Some(below), 1).await?.items.pop();
    if let Some(config) = found.filter(|config| config.version == version) {
        if config.is_deleted() {
            let detail = format!("the {kind} `{name}` was deleted with version {version}");
            return Err(Error::new(Kind::AgentNotFound, detail));
        }
        return Ok(config.body);
    }
    let last = store.config(kind, name.to_owned()).await?.map_or(0, |config| config.version);
    let detail = format!("the {kind} `{name}` has no version {version}; it has {last}");
    Err(Error::new(Kind::AgentNotFound, detail))
}
