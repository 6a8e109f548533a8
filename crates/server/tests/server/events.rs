//! Events over HTTP: no gap and no repeat, however often a reader comes back (R14.2, G22).
use crate::client::Event;
use crate::stage::Stage;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::time::Duration;

fn ended(event: &Event) -> bool {
    event.name == "turn.ended"
}

fn durable(events: &[Event]) -> Vec<&Event> {
    events.iter().filter(|event| event.id.is_some()).collect()
}

#[tokio::test]
async fn a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice() {
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
async fn a_reader_goes_on_after_the_server_was_started_anew() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "one").await;
    let path = format!("/v1/sessions/{}/events", receipt["session"].as_str().unwrap());
    let (first, _) = stage.request("GET", &path).stream().await.until(ended).await;
    let (file, dir) = (stage.path(), stage.stop().await);
    let stage = Stage::on(&file, |door| door, ServerLimits::default()).await;
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
async fn text_is_streamed_as_it_is_said_and_is_the_text_of_the_record() {
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
async fn a_page_waits_for_what_comes_and_not_longer() {
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
async fn all_sessions_are_followed_from_now_on() {
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
async fn a_stream_that_is_silent_says_that_it_is_alive_and_ends_with_the_server() {
    let limits = ServerLimits { heartbeat: Duration::from_millis(20), ..ServerLimits::default() };
    let stage = Stage::with(|door| door, limits).await;
    let receipt = stage.say("ann", "one").await;
    let path = format!("/v1/sessions/{}/events?type=none", receipt["session"].as_str().unwrap());
    let stream = stage.request("GET", &path).stream().await;
    let reading = tokio::spawn(stream.until(|_| false));
    tokio::time::sleep(Duration::from_millis(100)).await;
    stage.stop().await;
    assert_eq!(reading.await.unwrap().0, []);
}

#[tokio::test]
async fn a_caller_has_so_many_streams_and_no_more_s42() {
    let limits = ServerLimits { streams_per_caller: 2, ..ServerLimits::default() };
    let stage = Stage::with(|door| door, limits).await;
    let open = || stage.request("GET", "/v1/events").stream();
    let (one, two) = (open().await, open().await);
    let refused = stage.request("GET", "/v1/events").header("accept", "text/event-stream").send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "server.busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop((one, two));
    stage.stop().await;
}
