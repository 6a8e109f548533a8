//! Rejected requests: wrong host names, other origins, and bodies that are too large, too deep or too slow.
use crate::stage::Stage;
use outlast::Outlast;
use outlast::vocab::access::Access;
use outlast_server::Server;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn foreign_host_or_origin_request_is_rejected() {
    let stage = Stage::new().await;
    let body = json!({ "text": "hello" });
    let send = || stage.request("POST", "/v1/turns").json(&body);
    for host in ["evil.example", "evil.example:7777", "127.0.0.1.evil.example", ""] {
        let refused = send().header("host", host).send().await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "origin.denied"), "{host}");
    }
    for origin in ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1"] {
        let refused = send().header("origin", origin).send().await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "origin.denied"), "{origin}");
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"], json!([]));
    let own = send().header("origin", &format!("http://{}", stage.address)).send().await;
    assert_eq!(own.status, 202);
    stage.stop().await;
}

#[tokio::test]
async fn proxied_host_request_needs_a_key() {
    let name = "agents.example.com";
    let policy = |policy: outlast_server::OriginPolicy| {
        let hosts = [policy.hosts.clone(), vec![name.to_owned()]].concat();
        outlast_server::OriginPolicy { hosts, ..policy }
    };
    let stage = Stage::with(policy, ServerLimits::default()).await;
    let body = json!({ "text": "hello" });
    let ask = |method: &str, path: &str, host: &str| {
        let request = stage.request(method, path).header("host", host);
        if method == "POST" { request.json(&body) } else { request }
    };
    for host in [name, "AGENTS.example.com:443"] {
        for (method, path) in [
            ("GET", "/v1/whoami"),
            ("POST", "/v1/turns"),
            ("GET", "/metrics"),
            ("POST", "/mcp"),
            ("GET", "/openai/v1/models"),
            ("GET", "/anthropic/v1/models"),
        ] {
            let refused = ask(method, path, host).send().await;
            assert_eq!(refused.status, 401, "{host}{path}: {refused:?}");
            assert!(!refused.body.contains("person:ann"), "{host}{path}: {refused:?}");
        }
        // Clients of other providers may send any key only if no key is required, which is not so under this
        // host name.
        let any = ask("GET", "/openai/v1/models", host).key("sk-any").send().await;
        assert_eq!(any.status, 401, "{host}: {any:?}");
        assert_eq!(ask("GET", "/health/live", host).send().await.status, 200);
    }
    let refused = ask("GET", "/v1/whoami", name).send().await.json();
    assert_eq!(
        refused["detail"],
        "only requests for localhost, 127.0.0.1, [::1] are allowed without a key; one for `agents.example.com` requires an API key: \
         `authorization: Bearer olk_…`"
    );
    let key = stage.key("default", "read").await;
    assert_eq!(ask("GET", "/v1/whoami", name).key(&key).send().await.ok()["by"], "service:test");
    for host in ["localhost", "127.0.0.1:7777", "[::1]"] {
        assert_eq!(ask("GET", "/v1/whoami", host).send().await.ok()["by"], "person:ann");
        assert_eq!(ask("GET", "/openai/v1/models", host).key("sk-any").send().await.status, 200);
    }
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn allowed_origin_is_echoed_in_cors_headers() {
    let site = "https://console.example";
    let stage = Stage::with(
        |policy| outlast_server::OriginPolicy { origins: vec![site.to_owned()], ..policy },
        ServerLimits::default(),
    )
    .await;
    let asks = stage.request("OPTIONS", "/v1/turns").header("origin", site).send().await;
    assert_eq!((asks.status, asks.header("access-control-allow-origin")), (204, Some(site)));
    let reads = stage.request("GET", "/v1/sessions").header("origin", site).send().await;
    assert_eq!((reads.status, reads.header("access-control-allow-origin")), (200, Some(site)));
    stage.stop().await;
}

#[tokio::test]
async fn allowed_origin_may_send_headers_of_every_api() {
    let site = "https://console.example";
    let policy = |policy| outlast_server::OriginPolicy { origins: vec![site.to_owned()], ..policy };
    let stage = Stage::with(policy, ServerLimits::default()).await;
    let rows = [
        ("/v1/turns", "authorization, content-type, idempotency-key, traceparent"),
        ("/v1/events", "authorization, last-event-id"),
        (
            "/openai/v1/responses",
            "authorization, content-type, openai-organization, outlast-repeat, x-stainless-lang",
        ),
        ("/anthropic/v1/messages", "anthropic-version, content-type, x-api-key, x-stainless-retry-count"),
        ("/mcp", "authorization, content-type, mcp-protocol-version, mcp-session-id, last-event-id"),
    ];
    for (path, names) in rows {
        let asks = stage.request("OPTIONS", path).header("origin", site);
        let asks = asks.header("access-control-request-method", "POST");
        let allowed = asks.clone().header("access-control-request-headers", names).send().await;
        assert_eq!(
            (allowed.status, allowed.header("access-control-allow-headers")),
            (204, Some(names)),
            "{path}"
        );
        let more = format!("X-Evil, {}, cookie", names.to_uppercase());
        let some = asks.header("access-control-request-headers", &more).send().await;
        assert_eq!(some.header("access-control-allow-headers"), Some(names), "{path}");
    }
    let reads = stage.request("GET", "/v1/sessions").header("origin", site).send().await;
    assert_eq!(
        reads.header("access-control-expose-headers"),
        Some(
            "etag, mcp-session-id, outlast-repeat, outlast-repeat-window, outlast-turn, ratelimit, ratelimit-policy, \
             request-id, retry-after, www-authenticate, x-request-id, x-should-retry"
        )
    );
    let other = stage.request("OPTIONS", "/mcp").header("origin", "https://evil.example");
    let other = other.header("access-control-request-headers", "authorization").send().await;
    assert_eq!((other.status, other.header("access-control-allow-headers")), (403, None));
    stage.stop().await;
}

#[tokio::test]
async fn excessive_members_numbers_or_ids_are_rejected() {
    let stage = Stage::new().await;
    let send = |body: String| stage.request("POST", "/v1/turns").bytes("application/json", body).send();
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|n| format!("\"k{n}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let million = send(members(1_000_000)).await;
    assert_eq!((million.status, million.code().as_str()), (413, "limit.exceeded"));
    let many = send(members(100_000)).await;
    assert_eq!((many.status, many.code().as_str()), (400, "input.invalid"));
    let huge = "9".repeat(10_000);
    for body in [
        "{\"text\": 1e999}".to_owned(),
        format!("{{\"text\": {huge}}}"),
        r#"{"schema": {"a": 1, "a": 2}, "text": "x"}"#.to_owned(),
        format!("{{\"text\": \"x\", \"attachments\": [\"att_{huge}\"]}}"),
        format!("{{\"text\": \"x\", \"session_key\": {huge}}}"),
    ] {
        let refused = send(body).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    let long = send(json!({ "text": "x", "session_key": huge }).to_string()).await;
    assert_eq!((long.status, long.code().as_str()), (413, "limit.exceeded"));
    for path in [
        format!("/v1/sessions/ses_{huge}"),
        format!("/v1/sessions?limit={huge}"),
        format!("/v1/sessions?cursor={huge}"),
        format!("/v1/events?after={huge}"),
        "/v1/events?after=-1".to_owned(),
        "/v1/events?wait=18446744073709551615".to_owned(),
        "/v1/events?limit=1e3".to_owned(),
    ] {
        let refused = stage.get(&path).await;
        assert!([400, 404].contains(&refused.status), "{}: {refused:?}", &path[..20]);
    }
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn oversized_nested_or_ambiguous_bodies_are_rejected() {
    let limits = ServerLimits { body_bytes: 1_000, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let send = |body: String| stage.request("POST", "/v1/turns").bytes("application/json", body).send();
    let large = send(json!({ "text": "x".repeat(1_000) }).to_string()).await;
    assert_eq!((large.status, large.code().as_str()), (413, "limit.exceeded"));
    let deep = send(format!("{{\"schema\": {}{}}}", "[".repeat(70), "]".repeat(70))).await;
    assert_eq!((deep.status, deep.code().as_str()), (413, "limit.exceeded"));
    let twice = send("{\"text\": \"a\", \"text\": \"b\"}".to_owned()).await;
    assert_eq!((twice.status, twice.code().as_str()), (400, "input.invalid"));
    for wrong in
        ["", "{", "[]", "{\"text\": 7}", "{\"text\": \"a\", \"what\": 1}", "{\"text\": \"\"}", "\u{0}"]
    {
        let refused = send(wrong.to_owned()).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "input.invalid"), "{wrong}");
    }
    let plain = stage.request("POST", "/v1/turns").bytes("text/plain", "hello").send().await;
    assert_eq!((plain.status, plain.code().as_str()), (415, "body.media_type"));
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn array_is_rejected_where_an_object_is_expected() {
    let stage = Stage::new().await;
    let turn = stage.say("ann", "hello").await;
    let (session, turn) = (turn["session"].as_str().unwrap(), turn["turn"].as_str().unwrap());
    for (method, path, list) in [
        ("POST", "/v1/turns".to_owned(), json!(["hello there", "arr"])),
        ("POST", format!("/v1/sessions/{session}/turns"), json!(["hello there"])),
        ("POST", "/v1/sessions".to_owned(), json!(["keyy"])),
        ("POST", format!("/v1/turns/{turn}/cancel"), json!(["enough"])),
        ("POST", "/v1/keys".to_owned(), json!(["service:ci", "read"])),
        ("POST", "/v1/orgs".to_owned(), json!(["acme"])),
        ("PUT", "/v1/configs/agent/clerk".to_owned(), json!([])),
        ("PUT", "/v1/budgets/agent:clerk".to_owned(), json!([5])),
    ] {
        let refused = stage.request(method, &path).json(&list).send().await;
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        let detail = &refused.json()["detail"];
        assert_eq!(detail, "the body is invalid: expected an object, got an array", "{path}");
    }
    for path in ["/openai/v1/chat/completions", "/openai/v1/responses", "/anthropic/v1/messages"] {
        assert_eq!(stage.post(path, &json!(["agent", []])).await.status, 400, "{path}");
    }
    assert_eq!(stage.get("/v1/sessions").await.ok()["items"].as_array().unwrap().len(), 1);
    stage.stop().await;
}

#[tokio::test]
async fn long_or_slow_headers_close_only_their_connection() {
    let limits = ServerLimits { header_wait: Duration::from_millis(200), ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let long = stage.request("GET", "/v1/sessions").header("x-long", &"x".repeat(100 << 10)).send().await;
    assert_eq!((long.status, long.code().as_str()), (431, "limit.exceeded"));
    let just_too_long =
        stage.request("GET", "/v1/sessions").header("x-long", &"x".repeat(40 << 10)).send().await;
    assert_eq!(
        just_too_long.json()["detail"],
        "header_bytes is limited to 32768, but the header section of this request is longer"
    );
    let long_enough =
        stage.request("GET", "/v1/sessions").header("x-long", &"x".repeat(31 << 10)).send().await;
    assert_eq!(long_enough.status, 200);
    let garbled = stage.request("GE T", "/v1/sessions").send().await;
    assert_eq!((garbled.status, garbled.body.as_str()), (400, ""));
    let address = stage.address;
    let said = tokio::task::spawn_blocking(move || {
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET /v1/sessions HTTP/1.1\r\nhost:").unwrap();
        slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = Vec::new();
        slow.read_to_end(&mut said).map(|_| said)
    });
    let said = String::from_utf8(said.await.unwrap().unwrap()).unwrap();
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
    assert_eq!(stage.get("/health/live").await.status, 200);
    stage.stop().await;
}

#[tokio::test]
async fn accepted_connection_is_answered_during_shutdown() {
    let stage = Stage::new().await;
    let address = stage.address;
    let request = format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    // Connections are accepted in order. When this one has an answer, the silent one was accepted, too.
    let mut idle = tokio::net::TcpStream::connect(address).await.unwrap();
    idle.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(idle.read_u8().await.unwrap(), b'H');
    let stopping = tokio::spawn(stage.stop());
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    silent.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    silent.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    stopping.await.unwrap();
}

#[tokio::test]
async fn silent_connection_does_not_delay_shutdown() {
    let stage = Stage::new().await;
    let mut silent = tokio::net::TcpStream::connect(stage.address).await.unwrap();
    assert_eq!(stage.get("/health/live").await.status, 200);
    let stopping = tokio::time::timeout(ServerLimits::default().drain, stage.stop());
    assert!(stopping.await.is_ok());
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn public_address_is_not_served_without_keys() {
    let outlast = Outlast::ephemeral().start().await.unwrap();
    let bind = || Server::bind(outlast.runtime(), "0.0.0.0:0".parse().unwrap(), Access::operator());
    let refused = bind().await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "config.invalid: 0.0.0.0:0 can be reached from other machines, and there is no API key; create one with `outlast keys create NAME --scope SCOPE`, or listen on 127.0.0.1"
    );
    let grant = outlast::runtime::worker::keys::ApiKeyGrant {
        org: outlast::OrgId::DEFAULT,
        by: "service:ci".parse().unwrap(),
        scopes: "run".parse().unwrap(),
        expires: None,
    };
    outlast.operator().runtime().issue_key(grant).await.unwrap();
    assert!(bind().await.is_ok());
    outlast.shut_down().await;
}

#[tokio::test]
async fn responses_carry_request_ids_and_security_headers() {
    let stage = Stage::new().await;
    let chosen = stage.request("GET", "/v1/sessions").header("x-request-id", "abc-1").send().await;
    assert_eq!(chosen.header("x-request-id"), Some("abc-1"));
    let forged = stage.request("GET", "/v1/sessions").header("x-request-id", "a b\u{7f}").send().await;
    assert_ne!(forged.header("x-request-id"), Some("a b\u{7f}"));
    let missing = stage.request("GET", "/v1/nothing").send().await;
    let foreign = stage.request("GET", "/v1/sessions").header("host", "evil.example").send().await;
    assert_eq!((chosen.status, missing.status, foreign.status), (200, 404, 403));
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ] {
        for response in [&chosen, &missing, &foreign] {
            assert_eq!(response.header(name), Some(value), "{name}");
        }
    }
    // A handler replaces them.
    let page = stage.request("GET", "/").send().await;
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    stage.stop().await;
}

#[tokio::test]
async fn problem_response_names_its_request_and_subject() {
    let stage = Stage::new().await;
    let ask = |path: &str| stage.request("GET", path).header("x-request-id", "abc-1").send();
    let (session, turn) = ("ses_019a8b6e5c7d7f3a9b1c2d3e4f506172", "trn_019a8b6e5c7d7f3a9b1c2d3e4f506172");
    let members = |problem: &Value| {
        ["session", "turn", "call", "request"].map(|name| problem[name].as_str().map(ToOwned::to_owned))
    };
    let some = |id: &str| Some(id.to_owned());
    let problem = ask(&format!("/v1/sessions/{session}/messages")).await;
    assert_eq!(problem.code(), "session.not_found");
    assert_eq!(members(&problem.json()), [some(session), None, None, some("abc-1")]);
    let problem = ask(&format!("/v1/turns/{turn}")).await.json();
    assert_eq!(members(&problem), [None, some(turn), None, some("abc-1")]);
    let problem = ask("/v1/nothing").await.json();
    assert_eq!(members(&problem), [None, None, None, some("abc-1")]);
    // Errors of the compatible APIs keep their format.
    let refused = ask("/openai/v1/responses/none").await.json();
    assert_eq!(refused.as_object().unwrap().keys().collect::<Vec<_>>(), ["error"]);
    stage.stop().await;
}
