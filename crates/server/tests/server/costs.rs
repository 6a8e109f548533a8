//! Costs over HTTP.
use crate::stage::Stage;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};

#[tokio::test]
async fn costs_are_reported_per_day() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let cost = stage.get("/v1/cost?by=model&per=day").await.ok();
    let day = cost["items"][0]["day"].as_str().unwrap_or_default();
    assert_eq!((cost["items"][0]["replies"].as_u64(), day.len()), (Some(1), "2026-11-16".len()), "{cost}");
    assert_eq!(stage.get("/v1/cost?per=week").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_follow_turns_deletions_and_imports() {
    let stage = Stage::new().await;
    let first = stage.say("ann", "hello").await;
    let costs = async || {
        let by = async |by: &str| stage.get(&format!("/v1/cost?by={by}")).await.ok()["items"].clone();
        (by("session").await, by("turn").await, by("model").await)
    };
    let replies = |items: &Value| -> Vec<u64> {
        items.as_array().unwrap().iter().map(|item| item["replies"].as_u64().unwrap()).collect()
    };
    let one = costs().await;
    assert_eq!((replies(&one.0), replies(&one.1), replies(&one.2)), (vec![1], vec![1], vec![1]));
    stage.say("ann", "hello again").await;
    let second = stage.say("bob", "hello").await;
    let three = costs().await;
    assert_eq!(
        (replies(&three.0), replies(&three.1), replies(&three.2)),
        (vec![2, 1], vec![1, 1, 1], vec![3])
    );
    assert_eq!(three.0[1]["name"], second["session"]);
    let path = format!("/v1/sessions/{}", first["session"].as_str().unwrap());
    let file = stage.get(&format!("{path}/export")).await;
    assert_eq!(stage.request("DELETE", &path).send().await.status, 204);
    let left = costs().await;
    assert_eq!((replies(&left.0), replies(&left.1), replies(&left.2)), (vec![1], vec![1], vec![1]));
    let import =
        stage.request("POST", "/v1/import?key=ann").bytes("application/x-ndjson", file.body.as_bytes());
    assert_eq!(import.send().await.status, 201);
    assert_eq!(costs().await, three);
    assert_eq!(costs().await, three);
    stage.stop().await;
}

#[tokio::test]
async fn foreign_costs_are_hidden_and_entries_are_limited() {
    let stage = Stage::keyed_with(ServerLimits { cost_entries: 1, ..ServerLimits::default() }).await;
    let (acme, other) = (stage.key("acme", "run").await, stage.key("other", "run").await);
    let say = |key: &str| {
        stage.request("POST", "/v1/turns?wait=20").key(key).json(&json!({ "text": "hello" })).send()
    };
    let cost = |key: &str| stage.request("GET", "/v1/cost").key(key).send();
    say(&acme).await.ok();
    assert_eq!(cost(&acme).await.ok()["items"][0]["replies"], 1);
    assert_eq!(cost(&other).await.ok()["items"], json!([]));
    let said = say(&acme).await.ok();
    assert_eq!(cost(&acme).await.code(), "limit.exceeded");
    let path = format!("/v1/cost?session={}", said["session"].as_str().unwrap());
    let alone = stage.request("GET", &path).key(&acme).send().await.ok();
    assert_eq!(alone["items"][0]["replies"], 1);
    stage.stop().await;
}
