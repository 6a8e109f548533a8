//! Attempts to bypass the API key.
use crate::stage::Stage;
use serde_json::{Value, json};

/// Spellings that some parsers treat as `/v1/sessions`.
const SPELLINGS: [&str; 30] = [
    "/v1/sessions",
    "//v1/sessions",
    "/v1//sessions",
    "///v1///sessions",
    "/v1/sessions/",
    "/v1/sessions//",
    "/v1/sessions;a=b",
    "/v1;a/sessions",
    "/v1/sessions%2f",
    "/v1%2fsessions",
    "/v1%2Fsessions",
    "/v1%252fsessions",
    "/v1%5csessions",
    "/V1/sessions",
    "/v1/SESSIONS",
    "/./v1/sessions",
    "/v1/./sessions",
    "/x/../v1/sessions",
    "/health/../v1/sessions",
    "/health/live/../../v1/sessions",
    "/health/%2e%2e/v1/sessions",
    "/health/live%2f..%2f..%2fv1%2fsessions",
    "/openapi.json/../v1/sessions",
    "/errors/../v1/sessions",
    "/v1/sessions%00",
    "/v1/sessions%20",
    "/v1/sessions.json",
    "/%76%31/sessions",
    "/v1/%73essions",
    "/v1/sessions?/health/live",
];

/// Headers that some servers trust.
const BELIEVED: [(&str, &str); 14] = [
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-host", "localhost"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-user", "ann"),
    ("forwarded", "for=127.0.0.1;host=localhost"),
    ("x-real-ip", "127.0.0.1"),
    ("x-client-ip", "127.0.0.1"),
    ("true-client-ip", "127.0.0.1"),
    ("x-original-url", "/health/live"),
    ("x-rewrite-url", "/health/live"),
    ("x-remote-user", "ann"),
    ("remote-user", "ann"),
    ("cookie", "key=olk_1"),
    ("proxy-authorization", "Bearer olk_1"),
];

#[tokio::test]
async fn path_spelling_cannot_bypass_the_key() {
    let stage = Stage::keyed().await;
    let key = stage.key("acme", "admin").await;
    let opened = stage.request("POST", "/v1/sessions").key(&key).json(&json!({})).send().await.ok();
    let id = opened["id"].as_str().unwrap();
    for path in SPELLINGS {
        for method in ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "GETT"] {
            let answer = stage.request(method, path).send().await;
            assert!([400, 401, 404, 405].contains(&answer.status), "{method} {path}: {answer:?}");
            assert!(!answer.body.contains(id), "{method} {path}: {answer:?}");
        }
    }
    // The correct address works only with the key.
    let whole = format!("http://{}/v1/sessions", stage.address);
    assert_eq!(stage.request("GET", &whole).send().await.status, 401);
    assert_eq!(stage.request("GET", &whole).key(&key).send().await.status, 200);
    stage.stop().await;
}

#[tokio::test]
async fn headers_cannot_replace_a_key() {
    let stage = Stage::keyed().await;
    let good = stage.key("acme", "admin").await;
    let ask = || stage.request("GET", "/v1/sessions");
    for (name, value) in BELIEVED {
        let answer = ask().header(name, value).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "key.invalid"), "{name}");
    }
    for (name, value) in [("x-api-key", good.as_str()), ("api-key", &good), ("x-auth-token", &good)] {
        assert_eq!(ask().header(name, value).send().await.status, 401, "{name}");
    }
    let wrong = [
        String::new(),
        good.clone(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {good}0"),
        format!("Bearer {}", &good[..good.len() - 1]),
        format!("Bearer {good} {good}"),
        format!("Bearer {good},{good}"),
        format!("Bearer \"{good}\""),
        format!("Bearer,{good}"),
        format!("Bearer={good}"),
        format!("Token {good}"),
        format!("Basic {good}"),
        format!("Bearer Bearer {good}"),
        format!("Basic eA==, Bearer {good}"),
    ];
    for said in wrong {
        let answer = ask().header("authorization", &said).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "key.invalid"), "{said}");
    }
    for (one, two) in [("x", good.as_str()), (&good, "x"), (&good, &good)] {
        let answer = ask().key(one).again("authorization", &format!("Bearer {two}")).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "input.invalid"));
    }
    stage.stop().await;
}

#[tokio::test]
async fn method_override_headers_are_ignored() {
    let stage = Stage::keyed().await;
    let (admin, reads) = (stage.key("acme", "admin").await, stage.key("acme", "read").await);
    let opened = stage.request("POST", "/v1/sessions").key(&admin).json(&json!({})).send().await.ok();
    let path = format!("/v1/sessions/{}", opened["id"].as_str().unwrap());
    let plain: Value = stage.request("GET", &path).key(&reads).send().await.ok();
    for name in ["x-http-method-override", "x-http-method", "x-method-override", "x-original-method"] {
        for key in [&reads, &admin] {
            let answer = stage.request("GET", &path).key(key).header(name, "DELETE").send().await;
            assert_eq!(answer.ok(), plain, "{name}");
            let answer = stage.request("POST", &path).key(key).header(name, "DELETE").send().await;
            assert_eq!((answer.status, answer.code().as_str()), (405, "route.method"), "{name}");
        }
    }
    stage.request("GET", &format!("{path}?_method=DELETE")).key(&admin).send().await;
    assert_eq!(stage.request("GET", &path).key(&reads).send().await.ok(), plain);
    stage.stop().await;
}
