//! Behaviour that all compatible APIs share. `cli/tests` runs the official clients.
use crate::stage::{Stage, agent};
use outlast_ports::hook::{AfterModel, HookAt, HookStage};
use outlast_vocab::hook::{HookCall, ReplyPatch};
use outlast_vocab::limits::{Limits, ServerLimits};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn keyless_compat_endpoint_accepts_any_key() {
    let stage = Stage::new().await;
    let models = |key: &str| stage.request("GET", "/openai/v1/models").key(key).send();
    assert_eq!(models("none").await.ok()["data"][0]["id"], "assistant");
    // A key with our prefix must be valid, and the native API accepts no other keys.
    assert_eq!(models("olk_7").await.status, 401);
    assert_eq!(stage.request("GET", "/v1/agents").key("none").send().await.status, 401);
    stage.stop().await;
}

#[tokio::test]
async fn compat_errors_use_the_shape_of_their_api() {
    let stage = Stage::new().await;
    let foreign_host = stage.request("GET", "/openai/v1/models").header("host", "evil.example").send().await;
    assert_eq!(
        (foreign_host.status, foreign_host.json()["error"]["code"].as_str()),
        (403, Some("origin.denied"))
    );
    let nowhere = stage.get("/openai/v1/embeddings").await;
    assert_eq!(
        (nowhere.status, nowhere.json()),
        (
            404,
            json!({"error": {
                "message": "there is no route `/openai/v1/embeddings`; /openapi.json lists them",
                "type": "invalid_request_error", "param": null, "code": "route.not_found",
            }})
        )
    );
    let not_so = stage.request("DELETE", "/openai/v1/models").send().await;
    assert_eq!((not_so.status, not_so.json()["error"]["code"].as_str()), (405, Some("route.method")));
    let broken = stage.request("POST", "/openai/v1/responses").bytes("application/json", "{").send().await;
    assert_eq!((broken.status, broken.json()["error"]["code"].as_str()), (400, Some("input.invalid")));
    stage.stop().await;
}

#[tokio::test]
async fn missing_parameter_is_named() {
    let stage = Stage::new().await;
    for (path, body, param) in [
        ("/openai/v1/chat/completions", json!({ "model": "assistant" }), "messages"),
        ("/openai/v1/chat/completions", json!({ "messages": [] }), "model"),
        ("/anthropic/v1/messages", json!({ "model": "assistant", "max_tokens": 9 }), "messages"),
    ] {
        let refused = stage.post(path, &body).await;
        let error = &refused.json()["error"];
        let message = format!("missing field `{param}`");
        assert_eq!((refused.status, text(&error["param"])), (400, param), "{path}: {error}");
        assert_eq!(text(&error["message"]), message, "{path}");
    }
    let wrong = stage.post("/openai/v1/chat/completions", &json!("hello")).await.json();
    assert_eq!(wrong["error"]["param"], Value::Null);
    assert!(text(&wrong["error"]["message"]).starts_with("the body is invalid: invalid type: string"));
    stage.stop().await;
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[tokio::test]
async fn waiting_turn_outlives_its_compat_request() {
    let limits = ServerLimits { wire_wait: Duration::from_millis(200), ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let asked =
        stage.post("/openai/v1/responses", &json!({ "input": "later", "metadata": { "a": "b" } })).await.ok();
    assert_eq!((text(&asked["status"]), text(&asked["model"])), ("in_progress", "assistant"));
    let turn = text(&asked["id"]).replace("resp_", "trn_");
    let why = loop {
        let why = stage.get(&format!("/v1/turns/{turn}/why")).await.ok();
        if why["waits"][0]["completion"].is_string() {
            break why;
        }
    };
    let path = format!("/openai/v1/responses/{}", text(&asked["id"]));
    let waiting = stage.get(&path).await.ok();
    assert_eq!(
        (text(&waiting["output"][0]["name"]), text(&waiting["output"][0]["status"])),
        ("later", "in_progress")
    );
    let completion = format!("/v1/completions/{}", text(&why["waits"][0]["completion"]));
    stage.post(&completion, &json!({ "ok": "done" })).await.ok();
    stage.get(&format!("/v1/turns/{turn}?wait=20")).await.ok();
    let over = stage.get(&path).await.ok();
    assert_eq!((text(&over["status"]), &over["metadata"]), ("completed", &json!({ "a": "b" })));
    assert_eq!(text(&over["output"][0]["output"]), "done");
    assert_eq!(text(&over["output"][1]["content"][0]["text"]), "done");
    let chat = json!({ "model": "assistant", "messages": [{ "role": "user", "content": "later" }] });
    let waits = stage.post("/openai/v1/chat/completions", &chat).await;
    assert_eq!((waits.status, waits.code().as_str()), (424, "turn.waits"));
    assert_eq!(waits.header("x-should-retry"), Some("false"));
    stage.stop().await;
}

#[tokio::test]
async fn wire_request_fails_when_its_provider_stays_down() {
    let dir = tempfile::tempdir().unwrap();
    let quick = Limits { model_attempts: 1, ..Limits::default() };
    let limits = ServerLimits { wire_provider_wait: Duration::from_secs(1), ..ServerLimits::default() };
    let stage =
        Stage::built(agent(&dir.path().join("outlast.db")).limits(quick), |policy| policy, limits).await;
    let messages = json!([{ "role": "user", "content": "down" }]);
    for (path, body) in [
        ("/openai/v1/chat/completions", json!({ "model": "assistant", "messages": messages })),
        ("/anthropic/v1/messages", json!({ "model": "assistant", "max_tokens": 100, "messages": messages })),
    ] {
        let answer = stage.post(path, &body).await;
        assert_eq!((answer.status, answer.header("x-should-retry")), (406, Some("false")), "{path}");
    }
    // A turn of the native API waits for its provider.
    let turn = stage.post("/v1/turns", &json!({ "session_key": "ann", "text": "down" })).await.json();
    let why = loop {
        let why = stage.get(&format!("/v1/turns/{}/why", text(&turn["turn"]))).await.ok();
        if why["standing"] == "waits" {
            break why;
        }
    };
    assert_eq!(
        (text(&why["waits"][0]["moved_by"]), text(&why["waits"][0]["provider"])),
        ("provider", "rehearsal")
    );
    stage.stop().await;
}

#[tokio::test]
async fn wire_request_fails_at_once_on_refused_key() {
    // With the default limits, such a turn of the native API would wait for a person.
    let stage = Stage::new().await;
    let messages = json!([{ "role": "user", "content": "locked" }]);
    for (path, body) in [
        ("/openai/v1/chat/completions", json!({ "model": "assistant", "messages": messages })),
        ("/anthropic/v1/messages", json!({ "model": "assistant", "max_tokens": 100, "messages": messages })),
    ] {
        let answer = stage.post(path, &body).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, text(&error["code"])), (406, "model.unauthorized"), "{path}");
        let message = format!("model.unauthorized: the key is of no use ({})", text(&error["turn"]));
        assert_eq!(text(&error["message"]), message, "{path}");
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{path}");
    }
    // A failed response is an object of its API, not an error.
    let input = json!({ "model": "assistant", "input": "locked" });
    let response = stage.post("/openai/v1/responses", &input).await.ok();
    let error =
        json!({ "type": "server_error", "code": "model.unauthorized", "message": "the key is of no use" });
    assert_eq!((text(&response["status"]), &response["error"]), ("failed", &error));
    stage.stop().await;
}

/// Cancels the running turn, once there is one.
async fn cancel_running(stage: &Stage) {
    let turn = loop {
        let sessions = stage.get("/v1/sessions").await.ok();
        let active =
            sessions["items"].as_array().unwrap().iter().find_map(|session| session["active"].as_str());
        if let Some(turn) = active {
            break turn.to_owned();
        }
    };
    stage.post(&format!("/v1/turns/{turn}/cancel"), &json!({ "reason": "enough" })).await.ok();
}

#[tokio::test]
async fn cancelled_turn_answers_with_a_final_status() {
    let stage = Stage::new().await;
    let messages = json!([{ "role": "user", "content": "for ever" }]);
    for (path, body) in [
        ("/openai/v1/chat/completions", json!({ "model": "assistant", "messages": messages })),
        ("/anthropic/v1/messages", json!({ "model": "assistant", "max_tokens": 100, "messages": messages })),
    ] {
        let answer = tokio::spawn(stage.request("POST", path).json(&body).send());
        cancel_running(&stage).await;
        let answer = answer.await.unwrap();
        let error = &answer.json()["error"];
        assert_eq!((answer.status, text(&error["code"])), (406, "turn.cancelled"), "{path}");
        let message = format!("turn.cancelled: the turn was cancelled: enough ({})", text(&error["turn"]));
        assert_eq!(text(&error["message"]), message, "{path}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn cancelled_response_stream_ends_with_its_failure() {
    let stage = Stage::new().await;
    let asked = json!({ "model": "assistant", "input": "for ever", "stream": true });
    let stream = stage.request("POST", "/openai/v1/responses").json(&asked).stream().await;
    cancel_running(&stage).await;
    let (events, _) = stream
        .until(|event| event.name.starts_with("response.") && event.data["response"]["error"].is_object())
        .await;
    let last = events.last().unwrap();
    let response = &last.data["response"];
    assert_eq!((last.name.as_str(), text(&response["status"])), ("response.failed", "cancelled"));
    let message = "the turn was cancelled: enough";
    assert_eq!(
        response["error"],
        json!({ "type": "server_error", "code": "turn.cancelled", "message": message })
    );
    stage.stop().await;
}

#[tokio::test]
async fn text_block_has_no_null_citations() {
    let stage = Stage::new().await;
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let asked = json!({ "model": "assistant", "max_tokens": 100, "messages": messages });
    let message = stage.post("/anthropic/v1/messages", &asked).await.ok();
    assert_eq!(message["content"], json!([{ "type": "text", "text": "Reply to hello." }]));
    stage.stop().await;
}

#[tokio::test]
async fn nulls_and_empty_lists_mean_nothing() {
    let stage = Stage::new().await;
    let hello = json!({ "role": "user", "content": "hello" });
    for (path, body) in [
        (
            "/openai/v1/chat/completions",
            json!({
                "model": "assistant",
                "messages": [hello, { "role": "assistant", "content": null, "tool_calls": null }, hello],
                "tools": [], "tool_choice": null, "parallel_tool_calls": false, "stop": [], "functions": [],
                "response_format": null, "metadata": null, "stream_options": null, "seed": null,
            }),
        ),
        (
            "/openai/v1/responses",
            json!({
                "input": [{ "role": "user", "content": "hello" }, { "role": "assistant", "content": [] }, hello],
                "tools": [], "tool_choice": null, "parallel_tool_calls": false, "text": null, "metadata": null,
                "reasoning": { "effort": null, "summary": null }, "instructions": null, "conversation": null,
            }),
        ),
        (
            "/anthropic/v1/messages",
            json!({
                "model": "assistant", "max_tokens": 100, "system": "",
                "messages": [hello, { "role": "assistant", "content": [] }, hello],
                "tools": [], "tool_choice": { "type": "auto", "disable_parallel_tool_use": true },
                "stop_sequences": [], "output_config": null, "thinking": null,
            }),
        ),
    ] {
        let answer = stage.post(path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn native_turn_is_readable_as_a_response() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "hello").await;
    let id = text(&receipt["turn"]).replace("trn_", "resp_");
    let response = stage.get(&format!("/openai/v1/responses/{id}")).await.ok();
    assert_eq!(text(&response["output"][0]["content"][0]["text"]), "Reply to hello.");
    let more = json!({ "input": "more", "previous_response_id": id });
    let more = stage.post("/openai/v1/responses", &more).await.ok();
    assert_eq!(text(&more["conversation"]["id"]).replace("conv_", "ses_"), text(&receipt["session"]));
    stage.stop().await;
}

/// Sends a conversation to the Responses API, as clients do that keep it themselves.
async fn respond(stage: &Stage, items: &[Value]) -> Value {
    stage.post("/openai/v1/responses", &json!({ "model": "assistant", "input": items })).await.ok()
}

#[tokio::test]
async fn repeated_responses_conversation_stays_one_session() {
    let stage = Stage::new().await;
    let user = |text: &str| json!({ "role": "user", "content": text });
    let mut items = vec![user("a thread")];
    let mut sessions = Vec::new();
    for next in ["first", "second", "third"] {
        let response = respond(&stage, &items).await;
        sessions.push(text(&response["conversation"]["id"]).to_owned());
        items.extend(response["output"].as_array().unwrap().clone());
        items.push(user(next));
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1);
    // A changed message is another conversation, and so is one that only begins with the same words.
    items[0] = user("another thread");
    sessions.push(text(&respond(&stage, &items).await["conversation"]["id"]).to_owned());
    sessions.push(text(&respond(&stage, &[user("a thread")]).await["conversation"]["id"]).to_owned());
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 3);
    stage.stop().await;
}

const CHAT: &str = "/openai/v1/chat/completions";

fn chat(text: &str) -> Value {
    json!({ "model": "assistant", "messages": [{ "role": "user", "content": text }] })
}

#[tokio::test]
async fn complete_answer_uses_the_durable_text() {
    let dir = tempfile::tempdir().unwrap();
    let mask = |_: HookCall, _: <AfterModel as HookStage>::Seen| {
        std::future::ready(Ok(Some(ReplyPatch { text: "It is a secret.".to_owned() })))
    };
    let hook = HookAt::new::<AfterModel>("mask", mask).unwrap();
    let builder = agent(&dir.path().join("outlast.db")).hook(hook);
    let stage = Stage::built(builder, |policy| policy, ServerLimits::default()).await;
    let completion = stage.post(CHAT, &chat("slowly")).await.ok();
    assert_eq!(text(&completion["choices"][0]["message"]["content"]), "It is a secret.");
    let mut asked = chat("slowly");
    asked["stream"] = json!(true);
    let streamed = stage.post(CHAT, &asked).await;
    let last = streamed.body.trim().rsplit("data: ").next().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(text(&last["error"]["code"]), "stream.retracted");
    stage.stop().await;
}

#[tokio::test]
async fn shutdown_tells_waiting_clients_the_turn_continues() {
    let stage = Stage::new().await;
    let completion = tokio::spawn(stage.request("POST", CHAT).json(&chat("later")).send());
    let asked = json!({ "model": "assistant", "input": "later" });
    let response = tokio::spawn(stage.request("POST", "/openai/v1/responses").json(&asked).send());
    loop {
        let sessions = stage.get("/v1/sessions").await.ok();
        let parked = |session: &&Value| session["state"] == "parked";
        if sessions["items"].as_array().unwrap().iter().filter(parked).count() == 2 {
            break;
        }
    }
    stage.stop().await;
    let (completion, response) = (completion.await.unwrap(), response.await.unwrap());
    assert_eq!((completion.status, completion.code().as_str()), (424, "turn.waits"));
    assert_eq!(completion.header("x-should-retry"), Some("false"));
    assert_eq!(text(&response.ok()["status"]), "in_progress");
}
