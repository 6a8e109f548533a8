//! Access control: calls every route of the OpenAPI document as callers that lack access.
use crate::client::{Answer, Request};
use crate::stage::Stage;
use outlast::vocab::access::{Scope, Scopes};
use outlast::vocab::package::PinnedPackage;
use serde_json::{Value, json};

/// A route of the OpenAPI document.
struct Operation {
    method: String,
    path: String,
    /// The scope that it requires, or `None` if it is public.
    scope: Option<Scope>,
    has_body: bool,
}

/// Returns every route of the OpenAPI document, so that new routes are covered automatically.
fn operations() -> Vec<Operation> {
    let document = serde_json::to_value(outlast_server::document()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let scope = operation["security"][0]["key"][0].as_str().map(|scope| scope.parse().unwrap());
            let has_body = !operation["requestBody"].is_null();
            all.push(Operation { method: method.to_uppercase(), path: path.clone(), scope, has_body });
        }
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// Values for the parameters of paths.
struct Ids {
    session: String,
    turn: String,
    approval: String,
    completion: String,
    attachment: String,
    api_key: String,
    call: String,
    grant: String,
    /// The fingerprint of the package of a turn.
    package: String,
}

impl Ids {
    fn all(&self) -> [&String; 9] {
        let Self { session, turn, approval, completion, attachment, api_key, call, grant, package } = self;
        [session, turn, approval, completion, attachment, api_key, call, grant, package]
    }

    /// Returns ids of the same kinds that do not exist.
    fn unknown(like: &Self) -> Self {
        let none = |id: &str| format!("{}_{}", id.split('_').next().unwrap(), "7".repeat(32));
        Self {
            session: none(&like.session),
            turn: none(&like.turn),
            approval: none(&like.approval),
            completion: like.completion.replace(|c: char| c.is_ascii_digit(), "7"),
            attachment: none(&like.attachment),
            api_key: none(&like.api_key),
            call: none(&like.call),
            grant: none(&like.grant),
            package: "7".repeat(64),
        }
    }

    fn put(&self, path: &str) -> String {
        let completion = path.contains("/completions/");
        let names = [
            ("{session}", self.session.as_str()),
            ("{turn}", &self.turn),
            ("{approval}", &self.approval),
            ("{attachment}", &self.attachment),
            ("{key}", if completion { &self.completion } else { &self.api_key }),
            ("{of}", &self.session),
            ("{call}", &self.call),
            ("{grant}", &self.grant),
            ("{fingerprint}", &self.package),
            ("{kind}", "agent"),
            ("{name}", "clerk"),
            ("{code}", "session.not_found"),
            ("{response}", &response(&self.turn)),
            ("{conversation}", &conversation(&self.session)),
            ("{model}", "clerk"),
        ];
        let path = names.iter().fold(path.to_owned(), |path, (name, id)| path.replace(name, id));
        assert!(!path.contains('{'), "say what stands for the names in {path}");
        let query = match path.rsplit('/').next() {
            Some("diff") => "?from=1&to=2",
            Some("request") => "?key=turn/0/model/0",
            Some("search") => "?q=hello",
            // Without `after`, the page would start now and be empty.
            Some("events") => "?after=0",
            _ => "",
        };
        format!("{path}{query}")
    }
}

/// Returns the OpenAI response id of a turn.
fn response(turn: &str) -> String {
    turn.replace("trn_", "resp_")
}

/// Returns the OpenAI conversation id of a session.
fn conversation(session: &str) -> String {
    session.replace("ses_", "conv_")
}

/// Returns a valid body for a route.
fn body(operation: &Operation) -> Value {
    let path = operation.path.as_str();
    match path.rsplit('/').next().unwrap() {
        "orgs" => json!({ "name": "bolts" }),
        "sessions" | "fork" | "rerun" | "import" | "conversations" => json!({}),
        "responses" => json!({ "input": "hello" }),
        "completions" => json!({ "model": "clerk", "messages": [{ "role": "user", "content": "hello" }] }),
        "rewind" => json!({ "to": 0 }),
        "turns" => json!({ "text": "hello" }),
        "cancel" => json!({ "reason": "no" }),
        "retry" => json!({ "fork": false }),
        "keys" => json!({ "by": "service:x", "scopes": "read" }),
        "{key}" => json!({ "ok": 1 }),
        "messages" => {
            json!({ "model": "clerk", "max_tokens": 9, "messages": [{ "role": "user", "content": "hello" }] })
        }
        "mcp" => json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/list" }),
        "{approval}" => json!({ "verdict": "approve" }),
        "{call}" => json!("did_not_happen"),
        "{of}" => json!({ "tokens": 1 }),
        "{name}" => json!({ "system": "Sell." }),
        other => panic!("say what is a good body for {path} ({other})"),
    }
}

fn request(stage: &Stage, operation: &Operation, ids: &Ids) -> Request {
    let request = stage.request(&operation.method, &ids.put(&operation.path));
    if operation.has_body { request.json(&body(operation)) } else { request }
}

/// The system prompt of acme's agent, which other organisations must not see.
const SECRET: &str = "Sell what nobody knows of.";

/// Creates data in acme with its own key.
async fn acme(stage: &Stage, key: &str) -> Ids {
    let send = |path: &'static str, body: Value| async move {
        stage.request("POST", path).key(key).json(&body).send().await.ok()
    };
    let form = "--x\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{\"text\": \"pay joe\"}\r\n\
        --x\r\ncontent-disposition: form-data; name=\"f\"; filename=\"f\"\r\ncontent-type: text/plain\r\n\r\nx\r\n--x--\r\n";
    // Approves a call for the session, and cancels a turn during a call: creates a grant and a call with an
    // unknown outcome.
    send("/v1/turns", json!({ "text": "pay ann", "session_key": "granting" })).await;
    let granting = loop {
        let pending = stage.request("GET", "/v1/approvals").key(key).send().await.ok();
        if let Some(id) = pending["items"][0]["id"].as_str() {
            break format!("/v1/approvals/{id}");
        }
    };
    let approve =
        stage.request("POST", &granting).key(key).json(&json!({ "verdict": "approve_for_session" }));
    approve.send().await.ok();
    stage.lose_a_call(Some(key)).await;
    let paying = stage.request("POST", "/v1/turns").key(key).bytes("multipart/form-data; boundary=x", form);
    let paying = paying.send().await.ok();
    let later = send("/v1/turns", json!({ "text": "later" })).await;
    let made = send("/v1/keys", json!({ "by": "service:ci", "scopes": "read" })).await;
    let get = |path: String| async move { stage.request("GET", &path).key(key).send().await.ok() };
    let put = stage.request("PUT", "/v1/configs/agent/clerk").key(key);
    put.json(&json!({ "system": SECRET })).send().await.ok();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let over = json!({ "text": "hello", "overlay": { "system": SECRET } });
    let over = send("/v1/turns?wait=20", over).await;
    let package = get(format!("/v1/turns/{}/package", text(&over["turn"]))).await;
    let package = serde_json::from_value::<PinnedPackage>(package).unwrap().fingerprint().to_string();
    let found = get(format!("/v1/packages/{package}")).await;
    assert!(text(&found["system"]).ends_with(SECRET), "{found}");
    loop {
        let (approvals, grants) = (get("/v1/approvals".to_owned()).await, get("/v1/grants".to_owned()).await);
        let unknown = get("/v1/unknown".to_owned()).await;
        let why = get(format!("/v1/turns/{}/why", text(&later["turn"]))).await;
        let (approval, completion) =
            (text(&approvals["items"][0]["id"]), text(&why["waits"][0]["completion"]));
        if approval.is_empty() || completion.is_empty() {
            continue;
        }
        let session = text(&paying["session"]);
        let attached = get(format!("/v1/sessions/{session}/attachments")).await;
        return Ids {
            session,
            turn: text(&paying["turn"]),
            approval,
            completion,
            attachment: text(&attached["items"][0]["id"]),
            api_key: text(&made["id"]),
            call: text(&unknown["items"][0]["call"]),
            grant: text(&grants["items"][0]["id"]),
            package,
        };
    }
}

/// Returns the status and body of an answer, without the ids of the request.
fn shape(answer: &Answer, ids: &Ids) -> (u16, String) {
    let said = ids.all().iter().fold(answer.body.clone(), |said, id| said.replace(id.as_str(), "ID"));
    let said = said.replace(&response(&ids.turn), "ID").replace(&conversation(&ids.session), "ID");
    let request = answer.header("x-request-id").unwrap_or("none");
    (answer.status, said.replace(request, "REQUEST"))
}

#[tokio::test]
async fn every_route_treats_foreign_ids_as_unknown() {
    let stage = Stage::keyed().await;
    let ids = acme(&stage, &stage.key("acme", "admin").await).await;
    let (bolt, unknown) = (stage.key("bolt", "admin").await, Ids::unknown(&ids));
    let mut asked = 0;
    for operation in operations().iter().filter(|operation| operation.scope.is_some()) {
        let theirs = request(&stage, operation, &ids).key(&bolt).send().await;
        let nobodys = request(&stage, operation, &unknown).key(&bolt).send().await;
        let what = format!("{} {}", operation.method, operation.path);
        if !operation.path.contains('{')
            || operation.path.contains("{kind}")
            || operation.path.contains("{name}")
            || operation.path.contains("{model}")
        {
            // Lists and names: bolt must see nothing of acme.
            for id in ids.all() {
                assert!(!id.is_empty() && !theirs.body.contains(id.as_str()), "{what}: {}", theirs.body);
            }
            for word in ["service:ci", SECRET] {
                assert!(!theirs.body.contains(word), "{what}: {}", theirs.body);
            }
            continue;
        }
        asked += 1;
        assert_eq!(shape(&theirs, &ids), shape(&nobodys, &unknown), "{what}");
        assert_eq!(theirs.status, 404, "{what}: {theirs:?}");
    }
    assert!(asked >= 20, "{asked}");
    stage.stop().await;
}

/// Returns whether a route covers every organisation, so that only keys of the operator may use it.
fn is_for_operators(operation: &Operation) -> bool {
    let path = operation.path.as_str();
    path == "/metrics" || path == "/v1/orgs" || path.starts_with("/v1/sinks")
}

#[tokio::test]
async fn foreign_ids_in_queries_and_bodies_are_unknown() {
    let stage = Stage::keyed().await;
    let ids = acme(&stage, &stage.key("acme", "admin").await).await;
    let bolt = stage.key("bolt", "admin").await;
    let unknown = Ids::unknown(&ids);
    let mine = stage.request("POST", "/v1/sessions").key(&bolt).json(&json!({})).send().await.ok();
    let mine = mine["id"].as_str().unwrap().to_owned();
    // The first call of the turn, as the compatible APIs name it.
    let call = |ids: &Ids| format!("{}_4_0", ids.turn.replace("trn_", "call_"));
    let said = |ids: &Ids| {
        let (session, turn) = (&ids.session, &ids.turn);
        let (response, conversation, call) = (response(turn), conversation(session), call(ids));
        let hello = json!({ "role": "user", "content": "hello" });
        let output = json!([{ "type": "function_call_output", "call_id": call, "output": "x" }]);
        let asked =
            json!({ "id": call, "type": "function", "function": { "name": "pay", "arguments": "{}" } });
        let chat = json!([hello, { "role": "assistant", "content": null, "tool_calls": [asked] },
            { "role": "tool", "tool_call_id": call, "content": "x" }]);
        let used = json!([{ "type": "tool_use", "id": call, "name": "pay", "input": {} }]);
        let result = json!([{ "type": "tool_result", "tool_use_id": call, "content": "x" }]);
        let messages =
            json!([hello, { "role": "assistant", "content": used }, { "role": "user", "content": result }]);
        [
            (
                "POST",
                "/openai/v1/responses".to_owned(),
                json!({ "input": "hello", "previous_response_id": response }),
            ),
            (
                "POST",
                "/openai/v1/responses".to_owned(),
                json!({ "input": "hello", "conversation": conversation }),
            ),
            (
                "POST",
                "/openai/v1/responses".to_owned(),
                json!({ "input": output, "previous_response_id": response }),
            ),
            (
                "POST",
                "/openai/v1/responses".to_owned(),
                json!({ "input": output, "conversation": conversation }),
            ),
            (
                "POST",
                "/openai/v1/chat/completions".to_owned(),
                json!({ "model": "assistant", "messages": chat }),
            ),
            (
                "POST",
                "/anthropic/v1/messages".to_owned(),
                json!({ "model": "assistant", "max_tokens": 9, "messages": messages }),
            ),
            (
                "POST",
                format!("/v1/sessions/{mine}/turns"),
                json!({ "text": "look", "attachments": [ids.attachment] }),
            ),
            ("GET", format!("/v1/events?after=0&session={session}"), Value::Null),
            ("GET", format!("/v1/events?after=0&turn={turn}"), Value::Null),
            ("GET", format!("/v1/search?q=pay&session={session}"), Value::Null),
            ("GET", format!("/v1/cost?session={session}"), Value::Null),
        ]
    };
    for ((method, theirs, body), (_, nobodys, other)) in said(&ids).into_iter().zip(said(&unknown)) {
        let ask = |path: &str, body: &Value| {
            let request = stage.request(method, path).key(&bolt);
            if body.is_null() { request.send() } else { request.json(body).send() }
        };
        let (theirs_told, nobodys_told) = (ask(&theirs, &body).await, ask(&nobodys, &other).await);
        let blank = |answer: &Answer, ids: &Ids| {
            let (status, said) = shape(answer, ids);
            (status, said.replace(&call(ids), "ID"))
        };
        if method == "GET" && theirs_told.status == 200 {
            // The `next` of an event page depends on the number of events of all organisations, so only the
            // items are compared.
            assert_eq!(theirs_told.json()["items"], json!([]), "{theirs}");
            assert_eq!(nobodys_told.json()["items"], json!([]), "{theirs}");
            continue;
        }
        assert_eq!(blank(&theirs_told, &ids), blank(&nobodys_told, &unknown), "{theirs} {body}");
        assert!(theirs_told.status >= 400, "{theirs} {body}: {theirs_told:?}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn every_route_requires_its_documented_scope() {
    let stage = Stage::keyed().await;
    let ids = Ids::unknown(&acme(&stage, &stage.key("acme", "admin").await).await);
    for scope in Scope::ALL {
        let (own, bolt) = (stage.key("default", scope.name()).await, stage.key("bolt", scope.name()).await);
        for operation in operations() {
            let Some(needed) = operation.scope else { continue };
            let key = if is_for_operators(&operation) { &own } else { &bolt };
            let answer = request(&stage, &operation, &ids).key(key).send().await;
            let what = format!("{} {} with {}", operation.method, operation.path, scope.name());
            let denied = answer.status == 403 && answer.code() == "access.denied";
            assert_eq!(denied, !Scopes::from(scope).allow(needed), "{what}: {answer:?}");
            assert_ne!(answer.status, 401, "{what}");
            assert!(answer.status < 500, "{what}: {answer:?}");
        }
    }
    let others = stage.key("bolt", "admin").await;
    for operation in operations().iter().filter(|operation| is_for_operators(operation)) {
        let answer = request(&stage, operation, &ids).key(&others).send().await;
        let what = format!("{} {}", operation.method, operation.path);
        assert_eq!((answer.status, answer.code().as_str()), (403, "access.denied"), "{what}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn every_keyed_route_rejects_missing_or_wrong_keys() {
    let stage = Stage::keyed().await;
    let ids = Ids::unknown(&acme(&stage, &stage.key("acme", "admin").await).await);
    let good = stage.key("bolt", "admin").await;
    let changed = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    for operation in operations() {
        let plain = request(&stage, &operation, &ids);
        let what = format!("{} {}", operation.method, operation.path);
        if operation.scope.is_none() {
            assert!(plain.send().await.status < 400, "{what}");
            continue;
        }
        let wrong = [
            plain.clone(),
            plain.clone().key(&changed),
            plain.clone().header("authorization", &good),
            plain.clone().header("authorization", "Basic b2xrOg=="),
            plain.clone().header("x-forwarded-for", "127.0.0.1").header("x-forwarded-host", "localhost"),
        ];
        for request in wrong {
            let answer = request.send().await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "key.invalid"), "{what}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
        }
        // Only the Anthropic-compatible API accepts this header.
        let elsewhere = plain.clone().header("x-api-key", &good).send().await;
        assert_eq!(
            elsewhere.status == 401,
            !operation.path.starts_with("/anthropic/"),
            "{what}: {elsewhere:?}"
        );
        let twice = plain.key(&good).again("authorization", &format!("Bearer {good}")).send().await;
        assert_eq!((twice.status, twice.code().as_str()), (400, "input.invalid"), "{what}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn only_operators_create_an_organisations_first_key() {
    let stage = Stage::keyed().await;
    let (operator, bolt) = (stage.key("default", "admin").await, stage.key("bolt", "admin").await);
    let made = stage.request("POST", "/v1/orgs").key(&operator).json(&json!({ "name": "acme" })).send().await;
    let acme = made.ok()["id"].clone();
    let issue = |key: &str, org: &Value| {
        let new = json!({ "by": "service:ci", "scopes": "admin", "org": org });
        stage.request("POST", "/v1/keys").key(key).json(&new).send()
    };
    for org in [&json!("acme"), &acme] {
        let key = issue(&operator, org).await.ok()["key"].as_str().unwrap().to_owned();
        let opens = stage.request("GET", "/v1/whoami").key(&key).send().await.ok();
        assert_eq!((&opens["org"], &opens["by"]), (&acme, &json!("service:ci")));
    }
    let nowhere = issue(&operator, &json!("nobody")).await;
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "org.not_found"));
    // Other organisations cannot learn whether an organisation exists.
    for org in ["acme", "nobody"] {
        let refused = issue(&bolt, &json!(org)).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "access.denied"));
    }
    stage.stop().await;
}
