//! Sessions of MCP clients: ownership and limits. `crates/cli/tests/cli/mcp_server.rs` tests with the
//! official SDK what clients do in them.
use crate::client::{Answer, Request};
use crate::stage::{Stage, agent};
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::approval::Escalation;
use outlast::vocab::policy::{ApprovalRequirement, Policy, PolicyDecision, Rule};
use outlast::vocab::record::Fact;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The revision in which every request contains all information about its client.
const NEWEST: &str = "2026-07-28";

fn hello() -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn post(stage: &Stage, body: &Value) -> Request {
    stage.request("POST", "/mcp").json(body).header("accept", "application/json, text/event-stream")
}

/// Calls the agent with these arguments, as a client that supports elicitation, and returns the result.
async fn called(stage: &Stage, arguments: &Value) -> Value {
    call_with(stage, arguments, &json!({})).send().await.mcp()
}

/// Returns the same call as a request, with additional `_meta`.
fn call_with(stage: &Stage, arguments: &Value, meta: &Value) -> Request {
    let mut meta = meta.clone();
    meta["io.modelcontextprotocol/protocolVersion"] = json!(NEWEST);
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": { "form": {} } });
    let params = json!({ "name": "assistant", "arguments": arguments, "_meta": meta });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let request = post(stage, &request).header("mcp-protocol-version", NEWEST);
    request.header("mcp-method", "tools/call").header("mcp-name", "assistant")
}

/// Returns the text of a result.
fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// A model that is never called.
fn silent() -> Rehearsal {
    let script: Script = "any\nsay Nothing.".parse().unwrap();
    Rehearsal::scripted(script, Arc::new(SystemClock))
}

fn session(answer: &Answer) -> String {
    answer.header("mcp-session-id").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

#[tokio::test]
async fn mcp_session_belongs_to_its_opener() {
    let stage = Stage::keyed().await;
    let (acme, bolt) = (stage.key("acme", "admin").await, stage.key("bolt", "admin").await);
    let opened = session(&post(&stage, &hello()).key(&acme).send().await);
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let go_on =
        |key: &str, session: &str| post(&stage, &ready).key(key).header("mcp-session-id", session).send();
    assert_eq!(go_on(&acme, &opened).await.status, 202);
    let (theirs, nobodys) = (go_on(&bolt, &opened).await, go_on(&bolt, "never-given-out").await);
    let problem = |answer: &Answer| (answer.code(), answer.json()["detail"].clone());
    assert_eq!((theirs.status, problem(&theirs)), (404, problem(&nobodys)));
    for method in ["GET", "DELETE"] {
        let request = stage.request(method, "/mcp").header("accept", "text/event-stream");
        let answer = request.key(&bolt).header("mcp-session-id", &opened).send().await;
        assert_eq!(answer.status, 404, "{method}: {answer:?}");
    }
    assert_eq!(go_on(&acme, &opened).await.status, 202);
    stage.stop().await;
}

#[tokio::test]
async fn mcp_sessions_are_limited_in_total() {
    let limits = ServerLimits { mcp_sessions: 2, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let first = session(&post(&stage, &hello()).send().await);
    assert_eq!(post(&stage, &hello()).send().await.status, 200);
    let refused = post(&stage, &hello()).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "server.busy"));
    // Requests that open no session are not limited.
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert!(![429, 503].contains(&post(&stage, &ping).send().await.status));
    let left = stage.request("DELETE", "/mcp").header("mcp-session-id", &first).send().await;
    assert!(left.status < 300, "{left:?}");
    assert_eq!(post(&stage, &hello()).send().await.status, 200);
    stage.stop().await;
}

#[tokio::test]
async fn mcp_sessions_are_limited_per_caller() {
    let limits = ServerLimits { mcp_sessions_per_caller: 1, ..ServerLimits::default() };
    let stage = Stage::keyed_with(limits).await;
    let (acme, bolt) = (stage.key("acme", "admin").await, stage.key("bolt", "admin").await);
    let open = |key: &str| post(&stage, &hello()).key(key).send();
    assert_eq!(open(&acme).await.status, 200);
    let refused = open(&acme).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "caller.busy"));
    assert_eq!(open(&bolt).await.status, 200);
    stage.stop().await;
}

#[tokio::test]
async fn mcp_response_counts_as_a_stream() {
    let limits = ServerLimits { streams_per_caller: 1, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let stream = stage.request("GET", "/v1/events").stream().await;
    let refused = post(&stage, &hello()).send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "caller.busy"));
    drop(stream);
    stage.stop().await;
}

#[tokio::test]
async fn mcp_messages_obey_the_body_limits() {
    let limits = ServerLimits { body_bytes: 1_000, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "x".repeat(2_000) });
    assert_eq!(post(&stage, &large).send().await.status, 413);
    let twice = r#"{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}"#;
    let twice = stage.request("POST", "/mcp").bytes("application/json", twice);
    assert_eq!(twice.send().await.code(), "input.invalid");
    let site = post(&stage, &hello()).header("origin", "https://evil.example").send().await;
    assert_eq!((site.status, site.code().as_str()), (403, "origin.denied"));
    stage.stop().await;
}

#[tokio::test]
async fn recovered_stuck_turn_is_reported_as_it_ended() {
    let stage = Stage::new().await;
    let parked = stage.park("s", "later").await;
    let turn = parked["turn"].as_str().unwrap().to_owned();
    let why = stage.get(&format!("/v1/turns/{turn}/why")).await.ok();
    let completion = format!("/v1/completions/{}", why["waits"][0]["completion"].as_str().unwrap());
    let dir = stage.stop().await.unwrap();
    let path = dir.path().join("outlast.db");

    let without = Outlast::at(&path).provider(silent());
    let stage = Stage::built(without, |policy| policy, ServerLimits::default()).await;
    stage.post(&completion, &json!({ "ok": "late" })).await.ok();
    let stuck = called(&stage, &json!({ "turn": turn })).await;
    assert_eq!(stuck["structuredContent"]["status"], "stuck", "{stuck}");
    stage.stop().await;

    let stage = Stage::on(&path, |policy| policy, ServerLimits::default()).await;
    stage.request("POST", &format!("/v1/turns/{turn}/retry")).send().await.ok();
    let over = called(&stage, &json!({ "turn": turn })).await;
    assert_eq!((&over["structuredContent"]["status"], text(&over)), (&json!("answered"), "late"), "{over}");
    stage.stop().await;
}

#[tokio::test]
async fn client_user_is_asked_with_reason_when_eligible() {
    let escalate = Escalation { after: Duration::from_millis(1), to: vec!["ann".to_owned()] };
    let ask = |escalate| ApprovalRequirement {
        who: vec!["bob".to_owned()],
        reason: Some("It is money.".into()),
        escalate,
        ..ApprovalRequirement::default()
    };
    let with = |ask| {
        let rule =
            Rule { tool: "pay".to_owned(), ..Rule::new("large".parse().unwrap(), PolicyDecision::Ask(ask)) };
        let dir = tempfile::tempdir().unwrap();
        (agent(&dir.path().join("outlast.db")).policy(Policy { rules: vec![rule] }), dir)
    };
    let (bobs, _dir) = with(ask(None));
    let stage = Stage::built(bobs, |policy| policy, ServerLimits::default()).await;
    let waits = &called(&stage, &json!({ "message": "pay" })).await["structuredContent"]["waits"][0];
    assert_eq!((&waits["who"], &waits["reason"]), (&json!(["bob"]), &json!("It is money.")));
    stage.stop().await;

    let (by_now_anns, _dir) = with(ask(Some(Box::new(escalate))));
    let stage = Stage::built(by_now_anns, |policy| policy, ServerLimits::default()).await;
    let turn = stage.park("s", "pay").await["turn"].clone();
    while stage.get("/v1/approvals").await.ok()["items"][0]["escalated"] != true {
        tokio::task::yield_now().await;
    }
    let asked = called(&stage, &json!({ "turn": turn })).await;
    let (_, asked) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let lines: Vec<&str> = asked["params"]["message"].as_str().unwrap().lines().collect();
    assert!(lines.contains(&"The rule `large` requires an approval: It is money."), "{lines:?}");
    stage.stop().await;
}

#[tokio::test]
async fn mcp_call_joins_the_trace_of_its_request() {
    let stage = Stage::new().await;
    let (said, header) = (
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203332-01",
    );
    let hi = json!({ "message": "hi" });
    let requests = [
        (call_with(&stage, &hi, &json!({ "traceparent": said })).header("traceparent", header), Some(said)),
        (call_with(&stage, &hi, &json!({})).header("traceparent", header), Some(header)),
        (call_with(&stage, &hi, &json!({ "traceparent": "nonsense" })), None),
    ];
    for (request, parent) in requests {
        let turn = request.send().await.mcp()["structuredContent"]["turn"].as_str().unwrap().parse().unwrap();
        let first = stage.outlast.store().turn_records(turn).await.unwrap().remove(0);
        let Fact::Accepted(accepted) = first.fact else { panic!("{first:?}") };
        assert_eq!(accepted.traceparent.map(|parent| parent.to_string()).as_deref(), parent);
    }
    stage.stop().await;
}
