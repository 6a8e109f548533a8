//! Events over HTTP: no gaps and no duplicates, however often a reader reconnects.
use crate::client::Event;
use crate::stage::Stage;
use outlast::prelude::*;
use outlast::providers::Rehearsal;
use outlast::runtime::worker::system::SystemClock;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn ended(event: &Event) -> bool {
    event.name == "turn.ended"
}

fn durable(events: &[Event]) -> Vec<&Event> {
    events.iter().filter(|event| event.id.is_some()).collect()
}

#[tokio::test]
async fn reconnecting_reader_gets_every_event_once() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "hello").await;
    let path = format!("/v1/sessions/{}/events", receipt["session"].as_str().unwrap());
    let (whole, _) = stage.request("GET", &path).stream().await.until(ended).await;
    let numbers: Vec<u64> = whole.iter().filter_map(|event| event.id).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    for (place, last) in whole.iter().enumerate() {
        if place + 1 == whole.len() {
            break;
        }
        let again = stage.request("GET", &path).header("last-event-id", &last.id.unwrap().to_string());
        let (rest, _) = again.stream().await.until(ended).await;
        assert_eq!(rest, whole[place + 1..]);
    }
    stage.stop().await;
}

#[tokio::test]
async fn reader_continues_after_a_server_restart() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "one").await;
    let path = format!("/v1/sessions/{}/events", receipt["session"].as_str().unwrap());
    let (first, _) = stage.request("GET", &path).stream().await.until(ended).await;
    let (file, dir) = (stage.path(), stage.stop().await);
    let stage = Stage::on(&file, |policy| policy, ServerLimits::default()).await;
    stage.say("ann", "two").await;
    let last = first.last().unwrap().id.unwrap().to_string();
    let rest = stage.request("GET", &path).header("last-event-id", &last).stream().await.until(ended).await.0;
    let all = stage.get(&format!("{path}?limit=500")).await.ok();
    let read: Vec<Value> =
        first.iter().chain(durable(&rest)).filter(|e| e.id.is_some()).map(|e| e.data.clone()).collect();
    assert_eq!(json!(read), all["items"]);
    stage.stop().await;
    drop(dir);
}

#[tokio::test]
async fn streamed_text_equals_the_recorded_text() {
    let stage = Stage::new().await;
    let session = stage.post("/v1/sessions", &json!({})).await.ok()["id"].as_str().unwrap().to_owned();
    let stream = stage.request("GET", &format!("/v1/sessions/{session}/events")).stream().await;
    stage.post(&format!("/v1/sessions/{session}/turns"), &json!({ "text": "slowly" })).await.ok();
    let (events, _) = stream.until(ended).await;
    let text = |event: &&Event| event.name == "live" && event.data["data"]["type"] == "text";
    let streamed: String =
        events.iter().filter(text).map(|event| event.data["data"]["text"].as_str().unwrap()).collect();
    assert_eq!(streamed, "one two three four five six seven eight nine ten");
    assert!(events.iter().filter(text).count() > 3);
    assert!(events.iter().filter(text).all(|event| event.id.is_none()));
    assert_eq!(events.last().unwrap().data["data"]["end"]["answered"]["text"], streamed);
    stage.stop().await;
}

#[tokio::test]
async fn hundred_readers_of_one_session_see_equal_events() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "one").await;
    let session = receipt["session"].as_str().unwrap();
    let mut streams = Vec::new();
    for n in 0..100 {
        let path = format!("/v1/sessions/{session}/events?after={}", n % 7);
        streams.push(stage.request("GET", &path).stream().await);
    }
    let turn = stage.say("ann", "slowly").await["turn"].clone();
    let mut by_start = Vec::new();
    for (n, stream) in streams.into_iter().enumerate() {
        let turn = turn.clone();
        by_start.push((n % 7, stream.until(move |event| ended(event) && event.data["turn"] == turn).await.0));
    }
    let (_, whole) = by_start[0].clone();
    assert!(whole.iter().filter(|event| event.name == "live").count() > 3);
    for (after, events) in by_start {
        let expected: Vec<&Event> =
            whole.iter().filter(|event| event.id.is_none_or(|id| id > after as u64)).collect();
        assert_eq!(events.iter().collect::<Vec<_>>(), expected);
    }
    let all = stage.get(&format!("/v1/sessions/{session}/events?limit=500")).await.ok();
    assert_eq!(json!(durable(&whole).iter().map(|event| &event.data).collect::<Vec<_>>()), all["items"]);
    stage.stop().await;
}

#[tokio::test]
async fn running_route_lists_the_active_turns() {
    let stage = Stage::new().await;
    assert_eq!(stage.get("/v1/running").await.ok(), json!([]));
    let session = stage.post("/v1/sessions", &json!({})).await.ok()["id"].as_str().unwrap().to_owned();
    let stream = stage.request("GET", &format!("/v1/sessions/{session}/events")).stream().await;
    let path = format!("/v1/sessions/{session}/turns");
    let receipt = stage.post(&path, &json!({ "text": "for ever" })).await.ok();
    let (_, stream) = stream.until(|event| event.name == "live").await;
    let mut running = stage.get("/v1/running").await.ok();
    assert!(running[0].as_object_mut().unwrap().remove("since").unwrap().is_u64());
    assert_eq!(running, json!([{ "session": session, "turn": receipt["turn"], "agent": "assistant" }]));
    let cancel = format!("/v1/turns/{}/cancel", receipt["turn"].as_str().unwrap());
    stage.post(&cancel, &json!({ "reason": "seen" })).await.ok();
    stream.until(ended).await;
    stage.stop().await;
}

#[tokio::test]
async fn events_are_filtered_by_turn_type_and_agent() {
    let stage = Stage::new().await;
    let one = stage.say("ann", "one").await;
    let two = stage.say("ann", "two").await;
    stage.say("bob", "three").await;
    let names = |page: Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().clone();
        items.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    let path = format!("/v1/sessions/{}/events", one["session"].as_str().unwrap());
    let of_two = stage.get(&format!("{path}?turn={}", two["turn"].as_str().unwrap())).await.ok();
    assert_eq!(names(of_two), ["turn.accepted", "turn.started", "effect.performed", "turn.ended"]);
    let ends = stage.get("/v1/events?after=0&type=turn.ended,session.*").await.ok();
    assert_eq!(names(ends), ["session.opened", "turn.ended", "turn.ended", "session.opened", "turn.ended"]);
    let of_agent = stage.get("/v1/events?after=0&agent=assistant&type=turn.ended").await.ok();
    assert_eq!(names(of_agent).len(), 3);
    assert_eq!(names(stage.get("/v1/events?after=0&agent=nobody").await.ok()), Vec::<String>::new());
    let of_bob = stage.get("/v1/events?after=0&session=ses_00000000000000000000000000000001").await.ok();
    assert_eq!(names(of_bob), Vec::<String>::new());
    stage.stop().await;
}

#[tokio::test]
async fn empty_page_stops_at_the_search_limit() {
    let limits = ServerLimits { searched: 3, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let receipt = stage.say("ann", "one").await;
    let path = format!("/v1/sessions/{}/events?type=turn.ended", receipt["session"].as_str().unwrap());
    let page = stage.get(&format!("{path}&wait=20")).await.ok();
    assert_eq!(page, json!({ "items": [], "next": 3 }));
    let page = stage.get(&format!("{path}&after=3")).await.ok();
    assert_eq!((&page["items"][0]["seq"], &page["next"]), (&json!(5), &json!(5)));
    stage.stop().await;
}

#[tokio::test]
async fn page_waits_for_events_up_to_its_timeout() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "one").await;
    let path = format!("/v1/sessions/{}/events", receipt["session"].as_str().unwrap());
    let next = stage.get(&path).await.ok()["next"].as_u64().unwrap();
    let empty = stage.get(&format!("{path}?after={next}&wait=1")).await.ok();
    assert_eq!(empty, json!({ "items": [], "next": next }));
    let waiting = stage.request("GET", &format!("{path}?after={next}&wait=20&type=turn.ended")).send();
    let (page, _) = tokio::join!(waiting, stage.say("ann", "two"));
    assert_eq!(page.ok()["items"][0]["type"], "turn.ended");
    stage.stop().await;
}

#[tokio::test]
async fn stream_of_all_sessions_starts_with_new_events() {
    let stage = Stage::new().await;
    stage.say("ann", "one").await;
    let stream = stage.request("GET", "/v1/events?type=turn.ended").stream().await;
    let two = stage.say("bob", "two").await;
    let (events, _) = stream.until(ended).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].data["session"], two["session"]);
    stage.stop().await;
}

#[tokio::test]
async fn silent_stream_sends_heartbeats_until_shutdown() {
    let limits = ServerLimits { heartbeat: Duration::from_millis(20), ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let receipt = stage.say("ann", "one").await;
    let path = format!("/v1/sessions/{}/events", receipt["session"].as_str().unwrap());
    let last = stage.get(&path).await.ok()["next"].as_u64().unwrap();
    let stream = stage.request("GET", &format!("{path}?type=none")).stream().await;
    let reading = tokio::spawn(stream.raw());
    tokio::time::sleep(Duration::from_millis(200)).await;
    stage.stop().await;
    let raw = reading.await.unwrap();
    let alive = format!(": alive\nid: {last}\n\n");
    let (hello, rest) = raw.split_once("\n\n").unwrap();
    assert!(hello.starts_with("retry: "), "{hello}");
    let beats = rest.matches(&alive).count();
    assert!(beats >= 2, "{raw}");
    assert_eq!(rest.trim_start_matches(": alive\n\n"), alive.repeat(beats));
}

#[tokio::test(flavor = "multi_thread")]
async fn filtered_events_do_not_stop_heartbeats() {
    let limits = ServerLimits { heartbeat: Duration::from_millis(400), ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let receipt = stage.say("ann", "one").await;
    let one = format!("/v1/sessions/{}/events?type=none", receipt["session"].as_str().unwrap());
    let streams = [one.as_str(), "/v1/events?type=none"].map(|path| stage.request("GET", path).stream());
    let mut reading = Vec::new();
    for stream in streams {
        reading.push(tokio::spawn(stream.await.raw()));
    }
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        stage.say("ann", "more").await;
    }
    stage.stop().await;
    for raw in reading {
        let raw = raw.await.unwrap();
        assert!(raw.matches(": alive\n").count() >= 3, "{raw}");
    }
}

/// Takes a moment.
#[tool(idempotent)]
async fn moment() -> Result<String, Error> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok("done".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn unmapped_calls_do_not_stop_compat_heartbeats() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("any\n{}say done", "call moment {}\n---\n".repeat(15));
    let model = Rehearsal::scripted(script.parse().unwrap(), Arc::new(SystemClock));
    let builder = Outlast::at(dir.path().join("outlast.db")).provider(model).tool(moment);
    let limits = ServerLimits { heartbeat: Duration::from_millis(400), ..ServerLimits::default() };
    let stage = Stage::built(builder, |policy| policy, limits).await;
    let chat =
        json!({ "model": "assistant", "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    let raw = stage.request("POST", "/openai/v1/chat/completions").json(&chat).stream().await.raw().await;
    assert!(raw.ends_with("data: [DONE]\n\n"), "{raw}");
    assert!(raw.matches(": alive\n").count() >= 3, "{raw}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_loses_its_open_streams() {
    let stage = Stage::keyed().await;
    let (admin, key) = (stage.key("acme", "admin").await, stage.key("acme", "run").await);
    let made = stage.request("POST", "/v1/sessions").key(&key).json(&json!({})).send().await.ok();
    let of_session = format!("/v1/sessions/{}/events", made["id"].as_str().unwrap());
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let hello = stage.request("POST", "/mcp").json(&hello).key(&key);
    let hello = hello.header("accept", "application/json, text/event-stream").send().await;
    let mcp = hello.header("mcp-session-id").unwrap().to_owned();
    let chat =
        json!({ "model": "assistant", "stream": true, "messages": [{ "role": "user", "content": "later" }] });
    let requests = [
        stage.request("GET", &of_session).key(&key),
        stage.request("GET", "/v1/events").key(&key),
        stage.request("GET", "/mcp").key(&key).header("mcp-session-id", &mcp),
        stage.request("POST", "/openai/v1/chat/completions").key(&key).json(&chat),
    ];
    let mut reading = Vec::new();
    for request in requests {
        reading.push(tokio::spawn(request.stream().await.raw()));
    }
    let waits = stage.request("POST", "/v1/turns?wait=3").key(&key).json(&json!({ "text": "later" })).send();
    let waits = tokio::spawn(waits);
    let others = stage.request("GET", "/v1/events?type=turn.ended").key(&admin).stream().await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(reading.iter().all(|reading| !reading.is_finished()));

    let id = key.strip_prefix("olk_").unwrap().split_at(32).0;
    let gone = stage.request("DELETE", &format!("/v1/keys/key_{id}")).key(&admin).send().await;
    let revoked = Instant::now();
    assert!(gone.status < 300, "{gone:?}");
    for reading in reading {
        tokio::time::timeout(Duration::from_secs(10), reading).await.expect("the stream ends").unwrap();
    }
    assert!(revoked.elapsed() < Duration::from_millis(2_500), "{:?}", revoked.elapsed());
    // The waiting request is rejected, too.
    assert_eq!(waits.await.unwrap().status, 401);
    let said = stage.request("POST", "/v1/turns").key(&admin).json(&json!({ "text": "hello" })).send().await;
    assert_eq!(others.until(ended).await.0[0].data["turn"], said.ok()["turn"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_loses_its_running_downloads() {
    let stage = Stage::keyed().await;
    let (admin, key) = (stage.key("acme", "admin").await, stage.key("acme", "run").await);
    let large = "x".repeat(30 << 20);
    let form = format!(
        "--B\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{{\"text\": \"hello\"}}\r\n--B\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\ncontent-type: text/plain\r\n\r\n{large}\r\n--B--\r\n"
    );
    let form = stage.request("POST", "/v1/turns?wait=20").bytes("multipart/form-data; boundary=B", form);
    let session = form.key(&key).send().await.ok()["session"].as_str().unwrap().to_owned();
    let list = format!("/v1/sessions/{session}/attachments");
    let id = stage.request("GET", &list).key(&key).send().await.ok()["items"][0]["id"].clone();
    let bytes = stage.request("GET", &format!("{list}/{}", id.as_str().unwrap())).key(&key);
    let export = stage.request("GET", &format!("/v1/sessions/{session}/export")).key(&key);
    let downloads = [bytes.download().await, export.download().await];
    let stream = stage.request("GET", "/v1/events").key(&key).stream().await;

    let id = key.strip_prefix("olk_").unwrap().split_at(32).0;
    stage.request("DELETE", &format!("/v1/keys/key_{id}")).key(&admin).send().await.ok();
    // Everything that the key holds open ends at once.
    stream.raw().await;
    for download in downloads {
        let (came, whole) = download.rest().await;
        assert!(!whole && came < large.len(), "{came} bytes came");
    }
    stage.stop().await;
}

#[tokio::test]
async fn streams_of_a_caller_are_limited() {
    let limits = ServerLimits { streams_per_caller: 2, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let open = || stage.request("GET", "/v1/events").stream();
    let (one, two) = (open().await, open().await);
    let refused = stage.request("GET", "/v1/events").header("accept", "text/event-stream").send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "caller.busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop((one, two));
    stage.stop().await;
}

#[tokio::test]
async fn waiting_caller_leaves_capacity_for_others() {
    let limits = ServerLimits { requests_per_caller: 2, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let key = stage.key("default", "read").await;
    let wait = || tokio::spawn(stage.request("GET", "/v1/events?wait=2").send());
    let waiting = [wait(), wait()];
    let refused = loop {
        let answer = stage.get("/v1/sessions").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.code().as_str()), (429, "caller.busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(stage.request("GET", "/v1/sessions").key(&key).send().await.status, 200);
    for waited in waiting {
        assert_eq!(waited.await.unwrap().status, 200);
    }
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
    stage.stop().await;
}
