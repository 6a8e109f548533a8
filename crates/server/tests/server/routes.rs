//! Tests of single routes.
use crate::stage::{Stage, agent};
use expect_test::expect_file;
use outlast::vocab::policy::{ApprovalRequirement, Policy, PolicyDecision, PolicyPoint, Rule};
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn checked_in_openapi_document_matches_the_code() {
    let document = outlast_server::document();
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    expect_file!["../../../../docs/openapi.json"].assert_eq(&text);
}

#[test]
fn operations_have_unique_names_and_described_responses() {
    let document = serde_json::to_value(outlast_server::document()).unwrap();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{method} {path} is called {name} like another one");
            for (status, response) in operation["responses"].as_object().unwrap() {
                let said = response["description"].as_str().unwrap_or_default();
                assert!(!said.is_empty(), "{method} {path}: {status}");
            }
        }
    }
}

/// Types with the same name would share one schema in the OpenAPI document, so one of their routes would be
/// wrong.
#[test]
fn openapi_types_have_unique_names() {
    fn sources(dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for name in ["api", "compat", "server"] {
        sources(&crates.join(name).join("src"), &mut found);
    }
    let mut names = BTreeSet::new();
    for source in &found {
        for derived in source.split("ToSchema)]").skip(1) {
            let mut words = derived.split(|c: char| !c.is_alphanumeric() && c != '_');
            let name = words.find(|word| ["struct", "enum"].contains(word)).and_then(|_| words.next());
            let name = name.unwrap();
            assert!(names.insert(name), "two types are called {name}");
        }
    }
    assert!(names.len() > 50, "{names:?}");
}

#[test]
fn responses_are_documented_by_status_number() {
    let document = serde_json::to_value(outlast_server::document()).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for status in operation["responses"].as_object().unwrap().keys() {
                assert!(status.parse::<u16>().is_ok(), "{method} {path}: {status}");
            }
        }
    }
}

#[tokio::test]
async fn accepted_input_is_durable_and_its_turn_readable() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "hello").await;
    assert_eq!(receipt["end"], json!({ "how": "answered", "text": "Reply to hello." }));
    let turn = stage.get(&format!("/v1/turns/{}", receipt["turn"].as_str().unwrap())).await.ok();
    assert_eq!((&turn["state"], &turn["agent"]), (&json!("ended"), &json!("assistant")));
    assert_eq!(turn["end"], receipt["end"]);
    assert_eq!(turn["durability"]["commits"], 2);
    assert!(turn["durability"]["bytes"].as_u64().unwrap() > 100);
    let session = stage.get(&format!("/v1/sessions/{}", receipt["session"].as_str().unwrap())).await.ok();
    assert_eq!(
        (&session["key"], &session["title"], &session["state"]),
        (&json!("ann"), &json!("hello"), &json!("idle"))
    );
    stage.stop().await;
}

#[tokio::test]
async fn idempotency_key_returns_same_turn_and_rejects_changes() {
    let stage = Stage::new().await;
    let id = stage.post("/v1/sessions", &json!({ "key": "ann" })).await.ok()["id"].clone();
    let path = format!("/v1/sessions/{}/turns", id.as_str().unwrap());
    let send = |text: &str| {
        stage.request("POST", &path).header("idempotency-key", "k").json(&json!({ "text": text })).send()
    };
    let first = send("hello").await;
    assert_eq!(first.status, 202);
    let (first, again) = (first.json(), send("hello").await.ok());
    assert_eq!((&again["turn"], &again["duplicate"]), (&first["turn"], &json!(true)));
    let other = send("goodbye").await;
    assert_eq!((other.status, other.code().as_str()), (409, "input.key_reused"));
    stage.stop().await;
}

#[tokio::test]
async fn idempotency_key_works_without_a_session() {
    let stage = Stage::new().await;
    let send = |text: &str| {
        let request = stage.request("POST", "/v1/turns?wait=20").header("idempotency-key", "k");
        request.json(&json!({ "text": text })).send()
    };
    let first = send("hello").await.ok();
    let again = send("hello").await.ok();
    assert_eq!((&again["session"], &again["turn"]), (&first["session"], &first["turn"]));
    assert_eq!((&first["duplicate"], &again["duplicate"]), (&json!(false), &json!(true)));
    let other = send("goodbye").await;
    assert_eq!((other.status, other.code().as_str()), (409, "input.key_reused"));
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"].as_array().unwrap().len(), 1);
    stage.stop().await;
}

#[tokio::test]
async fn a_request_with_two_idempotency_keys_is_refused() {
    let stage = Stage::new().await;
    for path in ["/v1/turns", "/openai/v1/responses", "/anthropic/v1/messages"] {
        let request =
            stage.request("POST", path).header("idempotency-key", "a").again("idempotency-key", "b");
        let refused = request.json(&json!({ "text": "hello" })).send().await;
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        let said = refused.body.contains("the header `idempotency-key` appears twice");
        assert!(said, "{path}: {refused:?}");
    }
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn sessions_are_listed_searched_and_paged() {
    let stage = Stage::new().await;
    for name in ["ann", "bob", "cid"] {
        stage.say(name, &format!("I am {name}")).await;
    }
    let keys = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["key"].as_str().unwrap().to_owned()).collect()
    };
    let first = stage.get("/v1/sessions?limit=2").await.ok();
    assert_eq!(keys(&first), ["cid", "bob"]);
    let next = first["next"].as_str().unwrap();
    let second = stage.get(&format!("/v1/sessions?limit=2&cursor={next}")).await.ok();
    assert_eq!((keys(&second), second.get("next")), (vec!["ann".to_owned()], None));
    assert_eq!(keys(&stage.get("/v1/sessions?search=AM%20BOB").await.ok()), ["bob"]);
    assert_eq!(keys(&stage.get("/v1/sessions?key=cid").await.ok()), ["cid"]);
    assert_eq!(keys(&stage.get("/v1/sessions?state=parked").await.ok()), Vec::<String>::new());
    for wrong in ["cursor=cur_00", "limit=0", "state=asleep", "what=1", "limit=x"] {
        let refused = stage.get(&format!("/v1/sessions?{wrong}")).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "input.invalid"), "{wrong}");
    }
    assert_eq!(stage.get("/v1/sessions?limit=501").await.code(), "limit.exceeded");
    stage.stop().await;
}

#[tokio::test]
async fn model_call_shows_prompt_tools_and_messages() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let receipt = stage.park("ann", "pay joe").await;
    let approval = stage.get("/v1/approvals").await.ok()["items"][0]["id"].clone();
    let path = format!("/v1/approvals/{}", approval.as_str().unwrap());
    stage.post(&path, &json!({ "verdict": "approve" })).await.ok();
    let turn = receipt["turn"].as_str().unwrap();
    stage.get(&format!("/v1/turns/{turn}?wait=20")).await.ok();
    let effects = stage.get(&format!("/v1/turns/{turn}/effects")).await.ok();
    let last = effects["items"].as_array().unwrap().last().unwrap()["key"].as_str().unwrap().to_owned();
    let path = format!("/v1/turns/{turn}/effects/request");
    let request = stage.get(&format!("{path}?key={}", last.replace('/', "%2F"))).await.ok();
    let messages = request["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "tool"]);
    assert_eq!(messages[4]["result"], json!({ "ok": "paid 5" }));
    let package = stage.get(&format!("/v1/turns/{turn}/package")).await.ok();
    assert_eq!((&request["model"], &request["system"]), (&package["model"], &package["system"]));
    assert_eq!(request["tools"], package["contracts"]);
    let first = stage.get(&format!("{path}?key=turn%2F1%2Fmodel%2F0")).await.ok();
    assert_eq!(first["messages"].as_array().unwrap().len(), 3);
    let none = stage.get(&format!("{path}?key=turn%2F1%2Fmodel%2F9")).await;
    assert_eq!((none.status, none.code().as_str()), (404, "node.not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn messages_and_effects_of_a_session_are_read() {
    let stage = Stage::new().await;
    let receipt = stage.park("ann", "pay joe").await;
    let session = receipt["session"].as_str().unwrap();
    let approval = stage.get("/v1/approvals").await.ok()["items"][0].clone();
    assert_eq!((&approval["tool"], &approval["arguments"]), (&json!("pay"), &json!({ "euros": 5 })));
    let path = format!("/v1/approvals/{}", approval["id"].as_str().unwrap());
    stage.post(&path, &json!({ "verdict": "approve" })).await.ok();
    let turn = receipt["turn"].as_str().unwrap();
    stage.get(&format!("/v1/turns/{turn}?wait=20")).await.ok();
    let messages = stage.get(&format!("/v1/sessions/{session}/messages")).await.ok();
    let said: Vec<(&str, &str)> = messages["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (message["role"].as_str().unwrap(), message["text"].as_str().unwrap()))
        .collect();
    assert_eq!(said, [("user", "pay joe"), ("assistant", ""), ("tool", "paid 5"), ("assistant", "paid 5")]);
    let found = stage.get(&format!("/v1/sessions/{session}/messages?search=PAID&role=tool")).await.ok();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    let effects = stage.get(&format!("/v1/turns/{turn}/effects")).await.ok();
    let kinds: Vec<(&str, &str)> = effects["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|effect| (effect["kind"].as_str().unwrap(), effect["state"].as_str().unwrap()))
        .collect();
    assert_eq!(kinds[0], ("model_call", "done"));
    assert!(kinds.contains(&("tool_call", "done")), "{kinds:?}");
    assert_eq!(effects["items"][1]["call"]["ruling"]["rule"], "ask");
    let of_session = stage.get(&format!("/v1/sessions/{session}/effects")).await.ok();
    assert_eq!(of_session["items"], effects["items"]);
    stage.stop().await;
}

#[tokio::test]
async fn why_names_what_resolves_a_waiting_turn() {
    let stage = Stage::new().await;
    let paying = stage.park("ann", "pay joe").await;
    let why = stage.get(&format!("/v1/sessions/{}/why", paying["session"].as_str().unwrap())).await.ok();
    assert_eq!((&why["standing"], &why["turn"]), (&json!("waits"), &paying["turn"]));
    assert_eq!(why["waits"][0]["moved_by"], "approval");
    assert_eq!(why["waits"][0]["tool"], "pay");
    let waiting = stage.park("bob", "later").await;
    let path = format!("/v1/turns/{}", waiting["turn"].as_str().unwrap());
    let why = stage.get(&format!("{path}/why")).await.ok();
    assert_eq!(why["waits"][0]["moved_by"], "completion");
    let key = why["waits"][0]["completion"].as_str().unwrap();
    let first = stage.post(&format!("/v1/completions/{key}"), &json!({ "ok": "done" })).await.ok();
    assert_eq!(first, json!({ "yours": true, "first": { "ok": "done" } }));
    let again = stage.post(&format!("/v1/completions/{key}"), &json!("timeout")).await.ok();
    assert_eq!(again, json!({ "yours": false, "first": { "ok": "done" } }));
    let end = stage.get(&format!("{path}?wait=20")).await.ok()["end"].clone();
    assert_eq!(end, json!({ "how": "answered", "text": "done" }));
    assert_eq!(stage.get(&format!("{path}/why")).await.ok()["standing"], "ended");
    stage.stop().await;
}

#[tokio::test]
async fn call_is_denied_or_run_with_edited_arguments() {
    let stage = Stage::new().await;
    for (name, decision, end) in [
        ("ann", json!({ "verdict": "edit", "arguments": { "euros": 7 }, "by": "joe" }), "paid 7"),
        ("bob", json!({ "verdict": "deny", "reason": "no" }), "approval.denied"),
    ] {
        let receipt = stage.park(name, "pay joe").await;
        let id = stage.get("/v1/approvals").await.ok()["items"][0]["id"].clone();
        let path = format!("/v1/approvals/{}", id.as_str().unwrap());
        assert_eq!(stage.get(&path).await.ok()["session"], receipt["session"]);
        let wrong = stage.post(&path, &json!({ "verdict": "deny" })).await;
        assert_eq!(wrong.code(), "input.invalid");
        stage.post(&path, &decision).await.ok();
        let turn = stage.get(&format!("/v1/turns/{}?wait=20", receipt["turn"].as_str().unwrap())).await.ok();
        let text = turn["end"]["text"].as_str().unwrap();
        assert!(text.contains(end), "{text}");
    }
    let audit = stage.get("/v1/audit").await.ok();
    let acts: Vec<(&str, &str)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|act| (act["by"].as_str().unwrap(), act["act"].as_str().unwrap()))
        .collect();
    assert_eq!(acts, [("person:joe", "approval.edit"), ("person:ann", "approval.deny")]);
    stage.stop().await;
}

#[tokio::test]
async fn session_approval_applies_until_it_is_revoked() {
    let stage = Stage::new().await;
    let receipt = stage.park("ann", "pay joe").await;
    let id = stage.get("/v1/approvals").await.ok()["items"][0]["id"].clone();
    let decided = json!({ "verdict": "approve_for_session" });
    let counted = stage.post(&format!("/v1/approvals/{}", id.as_str().unwrap()), &decided).await.ok();
    assert_eq!((&counted["decided"], &counted["yours"]), (&json!(true), &json!(true)));
    stage.get(&format!("/v1/turns/{}?wait=20", receipt["turn"].as_str().unwrap())).await.ok();
    assert_eq!(stage.say("ann", "pay joe").await["end"]["text"], "paid 5");
    let grant = stage.get("/v1/grants").await.ok()["items"][0].clone();
    assert_eq!((&grant["tool"], &grant["by"]), (&json!("pay"), &json!(["ann"])));
    let path = format!("/v1/grants/{}", grant["id"].as_str().unwrap());
    assert_eq!(stage.request("DELETE", &path).send().await.status, 200);
    assert_eq!(stage.request("DELETE", &path).send().await.code(), "grant.not_found");
    stage.park("ann", "pay joe").await;
    stage.stop().await;
}

#[tokio::test]
async fn denied_turn_names_the_rule_and_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let deny = PolicyDecision::Deny { reason: "not now".to_owned() };
    let rules = vec![Rule { at: PolicyPoint::Turn, ..Rule::new("closed".parse().unwrap(), deny) }];
    let policy = Policy { rules };
    let builder = agent(&dir.path().join("outlast.db")).policy(policy.clone());
    let stage = Stage::built(builder, |origins| origins, ServerLimits::default()).await;
    let receipt = stage.say("ann", "hello").await;
    let failure = json!({
        "code": "policy.denied",
        "detail": "the rule `closed` forbids it: not now",
        "policy": format!("closed@{}", policy.version()),
    });
    assert_eq!(receipt["end"], json!({ "how": "failed", "failure": failure }));
    stage.stop().await;
}

#[tokio::test]
async fn failed_attempts_and_decisions_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, at| Rule { at, ..Rule::new(name.parse().unwrap(), PolicyDecision::Allow) };
    let rules =
        vec![at("open", PolicyPoint::Turn), at("asks", PolicyPoint::Model), at("says", PolicyPoint::Output)];
    let policy = Policy { rules };
    let builder = agent(&dir.path().join("outlast.db")).policy(policy.clone());
    let stage = Stage::built(builder, |origins| origins, ServerLimits::default()).await;
    let receipt = stage.say("ann", "shaky").await;
    assert_eq!(receipt["end"]["text"], "At last.");
    let path = format!("/v1/turns/{}", receipt["turn"].as_str().unwrap());
    let turn = stage.get(&path).await.ok();
    let version = policy.version().to_string();
    let word = |decided: &Value| {
        assert_eq!(decided["ruling"]["policy"], version.as_str());
        let said = [&decided["point"], &decided["decision"], &decided["ruling"]["rule"]];
        said.map(|said| said.as_str().unwrap().to_owned()).join(" ")
    };
    let words = |of: &Value| of["decisions"].as_array().unwrap().iter().map(word).collect::<Vec<_>>();
    assert_eq!(words(&turn), ["turn allow open"]);
    assert_eq!(turn.get("resumes"), None);
    let effects = stage.get(&format!("{path}/effects")).await.ok();
    let [call] = &effects["items"].as_array().unwrap()[..] else { panic!("{effects}") };
    assert_eq!(words(call), ["model allow asks", "output allow says"]);
    assert_eq!((&call["state"], &call["attempts"]), (&json!("done"), &json!(2)));
    let [failed] = &call["incidents"].as_array().unwrap()[..] else { panic!("{call}") };
    assert_eq!((&failed["what"], &failed["attempt"]), (&json!("failed"), &json!(1)));
    assert_eq!(failed["detail"], json!({ "code": "model.unavailable", "detail": "too many requests" }));
    assert!(failed["from"].as_u64() <= failed["at"].as_u64());
    stage.stop().await;
}

#[tokio::test]
async fn approval_shows_the_rule_reason() {
    let dir = tempfile::tempdir().unwrap();
    let ask = ApprovalRequirement { reason: Some("it is money".into()), ..ApprovalRequirement::default() };
    let rule = Rule { tool: "pay".to_owned(), ..Rule::new("ask".parse().unwrap(), PolicyDecision::Ask(ask)) };
    let builder = agent(&dir.path().join("outlast.db")).policy(Policy { rules: vec![rule] });
    let stage = Stage::built(builder, |origins| origins, ServerLimits::default()).await;
    stage.park("ann", "pay").await;
    let question = stage.get("/v1/approvals").await.ok()["items"][0].clone();
    assert_eq!((&question["rule"], &question["reason"]), (&json!("ask"), &json!("it is money")));
    stage.stop().await;
}

#[tokio::test]
async fn sessions_are_forked_rewound_and_deleted() {
    let stage = Stage::new().await;
    let receipt = stage.say("ann", "one").await;
    stage.say("ann", "two").await;
    let path = format!("/v1/sessions/{}", receipt["session"].as_str().unwrap());
    let messages = stage.get(&format!("{path}/messages")).await.ok();
    let first_answer = messages["items"][1]["seq"].clone();
    let fork = stage.post(&format!("{path}/fork"), &json!({ "at": first_answer, "key": "other" })).await;
    assert_eq!(fork.status, 201);
    let fork = fork.json();
    assert_eq!(fork["forked_from"], json!({ "session": receipt["session"], "seq": first_answer }));
    let busy = stage.request("DELETE", &path).send().await;
    assert_eq!((busy.status, busy.code().as_str()), (409, "session.has_forks"));
    let rewound = stage.post(&format!("{path}/rewind"), &json!({ "to": 0 })).await.ok();
    assert_eq!(rewound["heads"], json!([{ "name": "main" }]));
    for id in [&fork["id"], &receipt["session"]] {
        let gone = stage.request("DELETE", &format!("/v1/sessions/{}", id.as_str().unwrap())).send().await;
        assert_eq!(gone.status, 204);
    }
    assert_eq!(stage.get(&path).await.code(), "session.not_found");
    stage.stop().await;
}

#[tokio::test]
async fn cancel_stops_a_turn_or_is_too_late() {
    let stage = Stage::new().await;
    let receipt = stage.park("ann", "later").await;
    let path = format!("/v1/turns/{}", receipt["turn"].as_str().unwrap());
    let stopped = stage.post(&format!("{path}/cancel"), &json!({ "reason": "enough" })).await.ok();
    assert_eq!(stopped, json!({ "outcome": "requested" }));
    let end = stage.get(&format!("{path}?wait=20")).await.ok()["end"].clone();
    assert_eq!(end, json!({ "how": "cancelled", "reason": "enough" }));
    let late = stage.post(&format!("{path}/cancel"), &json!({ "reason": "again" })).await.ok();
    assert_eq!(late, json!({ "outcome": "too_late", "end": end }));
    let retried = stage.request("POST", &format!("{path}/retry")).send().await.ok();
    assert_eq!((&retried["outcome"], &retried["session"]), (&json!("new_turn"), &receipt["session"]));
    let again = stage.get(&format!("/v1/turns/{}", retried["turn"].as_str().unwrap())).await.ok();
    assert_eq!(again["retry_of"], receipt["turn"]);
    stage.stop().await;
}

#[tokio::test]
async fn a_turn_is_cancelled_without_a_reason() {
    let stage = Stage::new().await;
    for (session, body) in [("ann", ""), ("bob", "{}"), ("cid", "{\"reason\": null}"), ("dan", "null")] {
        let receipt = stage.park(session, "later").await;
        let path = format!("/v1/turns/{}", receipt["turn"].as_str().unwrap());
        let cancel = stage.request("POST", &format!("{path}/cancel"));
        let cancel = if body.is_empty() { cancel } else { cancel.bytes("application/json", body) };
        assert_eq!(cancel.send().await.ok(), json!({ "outcome": "requested" }), "{body}");
        let end = stage.get(&format!("{path}?wait=20")).await.ok()["end"].clone();
        assert_eq!(end, json!({ "how": "cancelled", "reason": "cancelled by an operator" }), "{body}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn uploaded_files_download_unchanged_and_never_render() {
    let stage = Stage::new().await;
    let form = "--x\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{\"text\": \"look\", \"session_key\": \"ann\"}\r\n\
        --x\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a b/\u{e9}.html\"\r\ncontent-type: text/html\r\n\r\n\
        <script>alert(1)</script>\r\n--x--\r\n";
    let sent = stage
        .request("POST", "/v1/turns?wait=20")
        .bytes("multipart/form-data; boundary=x", form)
        .send()
        .await;
    let session = sent.ok()["session"].as_str().unwrap().to_owned();
    let attached = stage.get(&format!("/v1/sessions/{session}/attachments")).await.ok();
    let file = &attached["items"][0];
    assert_eq!((&file["media_type"], &file["bytes"]), (&json!("text/html"), &json!(25)));
    let path = format!("/v1/sessions/{session}/attachments/{}", file["id"].as_str().unwrap());
    let bytes = stage.get(&path).await;
    assert_eq!(bytes.body, "<script>alert(1)</script>");
    assert_eq!(bytes.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(bytes.header("content-security-policy"), Some("sandbox; default-src 'none'"));
    assert!(
        bytes.header("content-disposition").unwrap().starts_with("attachment; filename*=UTF-8''a%20b%2F")
    );
    let again = json!({ "text": "again", "attachments": [file["id"]] });
    stage.post(&format!("/v1/sessions/{session}/turns?wait=20"), &again).await.ok();
    let gone = stage.get(&format!("/v1/sessions/{session}/attachments/att_{}", "0".repeat(32))).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "attachment.not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn config_is_replaced_only_at_the_expected_version() {
    let stage = Stage::new().await;
    let put = |text: &str| stage.request("PUT", "/v1/configs/agent/clerk").json(&json!({ "system": text }));
    let first = put("Sell.").header("if-none-match", "*").send().await;
    assert_eq!((first.status, first.header("etag")), (200, Some("\"1\"")));
    let second = put("Sell more.").header("if-match", "\"1\"").send().await;
    assert_eq!(second.header("etag"), Some("\"2\""));
    let late = put("Sell less.").header("if-match", "\"1\"").send().await;
    assert_eq!((late.status, late.code().as_str()), (412, "config.changed"));
    let there = put("Sell more.").header("if-match", "*").send().await;
    assert_eq!((there.status, there.header("etag")), (200, Some("\"2\"")));
    let none = stage.request("PUT", "/v1/configs/agent/nobody").json(&json!({})).header("if-match", "*");
    assert_eq!(none.send().await.code(), "config.changed");
    assert_eq!(stage.get("/v1/configs/agent/clerk").await.ok()["body"], json!({ "system": "Sell more." }));
    let versions = stage.get("/v1/configs/agent/clerk/versions").await.ok();
    assert_eq!(versions["items"].as_array().unwrap().len(), 2);
    let differ = stage.get("/v1/configs/agent/clerk/diff?from=1&to=2").await.ok();
    assert_eq!(differ["lines"], json!(["- system: Sell.", "+ system: Sell more."]));
    assert_eq!(stage.get("/v1/configs/agent").await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(stage.get("/v1/configs/agent/nobody").await.code(), "agent.not_found");
    stage.stop().await;
}

#[tokio::test]
async fn agents_costs_budgets_and_keys_are_managed() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let agents = stage.get("/v1/agents").await.ok();
    assert_eq!(agents["items"][0]["tools"], json!(["later", "pay"]));
    let agent = stage.get("/v1/agents/assistant").await.ok();
    assert_eq!(agent["package"]["contracts"][1]["name"], "pay");
    assert_eq!(stage.get("/v1/agents/nobody").await.code(), "agent.not_found");
    for by in ["session", "agent", "model", "source", "day"] {
        let cost = stage.get(&format!("/v1/cost?by={by}")).await.ok();
        assert_eq!(cost["items"][0]["replies"], 1, "{by}");
    }
    let set = stage.request("PUT", "/v1/budgets/agent:assistant").json(&json!({ "tokens": 5, "per": "day" }));
    assert_eq!(set.send().await.status, 204);
    let budgets = stage.get("/v1/budgets").await.ok();
    assert_eq!(budgets["items"][0]["set"], json!({ "tokens": 5, "per": "day" }));
    assert_eq!(stage.request("DELETE", "/v1/budgets/agent:assistant").send().await.status, 204);
    let made = stage.post("/v1/keys", &json!({ "by": "service:ci", "scopes": "run" })).await.ok();
    let whoami = stage.request("GET", "/v1/whoami").key(made["key"].as_str().unwrap()).send().await.ok();
    assert_eq!((&whoami["by"], &whoami["scopes"]), (&json!("service:ci"), &json!("run")));
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    assert!(stage.request("DELETE", &path).send().await.ok()["revoked"].is_u64());
    let revoked = stage.request("GET", "/v1/whoami").key(made["key"].as_str().unwrap()).send().await;
    assert_eq!((revoked.status, revoked.code().as_str()), (401, "key.invalid"));
    assert_eq!(stage.get("/v1/keys").await.ok()["items"].as_array().unwrap().len(), 1);
    stage.stop().await;
}

#[tokio::test]
async fn server_reports_health_metrics_and_error_pages() {
    let stage = Stage::new().await;
    assert_eq!(stage.get("/health/live").await.ok()["state"], "live");
    assert_eq!(stage.get("/health/ready").await.ok()["durability"], "survives power loss");
    stage.get("/v1/sessions").await.ok();
    let metrics = stage.get("/metrics").await.body;
    let counted = "outlast_http_requests_total{method=\"GET\",route=\"/v1/sessions\",status=\"200\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(stage.get("/openapi.json").await.ok()["openapi"], "3.1.0");
    let page = stage.get("/errors/session.not_found").await;
    assert!(page.body.starts_with("# session.not_found"));
    let lost = stage.get("/v2/nothing").await;
    assert_eq!((lost.status, lost.code().as_str()), (404, "route.not_found"));
    let wrong = stage.request("DELETE", "/v1/sessions").send().await;
    assert_eq!((wrong.status, wrong.code().as_str()), (405, "route.method"));
    assert!(wrong.header("allow").unwrap().contains("POST"), "{wrong:?}");
    stage.stop().await;
}

#[tokio::test]
async fn turn_overlay_accepts_only_allowed_fields() {
    let stage = Stage::new().await;
    let send = |overlay: Value| {
        let body = json!({ "session_key": "ann", "text": "hello", "overlay": overlay });
        stage.request("POST", "/v1/turns?wait=20").json(&body).send()
    };
    let turn = send(json!({ "system": "Be brief.", "model_calls": 2 })).await.ok()["turn"].clone();
    let package = stage.get(&format!("/v1/turns/{}/package", turn.as_str().unwrap())).await.ok();
    assert!(package["system"].as_str().unwrap().ends_with("\n\nBe brief."), "{package}");
    assert_eq!(package["model_calls"], 2);
    let plain = stage.say("ann", "hello").await["turn"].clone();
    let package = stage.get(&format!("/v1/turns/{}/package", plain.as_str().unwrap())).await.ok();
    assert_eq!(package["model_calls"], 50);
    let loose = json!([{ "id": "ask", "then": "allow" }]);
    for (overlay, code) in [
        (json!({ "tools": [{ "name": "sh", "command": ["sh"] }] }), "config.invalid"),
        (json!({ "hooks": [{ "name": "h", "point": "before_tool", "command": ["sh"] }] }), "config.invalid"),
        (json!({ "mcp": { "sh": { "command": ["sh"] } } }), "config.invalid"),
        (json!({ "files": "/" }), "config.invalid"),
        (json!({ "rules": loose }), "config.invalid"),
        (json!({ "model": "nobody/knows" }), "model.unknown"),
        (json!({ "model_calls": 0 }), "input.invalid"),
        (json!(["system"]), "input.invalid"),
    ] {
        let refused = send(overlay.clone()).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, code), "{overlay}");
    }
    stage.stop().await;
}
