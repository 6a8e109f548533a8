//! Export, import and rerun of sessions over HTTP.
use crate::stage::{Stage, agent};
use outlast_server::rerun::{RerunRequest, Rerunner};
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn exported_session_is_imported_with_every_record() {
    let (here, there) = (Stage::new().await, Stage::new().await);
    let said = here.say("ann", "hello").await;
    let session = said["session"].as_str().unwrap();
    let file = here.get(&format!("/v1/sessions/{session}/export")).await;
    assert_eq!(file.header("content-type"), Some("application/x-ndjson"));
    let named = format!("attachment; filename=\"{session}.jsonl\"");
    assert_eq!(file.header("content-disposition"), Some(named.as_str()));
    let import = |query: &str, body: &str| {
        let request = there.request("POST", &format!("/v1/import{query}"));
        request.bytes("application/x-ndjson", body.as_bytes()).send()
    };
    let cut = import("", &file.body[..file.body.len() / 2]).await;
    assert_eq!(cut.code(), "archive.invalid");
    let taken = import("?key=bob", &file.body).await;
    assert_eq!(taken.status, 201, "{taken:?}");
    assert_eq!(taken.json()["session"], session);
    assert_eq!(import("", &file.body).await.code(), "archive.exists");
    let path = format!("/v1/sessions/{session}/messages");
    assert_eq!(there.get(&path).await.ok(), here.get(&path).await.ok());
    assert_eq!(there.get(&format!("/v1/sessions/{session}")).await.ok()["key"], "bob");
    assert_eq!(there.get("/v1/search?q=hello").await.ok()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_rerun_agents_has_no_rerun_route() {
    let stage = Stage::new().await;
    let said = stage.say("ann", "hello").await;
    let path = format!("/v1/sessions/{}/rerun", said["session"].as_str().unwrap());
    assert_eq!(stage.post(&path, &json!({})).await.code(), "route.not_found");
}

/// A server whose rerun function reports what it would run, and for which organisation.
async fn rerunning() -> (Stage, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let by: Rerunner = Arc::new(|again: RerunRequest| {
        Box::pin(async move { Ok(json!({ "org": again.org.name.as_str(), "live": again.live })) })
    });
    let builder = agent(&dir.path().join("outlast.db"));
    (Stage::serving(builder, |server| server.rerunner(by)).await, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn rerun_is_audited_and_live_calls_need_operate() {
    let (stage, _dir) = rerunning().await;
    let (run, operate) = (stage.key("acme", "run").await, stage.key("acme", "operate").await);
    let say = stage.request("POST", "/v1/turns?wait=20").key(&run).json(&json!({ "text": "hello" }));
    let session = say.send().await.ok()["session"].as_str().unwrap().to_owned();
    let rerun = |key: &str, options: Value| {
        stage.request("POST", &format!("/v1/sessions/{session}/rerun")).key(key).json(&options).send()
    };
    let plain = rerun(&run, json!({ "model": "rehearsal/agent" })).await.ok();
    assert_eq!(plain, json!({ "org": "acme", "live": false }));
    for options in [json!({ "live": true }), json!({ "run_at_most_once": true })] {
        let refused = rerun(&run, options).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "access.denied"));
    }
    assert_eq!(rerun(&operate, json!({ "live": true, "prompt": "Be brief." })).await.ok()["live"], true);
    let audit = stage.request("GET", "/v1/audit").key(&stage.key("acme", "admin").await).send().await.ok();
    let noted: Vec<(&str, &str, &str)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|act| act["subject"] == session.as_str())
        .map(|act| {
            (act["by"].as_str().unwrap(), act["act"].as_str().unwrap(), act["detail"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        noted,
        [
            ("service:test", "session.rerun", "model `rehearsal/agent`"),
            ("service:test", "session.rerun_live", "live, another prompt")
        ]
    );
    stage.stop().await;
}
