//! Who sees what: every route of the document, asked by those who may not (G29, S29, S35).
use crate::client::{Answer, Request};
use crate::stage::Stage;
use outlast::vocab::access::{Scope, Scopes};
use serde_json::{Value, json};

/// A route of the document.
struct Operation {
    method: String,
    path: String,
    /// The scope it takes; none if anybody may ask.
    scope: Option<Scope>,
    has_body: bool,
}

/// Every route of the document: one that is new cannot be forgotten here.
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

/// What stands in a path for each of its names.
struct Ids {
    session: String,
    turn: String,
    approval: String,
    completion: String,
    attachment: String,
    api_key: String,
}

impl Ids {
    /// Those of nobody.
    fn unknown(like: &Self) -> Self {
        let none = |id: &str| format!("{}_{}", id.split('_').next().unwrap(), "7".repeat(32));
        Self {
            session: none(&like.session),
            turn: none(&like.turn),
            approval: none(&like.approval),
            completion: like.completion.replace(|c: char| c.is_ascii_digit(), "7"),
            attachment: none(&like.attachment),
            api_key: none(&like.api_key),
        }
    }

    fn put(&self, path: &str) -> String {
        let (call, grant) = (format!("cal_{}", "7".repeat(32)), format!("grt_{}", "7".repeat(32)));
        let completion = path.contains("/completions/");
        let names = [
            ("{session}", self.session.as_str()),
            ("{turn}", &self.turn),
            ("{approval}", &self.approval),
            ("{attachment}", &self.attachment),
            ("{key}", if completion { &self.completion } else { &self.api_key }),
            ("{of}", &self.session),
            ("{call}", &call),
            ("{grant}", &grant),
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
            Some("search") => "?q=hello",
            _ => "",
        };
        format!("{path}{query}")
    }
}

/// A turn as OpenAI's wire knows it.
fn response(turn: &str) -> String {
    turn.replace("trn_", "resp_")
}

/// A session as OpenAI's wire knows it.
fn conversation(session: &str) -> String {
    session.replace("ses_", "conv_")
}

/// A good body for a route.
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

/// What there is in acme, as its own key makes it.
async fn acme(stage: &Stage, key: &str) -> Ids {
    let send = |path: &'static str, body: Value| async move {
        stage.request("POST", path).key(key).json(&body).send().await.ok()
    };
    let form = "--x\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{\"text\": \"pay joe\"}\r\n\
        --x\r\ncontent-disposition: form-data; name=\"f\"; filename=\"f\"\r\ncontent-type: text/plain\r\n\r\nx\r\n--x--\r\n";
    let paying = stage.request("POST", "/v1/turns").key(key).bytes("multipart/form-data; boundary=x", form);
    let paying = paying.send().await.ok();
    let later = send("/v1/turns", json!({ "text": "later" })).await;
    let made = send("/v1/keys", json!({ "by": "service:ci", "scopes": "read" })).await;
    let get = |path: String| async move { stage.request("GET", &path).key(key).send().await.ok() };
    let put = stage.request("PUT", "/v1/configs/agent/clerk").key(key);
    put.json(&json!({ "system": "Sell." })).send().await.ok();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    loop {
        let approvals = get("/v1/approvals".to_owned()).await;
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
        };
    }
}

/// What an answer says, without the ids of the question.
fn shape(answer: &Answer, ids: &Ids) -> (u16, String) {
    let all = [&ids.session, &ids.turn, &ids.approval, &ids.completion, &ids.attachment, &ids.api_key];
    let said = all.iter().fold(answer.body.clone(), |said, id| said.replace(id.as_str(), "ID"));
    let said = said.replace(&response(&ids.turn), "ID").replace(&conversation(&ids.session), "ID");
    (answer.status, said)
}

#[tokio::test]
async fn every_route_answers_for_ids_of_another_organisation_as_for_ids_that_were_never_given_out() {
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
            // Lists and names: nothing of acme is in what bolt sees.
            for id in [&ids.session, &ids.turn, &ids.approval, &ids.api_key] {
                assert!(!theirs.body.contains(id.as_str()), "{what}: {}", theirs.body);
            }
            assert!(!theirs.body.contains("service:ci"), "{what}: {}", theirs.body);
            continue;
        }
        asked += 1;
        assert_eq!(shape(&theirs, &ids), shape(&nobodys, &unknown), "{what}");
        assert_eq!(theirs.status, 404, "{what}: {theirs:?}");
    }
    assert!(asked >= 20, "{asked}");
    stage.stop().await;
}

/// Whether a route is about every organisation, and so for the keys of the one that runs the server.
fn is_for_operators(operation: &Operation) -> bool {
    let path = operation.path.as_str();
    path == "/metrics" || path == "/v1/orgs" || path.starts_with("/v1/sinks")
}

#[tokio::test]
async fn every_route_takes_the_scope_that_the_document_names_and_no_less_s29() {
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
async fn no_route_that_takes_a_key_is_answered_without_a_good_one_s30() {
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
        // Clients of one wire bring their key so; nobody else does.
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
