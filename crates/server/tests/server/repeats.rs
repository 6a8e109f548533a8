//! Requests to compatible APIs that are sent again without an idempotency key.
use crate::client::Answer;
use crate::stage::{Stage, later};
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::keys::ApiKeyGrant;
use outlast::runtime::worker::system::SystemClock;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";
const MESSAGES: &str = "/anthropic/v1/messages";

fn chat(text: &str) -> Value {
    json!({ "model": "assistant", "messages": [{ "role": "user", "content": text }] })
}

/// Returns the turn of an answer, and whether the request joined it.
#[track_caller]
fn turn_of(answer: &Answer) -> (String, bool) {
    let turn = answer.header("outlast-turn").unwrap_or_else(|| panic!("no turn: {answer:?}"));
    (turn.to_owned(), answer.header("outlast-repeat") == Some("joined"))
}

/// Returns the turns that wait, once there are this many.
async fn waiting(stage: &Stage, count: usize) -> Vec<String> {
    loop {
        let sessions = stage.get("/v1/sessions").await.ok();
        let parked = |session: &&Value| session["state"] == "parked";
        let sessions = sessions["items"].as_array().unwrap().iter().filter(parked);
        let turns: Vec<String> =
            sessions.map(|session| session["active"].as_str().unwrap().to_owned()).collect();
        if turns.len() == count {
            return turns;
        }
    }
}

/// Completes the call that a turn waits for.
async fn complete(stage: &Stage, turn: &str) {
    let why = stage.get(&format!("/v1/turns/{turn}/why")).await.ok();
    let completion = why["waits"][0]["completion"].as_str().unwrap().to_owned();
    stage.post(&format!("/v1/completions/{completion}"), &json!({ "ok": "done" })).await.ok();
}

async fn turns(stage: &Stage) -> usize {
    stage.get("/v1/sessions").await.ok()["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn repeat_of_a_broken_stream_joins_its_turn() {
    let stage = Stage::new().await;
    for (path, asked) in [
        (RESPONSES, json!({ "model": "assistant", "input": "later", "stream": true })),
        (
            CHAT,
            json!({ "model": "assistant", "messages": [{ "role": "user", "content": "later" }], "stream": true }),
        ),
        (
            MESSAGES,
            json!({ "model": "assistant", "max_tokens": 9, "messages": [{ "role": "user", "content": "later" }], "stream": true }),
        ),
    ] {
        let stream = stage.request("POST", path).json(&asked).stream().await;
        let turn = waiting(&stage, 1).await.remove(0);
        drop(stream);
        // Claude Code repeats a request without streaming, and with another bound on the reply.
        let mut again = asked.clone();
        (again["stream"], again["max_tokens"]) = (json!(false), json!(5));
        if path != MESSAGES {
            again.as_object_mut().unwrap().remove("max_tokens");
        }
        let again = tokio::spawn(stage.request("POST", path).json(&again).send());
        complete(&stage, &turn).await;
        let again = again.await.unwrap();
        assert_eq!((again.status, turn_of(&again)), (200, (turn, true)), "{path}");
        assert_eq!(again.header("outlast-repeat-window"), Some("120"), "{path}");
        assert!(again.body.contains("done"), "{path}: {again:?}");
    }
    assert_eq!(turns(&stage).await, 3);
    stage.stop().await;
}

#[tokio::test]
async fn same_text_after_stop_continues_the_turn() {
    let stage = Stage::new().await;
    // A person stops a reply: the connection closes, and the turn goes on.
    let stopped = stage.request("POST", CHAT).json(&chat("later")).begin().await;
    let turn = waiting(&stage, 1).await.remove(0);
    drop(stopped);
    // Another text is another request.
    let other = stage.post(CHAT, &chat("hello")).await;
    assert!(!turn_of(&other).1);
    let same = tokio::spawn(stage.request("POST", CHAT).json(&chat("later")).send());
    complete(&stage, &turn).await;
    assert_eq!(turn_of(&same.await.unwrap()), (turn, true));
    // Its answer was delivered now, so the next one is new.
    let next = stage.request("POST", CHAT).json(&chat("later")).begin().await;
    waiting(&stage, 1).await;
    drop(next);
    stage.stop().await;
}

#[tokio::test]
async fn equal_parallel_requests_are_separate_turns() {
    let stage = Stage::new().await;
    let ask = || tokio::spawn(stage.request("POST", CHAT).json(&chat("later")).send());
    let (one, two) = (ask(), ask());
    for turn in waiting(&stage, 2).await {
        complete(&stage, &turn).await;
    }
    let ((one, one_joined), (two, two_joined)) = (turn_of(&one.await.unwrap()), turn_of(&two.await.unwrap()));
    assert_ne!(one, two);
    assert_eq!((one_joined, two_joined), (false, false));
    stage.stop().await;
}

#[tokio::test]
async fn of_two_repeats_at_once_one_joins() {
    let stage = Stage::new().await;
    let broken = stage.request("POST", CHAT).json(&chat("later")).begin().await;
    let first = waiting(&stage, 1).await.remove(0);
    drop(broken);
    let ask = || tokio::spawn(stage.request("POST", CHAT).json(&chat("later")).send());
    let (one, two) = (ask(), ask());
    for turn in waiting(&stage, 2).await {
        complete(&stage, &turn).await;
    }
    let answers = [turn_of(&one.await.unwrap()), turn_of(&two.await.unwrap())];
    assert_eq!(answers.iter().filter(|(turn, joined)| *turn == first && *joined).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|(turn, joined)| *turn != first && !*joined).count(), 1, "{answers:?}");
    stage.stop().await;
}

#[tokio::test]
async fn answered_request_joins_only_with_a_retry_hint() {
    let stage = Stage::new().await;
    let first = turn_of(&stage.post(CHAT, &chat("hello")).await);
    let second = turn_of(&stage.post(CHAT, &chat("hello")).await);
    assert_ne!(first.0, second.0);
    assert_eq!((first.1, second.1), (false, false));
    let retry = |count: &str| {
        let request = stage.request("POST", CHAT).json(&chat("hello"));
        request.header("x-stainless-retry-count", count).send()
    };
    assert_eq!(turn_of(&retry("1").await), (second.0, true));
    // A client that does not count sends 0 with every request.
    assert!(!turn_of(&retry("0").await).1);
    stage.stop().await;
}

#[tokio::test]
async fn delivered_failure_is_delivered_again() {
    let stage = Stage::new().await;
    for (path, asked, status) in [
        (CHAT, chat("locked"), 406),
        (
            MESSAGES,
            json!({ "model": "assistant", "max_tokens": 9, "messages": [{ "role": "user", "content": "locked" }] }),
            406,
        ),
        (RESPONSES, json!({ "model": "assistant", "input": "locked" }), 200),
    ] {
        let failed = stage.post(path, &asked).await;
        let again = stage.post(path, &asked).await;
        assert_eq!((failed.status, again.status), (status, status), "{path}");
        assert_eq!(turn_of(&again), (turn_of(&failed).0, true), "{path}");
        // A person who knows better starts a new turn.
        let forced = stage.request("POST", path).json(&asked).header("outlast-repeat", "never").send().await;
        assert_eq!((turn_of(&forced).0 == turn_of(&failed).0, turn_of(&forced).1), (false, false), "{path}");
    }
    let wrong = stage.request("POST", CHAT).json(&chat("hello")).header("outlast-repeat", "always");
    let wrong = wrong.send().await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "input.invalid"));
    stage.stop().await;
}

#[tokio::test]
async fn repeat_after_the_window_is_a_new_turn() {
    let limits = ServerLimits { repeat_window: Duration::from_millis(1), ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let first = turn_of(&stage.post(CHAT, &chat("locked")).await).0;
    // Failures that are delivered again do not extend the window.
    loop {
        let (turn, joined) = turn_of(&stage.post(CHAT, &chat("locked")).await);
        assert_eq!(turn == first, joined);
        if !joined {
            break;
        }
    }
    stage.stop().await;
}

#[tokio::test]
async fn without_a_window_every_request_is_new() {
    let limits = ServerLimits { repeat_window: Duration::ZERO, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let (one, two) = (stage.post(CHAT, &chat("locked")).await, stage.post(CHAT, &chat("locked")).await);
    assert_ne!(turn_of(&one).0, turn_of(&two).0);
    assert_eq!((two.header("outlast-repeat"), two.header("outlast-repeat-window")), (Some("new"), None));
    stage.stop().await;
}

#[tokio::test]
async fn nobody_joins_the_turn_of_another_caller() {
    let stage = Stage::keyed().await;
    let runtime = stage.outlast.operator().runtime().clone();
    let acme = stage.key("acme", "run").await;
    let org = runtime.find_org("acme").await.unwrap();
    let grant = ApiKeyGrant {
        org,
        by: "service:other".parse().unwrap(),
        scopes: "run".parse().unwrap(),
        expires: None,
    };
    let colleague = runtime.issue_key(grant).await.unwrap().reveal();
    let keys = [acme, colleague, stage.key("rival", "run").await];
    let ask = |key: &str| stage.request("POST", CHAT).json(&chat("locked")).key(key).send();
    let mut known = Vec::new();
    for key in &keys {
        let (turn, joined) = turn_of(&ask(key).await);
        assert!(!joined && !known.contains(&turn));
        known.push(turn);
    }
    for (key, turn) in keys.iter().zip(known) {
        assert_eq!(turn_of(&ask(key).await), (turn, true));
    }
    stage.stop().await;
}

#[tokio::test]
async fn idempotency_key_decides_alone() {
    let stage = Stage::new().await;
    let keyed =
        |key: &str| stage.request("POST", CHAT).json(&chat("locked")).header("idempotency-key", key).send();
    let (one, two, again) = (keyed("1").await, keyed("2").await, keyed("1").await);
    assert_ne!(turn_of(&one).0, turn_of(&two).0);
    assert_eq!(turn_of(&again), (turn_of(&one).0, true));
    assert_eq!(again.header("outlast-repeat-window"), None);
    assert!(!turn_of(&stage.post(CHAT, &chat("locked")).await).1);
    stage.stop().await;
}

#[tokio::test]
async fn equal_background_responses_are_separate_turns() {
    let stage = Stage::new().await;
    let asked = json!({ "model": "assistant", "input": "later", "background": true });
    let (one, two) = (stage.post(RESPONSES, &asked).await, stage.post(RESPONSES, &asked).await);
    assert_ne!(turn_of(&one).0, turn_of(&two).0);
    stage.stop().await;
}

static CHARGES: AtomicUsize = AtomicUsize::new(0);

/// Charges somebody.
#[tool]
async fn charge() -> Result<String, Error> {
    CHARGES.fetch_add(1, Ordering::SeqCst);
    Ok("charged".to_owned())
}

/// Returns an agent that charges once, and then waits for a completion.
fn charging(path: &Path) -> outlast::Builder {
    let script: Script =
        "any\ncall charge {}\n---\ncall later {}\n---\nsay {{result later}}".parse().unwrap();
    let model = Rehearsal::scripted(script, Arc::new(SystemClock));
    Outlast::at(path).provider(model).tool(charge).tool(later)
}

#[tokio::test]
async fn repeat_after_restart_charges_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outlast.db");
    let start = || Stage::built(charging(&path), |policy| policy, ServerLimits::default());
    let stage = start().await;
    let unanswered = stage.request("POST", CHAT).json(&chat("charge")).begin().await;
    let turn = waiting(&stage, 1).await.remove(0);
    stage.stop().await;
    drop(unanswered);
    let stage = start().await;
    let again = tokio::spawn(stage.request("POST", CHAT).json(&chat("charge")).send());
    complete(&stage, &turn).await;
    let again = again.await.unwrap();
    assert_eq!((again.status, turn_of(&again)), (200, (turn, true)));
    assert_eq!((CHARGES.load(Ordering::SeqCst), turns(&stage).await), (1, 1));
    stage.stop().await;
}

#[tokio::test]
async fn repeat_waits_for_the_replaced_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outlast.db");
    let start = || Stage::on(&path, |policy| policy, ServerLimits::default());
    let old = start().await;
    let unanswered = old.request("POST", CHAT).json(&chat("later")).begin().await;
    let turn = waiting(&old, 1).await.remove(0);
    let new = start().await;
    let again = tokio::spawn(new.request("POST", CHAT).json(&chat("later")).send());
    old.stop().await;
    drop(unanswered);
    complete(&new, &turn).await;
    assert_eq!(turn_of(&again.await.unwrap()), (turn, true));
    assert_eq!(turns(&new).await, 1);
    new.stop().await;
}

#[tokio::test]
async fn nobody_joins_a_turn_of_another_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outlast.db");
    let start = || Stage::on(&path, |policy| policy, ServerLimits::default());
    let (one, two) = (start().await, start().await);
    let ask = |stage: &Stage| tokio::spawn(stage.request("POST", CHAT).json(&chat("later")).send());
    let first = ask(&one);
    waiting(&one, 1).await;
    let second = ask(&two);
    for turn in waiting(&two, 2).await {
        complete(&two, &turn).await;
    }
    let (first, second) = (turn_of(&first.await.unwrap()), turn_of(&second.await.unwrap()));
    assert_ne!(first.0, second.0);
    assert_eq!((first.1, second.1), (false, false));
    one.stop().await;
    two.stop().await;
}
