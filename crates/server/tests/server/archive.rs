//! Sessions as files over HTTP (R14.7).
use crate::stage::Stage;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_exported_is_imported_elsewhere_with_every_record() {
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
async fn a_server_that_knows_no_agents_to_run_sessions_again_says_so() {
    let stage = Stage::new().await;
    let said = stage.say("ann", "hello").await;
    let path = format!("/v1/sessions/{}/rerun", said["session"].as_str().unwrap());
    assert_eq!(stage.post(&path, &json!({})).await.code(), "route.not_found");
}
