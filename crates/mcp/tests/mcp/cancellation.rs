//! A server is notified when a call is cancelled.
use crate::stage::{Stub, agent, tools};
use outlast::Outlast;
use outlast_mcp::McpServerSettings;
use serde_json::Value;
use std::time::Duration;

/// A server whose one tool never answers.
fn silent() -> Stub {
    Stub::new(|method, _| (method == "tools/list").then(|| tools(&["wait"])))
}

const SCRIPT: &str = "call stub.wait {}\n---\nsay {{result 0}}";

/// Returns the messages that the server receives about a call whose turn is cancelled.
async fn cancelled(stub: &Stub, outlast: &Outlast) -> (Value, Value) {
    let turn = outlast.session("ann").send("go").await.unwrap();
    let call = stub.hears("tools/call", 1).await.remove(0);
    turn.cancel("enough").await.unwrap();
    turn.outcome().await.unwrap();
    (
        call["id"].clone(),
        stub.hears("notifications/cancelled", 1).await.remove(0)["params"]["requestId"].clone(),
    )
}

#[tokio::test]
async fn server_is_notified_of_call_timeout() {
    let stub = silent();
    let settings =
        McpServerSettings { deadline: Some(Duration::from_millis(200)), ..McpServerSettings::default() };
    let outlast = agent(stub.in_memory(), settings, SCRIPT).await;
    let said = outlast.session("ann").send("go").await.unwrap().answer().await.unwrap();
    assert_eq!(said, "error tool.timed_out: the tool did not finish within 200 ms");
    let notices = stub.hears("notifications/cancelled", 1).await;
    assert_eq!(notices[0]["params"]["requestId"], stub.received("tools/call")[0]["id"]);
}

#[tokio::test]
async fn server_is_notified_of_turn_cancellation() {
    let stub = silent();
    let outlast = agent(stub.in_memory(), McpServerSettings::default(), SCRIPT).await;
    let (call, notices) = cancelled(&stub, &outlast).await;
    assert_eq!(call, notices);
}

#[tokio::test]
async fn http_server_is_notified_of_turn_cancellation() {
    let stub = silent();
    let outlast = agent(stub.over_http().await, McpServerSettings::default(), SCRIPT).await;
    let (call, notices) = cancelled(&stub, &outlast).await;
    assert_eq!(call, notices);
}
