//! Configurations in the database: saved changes apply from the next input.
use crate::stage::{Stage, agent, pay};
use outlast::Outlast;
use outlast::configs::{ConfigKind, ConfigStore, StoredConfig};
use outlast::runtime::agents::agent_factory::{AgentFactory, AgentPlan};
use outlast::vocab::canonical_json;
use outlast::vocab::policy::{ApprovalRequirement, Policy, PolicyDecision, Rule};
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Millis};
use serde_json::{Value, json};
use tempfile::TempDir;

/// An agent factory. Builds an agent from its configuration and its harness. If one of them has `pays`, the
/// agent has the tool `pay` and asks before it pays.
struct TestAgentFactory;

impl AgentFactory for TestAgentFactory {
    fn plans(&self, stored: &[StoredConfig]) -> Result<Vec<AgentPlan>, Error> {
        let plan = |config: &StoredConfig| {
            let parent = config.body["parent"].as_str();
            let under =
                stored.iter().find(|one| one.kind == ConfigKind::Harness && Some(&*one.name) == parent);
            let said: Vec<Value> = under.into_iter().chain([config]).map(|one| one.body.clone()).collect();
            let (name, layers) = (config.name.clone(), canonical_json::fingerprint(&said));
            AgentPlan {
                name: name.clone(),
                is_kept: true,
                layers,
                make: Box::new(move || sewn(&name, &said)?.into_single_agent()),
            }
        };
        Ok(stored.iter().filter(|config| config.kind == ConfigKind::Agent).map(plan).collect())
    }

    fn check(&self, _: &StoredConfig, _: &[StoredConfig]) -> Result<(), Error> {
        Ok(())
    }
}

fn sewn(name: &str, said: &[Value]) -> Result<outlast::Builder, Error> {
    let text = |key: &str| said.iter().filter_map(|one| one[key].as_str()).collect::<Vec<_>>();
    let mut builder = Outlast::agent(name).system(text("system").join(" "));
    if let Some(model) = text("model").last() {
        builder = builder.model(*model);
    }
    if said.iter().any(|one| one["pays"] == true) {
        let rule = Rule {
            tool: "pay".to_owned(),
            ..Rule::new("ask".parse()?, PolicyDecision::Ask(ApprovalRequirement::default()))
        };
        builder = builder.policy(Policy { rules: vec![rule] }).tool(pay);
    }
    Ok(builder)
}

async fn stage() -> (Stage, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let builder = agent(&dir.path().join("outlast.db")).agent_factory(TestAgentFactory);
    (Stage::built(builder, |policy| policy, ServerLimits::default()).await, dir)
}

impl Stage {
    async fn put(&self, what: &str, body: Value) -> crate::client::Answer {
        self.request("PUT", &format!("/v1/configs/{what}")).json(&body).send().await
    }

    /// Returns the system prompt of an agent's next turn.
    async fn prompt_of(&self, agent: &str) -> Value {
        let said = json!({ "agent": agent, "text": "hello" });
        let turn = self.post("/v1/turns?wait=20", &said).await.ok()["turn"].clone();
        self.get(&format!("/v1/turns/{}/package", turn.as_str().unwrap())).await.ok()["system"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_agent_answers_and_appears_in_every_list() {
    let (stage, _dir) = stage().await;
    let early = stage.post("/v1/turns", &json!({ "agent": "clerk", "text": "hello" })).await;
    assert_eq!((early.status, early.code().as_str()), (404, "agent.not_found"));
    let put = stage.put("agent/clerk", json!({ "system": "Sell." })).await;
    assert_eq!((put.header("etag"), put.json().get("note")), (Some("\"1\""), None));
    assert_eq!(stage.prompt_of("clerk").await, "Sell.");
    let names = |list: &Value, key: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&stage.get("/v1/agents").await.ok()["items"], "name"), ["assistant", "clerk"]);
    for wire in ["openai", "anthropic"] {
        let models = stage.get(&format!("/{wire}/v1/models")).await.ok();
        assert!(names(&models["data"], "id").contains(&"clerk".to_owned()), "{models}");
    }
    stage.put("agent/clerk", json!({ "system": "Sell more." })).await.ok();
    assert_eq!(stage.prompt_of("clerk").await, "Sell more.");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_agent_is_invisible_to_other_organisations() {
    let (stage, _dir) = stage().await;
    stage.put("agent/clerk", json!({ "system": "Sell." })).await.ok();
    let key = stage.key("acme", "run").await;
    let asked = async |path: &str| stage.request("GET", path).key(&key).send().await;
    for path in ["/v1/agents", "/openai/v1/models", "/anthropic/v1/models"] {
        let list = asked(path).await;
        assert!(!list.body.contains("clerk"), "{}", list.body);
        assert_eq!((asked(&format!("{path}/clerk")).await.status, list.status), (404, 200), "{path}");
    }
    let said = json!({ "agent": "clerk", "text": "hello" });
    let refused = stage.request("POST", "/v1/turns").key(&key).json(&said).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (404, "agent.not_found"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_agent_is_rejected_and_not_stored() {
    let (stage, _dir) = stage().await;
    stage.put("agent/clerk", json!({ "system": "Sell." })).await.ok();
    let broken = stage.put("agent/clerk", json!({ "model": "nobody/x" })).await;
    assert_eq!((broken.status, broken.code().as_str()), (400, "model.unknown"));
    let stored = stage.get("/v1/configs/agent/clerk").await;
    assert_eq!((stored.header("etag"), stored.json().get("note")), (Some("\"1\""), None));
    let late = stage.request("PUT", "/v1/configs/agent/clerk").json(&json!({ "system": "Late." }));
    assert_eq!(late.header("if-match", "\"7\"").send().await.code(), "config.changed");
    assert_eq!(stage.prompt_of("clerk").await, "Sell.");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn harness_update_changes_agents_and_cannot_break_them() {
    let (stage, _dir) = stage().await;
    stage.put("harness/base", json!({ "system": "Be kind." })).await.ok();
    stage.put("agent/clerk", json!({ "system": "Sell.", "parent": "base" })).await.ok();
    stage.put("harness/base", json!({ "system": "Be brief." })).await.ok();
    assert_eq!(stage.prompt_of("clerk").await, "Be brief. Sell.");
    let broken = stage.put("harness/base", json!({ "model": "nobody/x" })).await;
    assert_eq!(
        broken.json()["detail"],
        "the agent `clerk` could no longer be built: no provider serves the model `nobody/x`"
    );
    assert_eq!(stage.get("/v1/configs/harness/base").await.header("etag"), Some("\"2\""));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_turn_keeps_its_agent_after_a_replacement() {
    let (stage, _dir) = stage().await;
    stage.put("agent/clerk", json!({ "system": "Sell.", "pays": true })).await.ok();
    let said = json!({ "agent": "clerk", "text": "pay", "session_key": "ann" });
    let turn = stage.post("/v1/turns", &said).await.ok()["turn"].as_str().unwrap().to_owned();
    let question = loop {
        let pending = stage.get("/v1/approvals").await.ok();
        if let Some(id) = pending["items"][0]["id"].as_str() {
            break id.to_owned();
        }
        tokio::task::yield_now().await;
    };
    stage.put("agent/clerk", json!({ "system": "Sell nothing." })).await.ok();
    stage.post(&format!("/v1/approvals/{question}"), &json!({ "verdict": "approve" })).await.ok();
    let ended = stage.get(&format!("/v1/turns/{turn}?wait=20")).await.ok();
    assert_eq!(ended["end"]["text"], "paid 5", "{ended}");
    assert_eq!(stage.get(&format!("/v1/turns/{turn}/package")).await.ok()["system"], "Sell.");
    assert_eq!(stage.prompt_of("clerk").await, "Sell nothing.");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn config_from_another_process_is_loaded_or_reported() {
    let (stage, dir) = stage().await;
    stage.put("agent/clerk", json!({ "system": "Sell." })).await.ok();
    let beside = outlast::sqlite::SqliteStore::open(&dir.path().join("outlast.db")).unwrap();
    let keep = async |name: &str, body: Value| {
        beside.put_config(ConfigKind::Agent, name.to_owned(), body, Millis(7)).await.unwrap();
    };
    keep("judge", json!({ "system": "Judge." })).await;
    keep("clerk", json!({ "model": "nobody/x" })).await;
    while stage.get("/health/ready").await.ok().get("agents_left_out") != Some(&json!(1)) {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.prompt_of("judge").await, "Judge.");
    assert_eq!(stage.prompt_of("clerk").await, "Sell.");
    let why = "it cannot be built here, and the previous version answers: model.unknown: no provider serves the model `nobody/x`";
    assert_eq!(stage.get("/v1/configs/agent/clerk").await.ok()["note"], why);
    assert_eq!(stage.get("/v1/configs/agent").await.ok()["items"][0]["note"], why);
    stage.put("agent/clerk", json!({ "system": "Sell again." })).await.ok();
    assert_eq!(stage.get("/health/ready").await.ok().get("agents_left_out"), None);
    beside.delete_config(ConfigKind::Agent, "judge".to_owned(), None, Millis(8)).await.unwrap();
    while stage.get("/v1/agents/judge").await.status != 404 {
        tokio::task::yield_now().await;
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_stored_config_returns_a_note() {
    let (stage, _dir) = stage().await;
    let put = || stage.request("PUT", "/v1/configs/agent/clerk").json(&json!({ "system": "Sell." }));
    assert_eq!(put().send().await.ok().get("note"), None);
    let theirs = put().key(&stage.key("acme", "operate").await).send().await.ok();
    let note = theirs["note"].as_str().unwrap();
    assert!(note.starts_with("it is stored, but does not answer here: it belongs to org_"), "{note}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_agent_stops_answering_and_keeps_its_versions() {
    let (stage, _dir) = stage().await;
    stage.put("agent/clerk", json!({ "system": "Sell." })).await.ok();
    let delete = || stage.request("DELETE", "/v1/configs/agent/clerk");
    assert_eq!(delete().header("if-match", "\"7\"").send().await.code(), "config.changed");
    assert_eq!(delete().header("if-match", "\"1\"").send().await.status, 204);
    assert_eq!(delete().send().await.code(), "agent.not_found");
    assert_eq!(stage.get("/v1/configs/agent/clerk").await.status, 404);
    assert_eq!(stage.get("/v1/configs/agent").await.ok()["items"], json!([]));
    let said = json!({ "agent": "clerk", "text": "hello" });
    assert_eq!(stage.post("/v1/turns", &said).await.code(), "agent.not_found");
    let versions = stage.get("/v1/configs/agent/clerk/versions").await.ok();
    assert_eq!((&versions["items"][0]["version"], versions["items"][0].get("body")), (&json!(2), None));
    let differ = stage.get("/v1/configs/agent/clerk/diff?from=1&to=2").await;
    assert_eq!(differ.json()["detail"], "the agent `clerk` was deleted with version 2");
    // The condition holds, because the agent was deleted.
    let again = stage.request("PUT", "/v1/configs/agent/clerk").json(&json!({ "system": "Sell again." }));
    assert_eq!(again.header("if-none-match", "*").send().await.header("etag"), Some("\"3\""));
    assert_eq!(stage.prompt_of("clerk").await, "Sell again.");
    stage.stop().await;
}
