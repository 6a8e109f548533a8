//! A test server on a database file, with an agent that covers all features.
use crate::client::{Answer, Request};
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::keys::ApiKeyGrant;
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::access::{Access, Scopes};
use outlast::vocab::policy::{ApprovalRequirement, Policy, PolicyDecision, Rule};
use outlast_server::{OriginPolicy, Server};
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const SCRIPT: &str = "\
    when pay\ncall pay {\"euros\": 5}\n---\nsay {{result pay}}
    when later\ncall later {}\n---\nsay {{result later}}
    when hang\ncall hang {}\n---\nsay {{result hang}}
    when slowly\nsay one two three four five six seven eight nine ten
    when shaky\nerror once model.unavailable too many requests\nsay At last.
    when for ever\nsay one two\ndelay 60s\nsay three
    when down\nerror model.unavailable the provider is down
    when locked\nerror model.unauthorized the key is of no use
    when wrong\nerror model.rejected the request is wrong
    any\nsay Reply to {{input}}.";

/// Pays a person.
#[tool]
pub(crate) async fn pay(euros: u32) -> Result<String, Error> {
    Ok(format!("paid {euros}"))
}

/// A call that somebody outside finishes.
#[tool(idempotent)]
pub(crate) async fn later(completion: Completion) -> Result<ToolRunOutcome, Error> {
    completion.key()?;
    Ok(ToolRunOutcome::Pending)
}

/// A call that comes to no end by itself; who stops it does not know whether it happened.
#[tool]
async fn hang() -> Result<String, Error> {
    std::future::pending().await
}

/// A running server.
pub(crate) struct Stage {
    pub(crate) outlast: Outlast,
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
    dir: Option<TempDir>,
}

impl Stage {
    /// Starts on a new file. Callers without a key are `person:ann` of the default organisation.
    pub(crate) async fn new() -> Self {
        Self::with(|policy| policy, ServerLimits::default()).await
    }

    /// Requires keys, with no limit on invalid ones.
    pub(crate) async fn keyed() -> Self {
        Self::keyed_with(ServerLimits::default()).await
    }

    /// Like [`Stage::keyed`], with these limits.
    pub(crate) async fn keyed_with(limits: ServerLimits) -> Self {
        let limits = ServerLimits { wrong_keys_per_minute: NonZeroU32::MAX, ..limits };
        let dir = tempfile::tempdir().unwrap();
        let builder = with_hang(&dir.path().join("outlast.db"));
        let policy = |policy| OriginPolicy { without_key: None, ..policy };
        Self { dir: Some(dir), ..Self::built(builder, policy, limits).await }
    }

    /// Cancels a turn during a call, so that the outcome of the call is unknown.
    pub(crate) async fn lose_a_call(&self, key: Option<&str>) {
        let request = |method: &str, path: &str| {
            let request = self.request(method, path);
            key.into_iter().fold(request, Request::key)
        };
        let sent = request("POST", "/v1/turns").json(&json!({ "text": "hang" })).send().await.ok();
        let turn = format!("/v1/turns/{}", sent["turn"].as_str().unwrap());
        let runs = |effects: Value| effects["items"].as_array().unwrap().len() > 1;
        while !runs(request("GET", &format!("{turn}/effects")).send().await.ok()) {
            tokio::task::yield_now().await;
        }
        let stop = request("POST", &format!("{turn}/cancel")).json(&json!({ "reason": "enough" }));
        stop.send().await.ok();
        request("GET", &format!("{turn}?wait=20")).send().await.ok();
    }

    pub(crate) async fn with(
        policy: impl FnOnce(OriginPolicy) -> OriginPolicy,
        limits: ServerLimits,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("outlast.db");
        Self { dir: Some(dir), ..Self::on(&path, policy, limits).await }
    }

    /// Starts on a file that may exist.
    pub(crate) async fn on(
        path: &Path,
        policy: impl FnOnce(OriginPolicy) -> OriginPolicy,
        limits: ServerLimits,
    ) -> Self {
        Self::built(agent(path), policy, limits).await
    }

    /// Starts with this runtime.
    pub(crate) async fn built(
        builder: outlast::Builder,
        policy: impl FnOnce(OriginPolicy) -> OriginPolicy,
        limits: ServerLimits,
    ) -> Self {
        Self::serving(builder, |server| server.origin_policy(policy).limits(limits)).await
    }

    /// Starts with a server that `set_up` configures.
    pub(crate) async fn serving(builder: outlast::Builder, set_up: impl FnOnce(Server) -> Server) -> Self {
        let outlast = builder.start().await.unwrap();
        let ann = Access::to(outlast::OrgId::DEFAULT).by("person:ann".parse().unwrap());
        let server = Server::bind(outlast.runtime(), "127.0.0.1:0".parse().unwrap(), ann).await.unwrap();
        let (address, (stop, stopped)) = (server.address(), oneshot::channel());
        let server = set_up(server);
        let task = tokio::spawn(server.serve(async { drop(stopped.await) }));
        Self { outlast, address, stop, task, dir: None }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.as_ref().map(|dir| dir.path().join("outlast.db")).unwrap_or_default()
    }

    /// Stops the server and its worker. Returns the directory of the file.
    pub(crate) async fn stop(self) -> Option<TempDir> {
        let Self { outlast, stop, task, dir, .. } = self;
        drop(stop);
        task.await.unwrap().unwrap();
        outlast.shut_down().await;
        dir
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.address, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path).json(body).send().await
    }

    /// Sends an input to the session with this key, waits for the end of the turn, and returns the receipt.
    pub(crate) async fn say(&self, session: &str, text: &str) -> Value {
        self.post("/v1/turns?wait=20", &json!({ "session_key": session, "text": text })).await.ok()
    }

    /// Sends an input whose turn waits, and returns when its session is parked.
    pub(crate) async fn park(&self, session: &str, text: &str) -> Value {
        let receipt = self.post("/v1/turns", &json!({ "session_key": session, "text": text })).await.ok();
        let path = format!("/v1/sessions/{}", receipt["session"].as_str().unwrap());
        loop {
            let view = self.get(&path).await.ok();
            if view["state"] == "parked" {
                return receipt;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Creates a key with these scopes in an organisation.
    pub(crate) async fn key(&self, org: &str, scopes: &str) -> String {
        let operator = self.outlast.operator();
        let runtime = operator.runtime();
        let org = match runtime.find_org(org).await {
            Ok(org) => org,
            Err(_) => runtime.create_org(org.parse().unwrap()).await.unwrap().id,
        };
        let (by, scopes) = ("service:test".parse().unwrap(), scopes.parse::<Scopes>().unwrap());
        runtime.issue_key(ApiKeyGrant { org, by, scopes, expires: None }).await.unwrap().reveal()
    }
}

/// Returns the agent of the tests, with a tool that never ends.
pub(crate) fn with_hang(path: &Path) -> outlast::Builder {
    agent(path).tool(hang)
}

/// Returns the agent of the tests, on a file.
pub(crate) fn agent(path: &Path) -> outlast::Builder {
    let script: Script = SCRIPT.parse().unwrap();
    let ask = PolicyDecision::Ask(ApprovalRequirement::default());
    let rule = Rule { tool: "pay".to_owned(), ..Rule::new("ask".parse().unwrap(), ask) };
    Outlast::at(path)
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .policy(Policy { rules: vec![rule] })
        .tool(pay)
        .tool(later)
}
