//! Pagination: reads every list of the OpenAPI document to its end.
use crate::stage::{self, Stage};
use outlast::sink::{Sink, SinkOutput, SubscribedSink};
use outlast::vocab::rate::{RateLimit, RatePeriod};
use outlast::vocab::{Error, Kind};
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};

/// A sink that rejects everything permanently.
struct RejectingSink;

impl Sink for RejectingSink {
    fn place(&self) -> String {
        "a wall".to_owned()
    }

    fn deliver<'a>(&'a self, _: &'a SinkOutput) -> outlast_ports::ResultFuture<'a, ()> {
        Box::pin(async { Err(Error::new(Kind::DeliveryRefused, "it is a wall")) })
    }
}

/// Waits until all deliveries were given up.
async fn given_up(stage: &Stage) {
    loop {
        let sinks = stage.get("/v1/sinks").await.ok();
        let of = |what: &str| sinks["items"][0][what].as_u64().unwrap();
        if of("dead") >= 3 && of("due") == 0 && of("behind") == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Creates three of everything that is listed.
async fn furnished(stage: &Stage) -> String {
    for name in ["ann", "bob", "cid"] {
        // Approving for the session creates a grant, and the call counts against every rate.
        stage.park(name, "pay joe").await;
        let pending = stage.get("/v1/approvals").await.ok();
        let path = format!("/v1/approvals/{}", pending["items"][0]["id"].as_str().unwrap());
        stage.post(&path, &json!({ "verdict": "approve_for_session" })).await.ok();
        stage.post("/v1/orgs", &json!({ "name": name })).await.ok();
        stage.post("/v1/keys", &json!({ "by": "service:ci", "scopes": "read" })).await.ok();
        for (kind, text) in [(name, "One."), ("clerk", name)] {
            let put = stage.request("PUT", &format!("/v1/configs/agent/{kind}"));
            put.json(&json!({ "system": text })).send().await.ok();
        }
        let budget = stage.request("PUT", &format!("/v1/budgets/agent:{name}"));
        assert_eq!(budget.json(&json!({ "tokens": 9_000_000 })).send().await.status, 204);
        stage.lose_a_call(None).await;
    }
    for name in ["dan", "eve", "fay"] {
        stage.park(name, "pay joe").await;
    }
    let mut session = String::new();
    for text in ["hello one", "hello two", "hello three"] {
        let form = format!(
            "--x\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{{\"text\": \"{text}\", \"session_key\": \"gil\"}}\r\n\
             --x\r\ncontent-disposition: form-data; name=\"f\"; filename=\"f\"\r\ncontent-type: text/plain\r\n\r\n{text}\r\n--x--\r\n"
        );
        let sent = stage.request("POST", "/v1/turns?wait=20").bytes("multipart/form-data; boundary=x", form);
        sent.send().await.ok()["session"].as_str().unwrap().clone_into(&mut session);
    }
    session
}

/// Returns every list of the OpenAPI document with a `next` cursor.
fn lists() -> Vec<String> {
    let document = serde_json::to_value(outlast_server::document()).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let mut lists = Vec::new();
    for (path, item) in paths {
        let get = &item["get"];
        let names: Vec<&str> =
            get["parameters"].as_array().into_iter().flatten().filter_map(|of| of["name"].as_str()).collect();
        // Events continue from a number, and the compatible APIs paginate like their providers.
        if !names.contains(&"limit") || path.ends_with("/events") || !path.starts_with("/v1/") {
            continue;
        }
        assert!(names.contains(&"cursor"), "{path} has pages and no way on");
        lists.push(path.clone());
    }
    lists
}

async fn walked(stage: &Stage, path: &str) -> Vec<Value> {
    let (mut items, mut next) = (Vec::new(), None);
    loop {
        let cursor = next.map_or_else(String::new, |next| format!("&cursor={next}"));
        let page = stage.get(&format!("{path}limit=1{cursor}")).await.ok();
        items.extend(page["items"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(cursor) => next = Some(cursor.to_owned()),
            None => return items,
        }
    }
}

#[tokio::test]
async fn every_list_pages_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let rate = |name: &str| {
        RateLimit::new(name.parse().unwrap(), "pay", 1_000.try_into().unwrap(), RatePeriod::Second)
    };
    let builder = stage::with_hang(&dir.path().join("outlast.db")).rates(["a", "b", "c"].map(rate));
    let builder = builder.sink(SubscribedSink::new("clerk", RejectingSink).unwrap());
    let stage = Stage::built(builder, |policy| policy, ServerLimits::default()).await;
    let session = furnished(&stage).await;
    given_up(&stage).await;
    let lists = lists();
    assert!(lists.len() >= 16, "{lists:?}");
    for list in lists {
        let path = list.replace("{session}", &session).replace("{kind}", "agent").replace("{name}", "clerk");
        let path = match list.rsplit('/').next() {
            Some("search") => format!("{path}?q=hello&"),
            Some("cost") => format!("{path}?by=turn&"),
            _ => format!("{path}?"),
        };
        let whole = stage.get(&format!("{path}limit=500")).await.ok();
        assert_eq!(whole.get("next"), None, "{list}");
        let whole = whole["items"].as_array().unwrap().clone();
        assert!(whole.len() >= 3, "{list}: {whole:?}");
        let mut walked = walked(&stage, &path).await;
        // Pages of messages start with the newest.
        if list.ends_with("/messages") {
            walked.reverse();
        }
        assert_eq!(walked, whole, "{list}");
        let wrong = stage.get(&format!("{path}cursor=cur_00")).await;
        assert_eq!((wrong.status, wrong.code().as_str()), (400, "input.invalid"), "{list}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn decision_between_pages_hides_no_approval() {
    let stage = Stage::new().await;
    for name in ["ann", "bob", "cid"] {
        stage.park(name, "pay joe").await;
    }
    let all = stage.get("/v1/approvals").await.ok()["items"].clone();
    let first = stage.get("/v1/approvals?limit=1").await.ok();
    assert_eq!(first["items"][0], all[0]);
    let path = format!("/v1/approvals/{}", all[0]["id"].as_str().unwrap());
    stage.post(&path, &json!({ "verdict": "deny", "reason": "no" })).await.ok();
    let rest = stage.get(&format!("/v1/approvals?cursor={}", first["next"].as_str().unwrap())).await.ok();
    assert_eq!(rest["items"], json!([all[1], all[2]]));
    stage.stop().await;
}

#[tokio::test]
async fn messages_between_pages_cause_no_gap_or_duplicate() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let session = stage.park("ann", "pay joe").await["session"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}/messages?limit=1");
    let said = |page: &Value| page["items"][0]["text"].as_str().unwrap().to_owned();
    // The turn has not ended.
    let first = stage.get(&path).await.ok();
    let all = stage.get(&format!("/v1/sessions/{session}/messages")).await.ok()["items"].clone();
    assert_eq!(first["items"][0], all[3]);
    let pending = stage.get("/v1/approvals").await.ok()["items"][0]["id"].as_str().unwrap().to_owned();
    stage.post(&format!("/v1/approvals/{pending}"), &json!({ "verdict": "approve" })).await.ok();
    stage.say("ann", "and more").await;
    let on = |page: &Value| format!("{path}&cursor={}", page["next"].as_str().unwrap());
    let second = stage.get(&on(&first)).await.ok();
    assert_eq!(said(&second), "pay joe");
    let third = stage.get(&on(&second)).await.ok();
    assert_eq!(said(&third), "Reply to hello.");
    // Rewind the head to before the messages that were read.
    let rewind = json!({ "to": all[0]["seq"] });
    stage.post(&format!("/v1/sessions/{session}/rewind"), &rewind).await.ok();
    let last = stage.get(&on(&third)).await.ok();
    assert_eq!((said(&last), &last["next"]), ("hello".to_owned(), &Value::Null));
    stage.stop().await;
}

#[tokio::test]
async fn messages_are_counted_by_role() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let receipt = stage.park("ann", "pay joe").await;
    let path = format!("/v1/sessions/{}/messages", receipt["session"].as_str().unwrap());
    let count = stage.get(&format!("{path}/count")).await.ok();
    assert_eq!(count, json!({ "all": 4, "user": 2, "assistant": 2, "tool": 0 }));
    assert_eq!(stage.get(&path).await.ok()["items"].as_array().unwrap().len(), 4);
    assert_eq!(stage.get(&format!("{path}/count?head=none")).await.code(), "node.not_found");
    stage.stop().await;
}

#[tokio::test]
async fn sessions_show_and_filter_their_last_end() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let failed = stage.say("bob", "wrong").await;
    let stuck = stage.post("/v1/turns", &json!({ "session_key": "cid", "text": "locked" })).await.ok();
    stage.post("/v1/turns", &json!({ "session_key": "dan", "text": "later" })).await.ok();
    let keys = async |last_end: &str| {
        let page = stage.get(&format!("/v1/sessions?last_end={last_end}")).await.ok();
        let items = page["items"].as_array().unwrap().clone();
        assert!(items.iter().all(|item| item["last_end"] == last_end), "{items:?}");
        items.iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    while keys("stuck").await.is_empty() {
        tokio::task::yield_now().await;
    }
    let found = (keys("answered").await, keys("failed").await, keys("stuck").await);
    assert_eq!(found, (vec!["ann".to_owned()], vec!["bob".to_owned()], vec!["cid".to_owned()]));
    for (receipt, end) in [(&failed, "failed"), (&stuck, "stuck")] {
        let path = format!("/v1/sessions/{}", receipt["session"].as_str().unwrap());
        let session = stage.get(&path).await.ok();
        assert_eq!((&session["last_end"], &session["last_turn"]), (&json!(end), &receipt["turn"]));
    }
    // A session whose first turn has not ended has no such field.
    let all = stage.get("/v1/sessions").await.ok();
    let dan = all["items"].as_array().unwrap().iter().find(|item| item["key"] == "dan").unwrap();
    assert_eq!(dan.get("last_end"), None);
    let unknown = stage.get("/v1/sessions?last_end=lost").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (400, "input.invalid"));
    stage.stop().await;
}
