//! Full-text search, the context of a model, and the costs of sessions and approvals.
use crate::stage::Stage;
use serde_json::{Value, json};

fn excerpts(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|hit| format!("{}: {}", hit["role"].as_str().unwrap(), hit["excerpt"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_messages_in_one_or_all_sessions() {
    let stage = Stage::new().await;
    let one = stage.say("one", "the invoice of Bern").await;
    stage.say("two", "another Invoice").await;
    let found = stage.get("/v1/search?q=INVO").await.ok();
    assert_eq!(
        excerpts(&found),
        [
            "assistant: Reply to another Invoice.",
            "user: another Invoice",
            "assistant: Reply to the invoice of Bern.",
            "user: the invoice of Bern",
        ]
    );
    let session = one["session"].as_str().unwrap();
    let within = stage.get(&format!("/v1/search?q=invoice+bern&session={session}")).await.ok();
    assert_eq!(excerpts(&within).len(), 2);
    assert_eq!(within["items"][1]["turn"], one["turn"]);
    let first = stage.get("/v1/search?q=invoice&limit=3").await.ok();
    let next = format!("/v1/search?q=invoice&limit=3&cursor={}", first["next"].as_str().unwrap());
    assert_eq!(excerpts(&stage.get(&next).await.ok()), ["user: the invoice of Bern"]);
    // Operators of the search index are plain words here.
    assert_eq!(excerpts(&stage.get("/v1/search?q=invoice+OR+nothing").await.ok()), [""; 0]);
    assert_eq!(stage.get("/v1/search?q=%22%2A").await.code(), "input.invalid");
    assert_eq!(stage.get("/v1/search").await.code(), "input.invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn search_hides_messages_of_other_organisations() {
    let stage = Stage::keyed().await;
    let (ours, theirs) = (stage.key("acme", "run").await, stage.key("other", "run").await);
    let body = json!({ "session_key": "s", "text": "a canary" });
    let sent = stage.request("POST", "/v1/turns?wait=20").key(&ours).json(&body).send().await.ok();
    let search = |key: String, path: String| {
        let request = stage.request("GET", &path).key(&key);
        async move { request.send().await }
    };
    let all = "/v1/search?q=canary".to_owned();
    assert_eq!(excerpts(&search(ours, all.clone()).await.ok()).len(), 2);
    assert_eq!(excerpts(&search(theirs.clone(), all.clone()).await.ok()), [""; 0]);
    let within = format!("{all}&session={}", sent["session"].as_str().unwrap());
    assert_eq!(search(theirs, within).await.code(), "session.not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_context_reports_the_size_of_its_parts() {
    let stage = Stage::new().await;
    let said = stage.say("one", "hello").await;
    let path = format!("/v1/sessions/{}/context", said["session"].as_str().unwrap());
    let context = stage.get(&path).await.ok();
    let who: Vec<&str> = context["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["who"].as_str().unwrap())
        .collect();
    assert_eq!(who, ["user", "assistant"]);
    assert_eq!(context["messages"][0]["text"], "hello");
    let sum: u64 =
        context["parts"].as_array().unwrap().iter().map(|part| part["tokens"].as_u64().unwrap()).sum();
    assert_eq!(context["tokens"].as_u64().unwrap(), sum);
    assert_eq!(stage.get(&format!("{path}?head=none")).await.code(), "node.not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_approvals_show_their_cost() {
    let stage = Stage::new().await;
    stage.park("s", "pay joe").await;
    let session = stage.get("/v1/sessions").await.ok()["items"][0].clone();
    assert_eq!(session["cost"], "0");
    let question = stage.get("/v1/approvals").await.ok()["items"][0].clone();
    let said = ["cost", "needed", "for_session", "reminded", "votes"].map(|name| question[name].clone());
    assert_eq!(said, [json!("0"), json!(1), json!(true), json!(0), json!([])]);
}
