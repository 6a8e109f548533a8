//! Agents that answer here, and the configurations that are kept in the database, with every version they ever had.
use crate::caller::{Caller, Operates, Reads};
use crate::cursor::Cursors;
use crate::extract::{Asked, At, Both, Said, Word};
use crate::page::{self, Most, Page};
use crate::problem::{Answer, Problem, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use outlast_ports::configs::{ConfigKind, StoredConfig};
use outlast_runtime::difference;
use outlast_runtime::outfits::AgentView;
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// These routes.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(agents))
        .routes(routes!(agent))
        .routes(routes!(configs))
        .routes(routes!(config, put))
        .routes(routes!(versions))
        .routes(routes!(differ))
}

/// An agent that answers here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Agent {
    /// What it is called.
    name: String,
    /// Whether it answers when an input names none.
    first: bool,
    /// The fingerprint of its package.
    #[schema(value_type = String)]
    fingerprint: Hash,
    /// The model that it asks.
    model: String,
    /// Its tools.
    tools: Vec<String>,
    /// The whole package, with the contracts of its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    package: Option<Value>,
}

impl Agent {
    fn short(view: &AgentView) -> Self {
        let package = &view.pinned.package;
        Self {
            name: view.name.clone(),
            first: view.first,
            fingerprint: view.fingerprint,
            model: package.model.to_string(),
            tools: package.tools.iter().map(ToString::to_string).collect(),
            package: None,
        }
    }
}

/// The agents that answer here.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", responses((status = 200, body = Page<Agent>), Problems),
    security(("key" = ["read"])))]
async fn agents(caller: Caller<Reads>) -> Json<Page<Agent>> {
    Json(Page::whole(caller.runtime.agents().iter().map(Agent::short).collect()))
}

/// One of them, with its package.
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents", params(("name" = String, Path)),
    responses((status = 200, body = Agent), Problems), security(("key" = ["read"])))]
async fn agent(caller: Caller<Reads>, At(Word(name)): At<Word>) -> Answer<Json<Agent>> {
    let views = caller.runtime.agents();
    let view = views.iter().find(|view| view.name == name).ok_or_else(|| {
        Error::new(Kind::AgentNotFound, format!("no agent is called `{name}` here; /v1/agents lists them"))
    })?;
    let package = serde_json::to_value(&view.pinned).ok();
    Ok(Json(Agent { package, ..Agent::short(view) }))
}

/// One version of an agent, a harness or a capability in the database.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stored {
    /// `agent`, `harness` or `capability`.
    kind: &'static str,
    name: String,
    /// Which version, counted from 1.
    version: u32,
    /// The fingerprint of what it says.
    #[schema(value_type = String)]
    fingerprint: Hash,
    /// Since when.
    #[schema(value_type = u64)]
    at: Millis,
    /// What it says: the fields of an agent's file.
    #[schema(value_type = Object)]
    body: Value,
    /// What whoever keeps it may not expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl From<StoredConfig> for Stored {
    fn from(config: StoredConfig) -> Self {
        let StoredConfig { kind, name, version, fingerprint, body, at } = config;
        Self { kind: kind.name(), name, version, fingerprint, at, body, note: None }
    }
}

type Tagged = ([(HeaderName, String); 1], Json<Stored>);

/// With the version as its tag, which `if-match` takes.
fn tagged(config: StoredConfig) -> Tagged {
    noted(config, None)
}

fn noted(config: StoredConfig, note: Option<String>) -> Tagged {
    let tag = format!("\"{}\"", config.version);
    ([(header::ETAG, tag)], Json(Stored { note, ..config.into() }))
}

/// The agents, harnesses or capabilities in the database, by name. They are what agents are made of at the next start.
#[utoipa::path(get, path = "/v1/configs/{kind}", tag = "agents", params(("kind" = String, Path), Most),
    responses((status = 200, body = Page<Stored>), Problems), security(("key" = ["read"])))]
async fn configs(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(kind): At<ConfigKind>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Stored>>> {
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "configs");
    let found = caller.runtime.store().configs(kind, usize::MAX).await?.into_iter().map(Stored::from);
    Ok(Json(page::paged(found, |config| config.name.clone(), most, (&cursors, &shared.limits))?))
}

/// The last version. The header `etag` is what `if-match` takes.
#[utoipa::path(get, path = "/v1/configs/{kind}/{name}", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Stored, headers(("etag" = String, description = "Its version."))), Problems), security(("key" = ["read"])))]
async fn config(caller: Caller<Reads>, Both(kind, Word(name)): Both<ConfigKind, Word>) -> Answer<Tagged> {
    let found = caller.runtime.store().config(kind, name.clone()).await?;
    Ok(tagged(found.ok_or_else(|| missing(kind, &name))?))
}

fn missing(kind: ConfigKind, name: &str) -> Error {
    Error::new(Kind::AgentNotFound, format!("no {kind} in the database is called `{name}`"))
}

/// Keeps a new version. One that says the same as the last is not new. Agents are made of it at the next start of a server that is
/// started for its organisation.
#[utoipa::path(put, path = "/v1/configs/{kind}/{name}", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path),
        ("if-match" = Option<String>, Header, description = "The `etag` of the version to replace, or `*` for any that is there; without it there may be none."),
        ("if-none-match" = Option<String>, Header, description = "`*`: only if there is none yet.")),
    request_body = Object,
    responses((status = 200, body = Stored, headers(("etag" = String, description = "Its version."))),
        (status = 412, description = "It is another version by now.", body = Problem, content_type = "application/problem+json"),
        Problems), security(("key" = ["operate"])))]
async fn put(
    caller: Caller<Operates>,
    State(shared): State<Shared>,
    Both(kind, Word(name)): Both<ConfigKind, Word>,
    headers: HeaderMap,
    Said(body): Said<Value>,
) -> Answer<Tagged> {
    let (store, now) = (caller.runtime.store(), caller.runtime.now());
    let kept = match expected(&headers)? {
        Expected::Version(version) => store.replace_config(kind, name, body, version, now).await?,
        Expected::Some => {
            let there = store.config(kind, name.clone()).await?.map(|config| config.version);
            let none = || {
                let detail = format!("expected a version of the {kind} `{name}`, but there is none");
                Error::new(Kind::ConfigChanged, detail)
            };
            let there = there.ok_or_else(none)?;
            store.replace_config(kind, name, body, there, now).await?
        }
        Expected::Anything => store.put_config(kind, name, body, now).await?,
    };
    let org = caller.runtime.access().reach.home();
    let elsewhere = (org != shared.home).then(|| {
        format!(
            "it is kept, and answers where a server is started for {org}; this one is started for {}",
            shared.home
        )
    });
    Ok(noted(kept, elsewhere))
}

/// What must be there for a new version to be kept.
enum Expected {
    Anything,
    /// Any version.
    Some,
    /// This version; 0 is none.
    Version(u32),
}

fn expected(headers: &HeaderMap) -> Result<Expected, Error> {
    let said = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
    let wrong = |detail: &str| Err(Error::new(Kind::InputInvalid, detail));
    match (said(header::IF_MATCH), said(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Expected::Anything),
        (None, Some("*")) => Ok(Expected::Version(0)),
        (Some("*"), None) => Ok(Expected::Some),
        (Some(tag), None) => match tag.trim_matches('"').parse() {
            Ok(version) => Ok(Expected::Version(version)),
            Err(_) => wrong("expected an `if-match` with the `etag` of a version, like `\"3\"`"),
        },
        _ => wrong("expected `if-match`, or `if-none-match: *`"),
    }
}

/// Every version, the newest first.
#[utoipa::path(get, path = "/v1/configs/{kind}/{name}/versions", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path), Most),
    responses((status = 200, body = Page<Stored>), Problems), security(("key" = ["read"])))]
async fn versions(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    Both(kind, Word(name)): Both<ConfigKind, Word>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Stored>>> {
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "versions");
    let found = caller.runtime.store().config_versions(kind, name.clone(), usize::MAX).await?;
    if found.is_empty() {
        return Err(missing(kind, &name).into());
    }
    let found = found.into_iter().map(Stored::from);
    let key = |config: &Stored| Reverse(config.version);
    Ok(Json(page::paged(found, key, most, (&cursors, &shared.limits))?))
}

/// Which versions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Between {
    /// The older one.
    from: u32,
    /// The newer one.
    to: u32,
}

/// How two versions differ.
#[derive(Serialize, ToSchema)]
pub(crate) struct Difference {
    /// What is gone begins with `-`, what is new with `+`.
    lines: Vec<String>,
}

/// How two versions differ.
#[utoipa::path(get, path = "/v1/configs/{kind}/{name}/diff", tag = "agents",
    params(("kind" = String, Path), ("name" = String, Path), Between),
    responses((status = 200, body = Difference), Problems), security(("key" = ["read"])))]
async fn differ(
    caller: Caller<Reads>,
    Both(kind, Word(name)): Both<ConfigKind, Word>,
    Asked(Between { from, to }): Asked<Between>,
) -> Answer<Json<Difference>> {
    let found = caller.runtime.store().config_versions(kind, name.clone(), usize::MAX).await?;
    let body = |version: u32| {
        let config = found.iter().find(|config| config.version == version);
        config.map(|config| &config.body).ok_or_else(|| {
            let detail = format!("the {kind} `{name}` has no version {version}; it has {}", found.len());
            Error::new(Kind::AgentNotFound, detail)
        })
    };
    Ok(Json(Difference { lines: difference::between(body(from)?, body(to)?) }))
}
