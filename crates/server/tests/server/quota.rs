//! Rate limits of keys, and the headers that report them.
use crate::stage::Stage;
use outlast_vocab::limits::ServerLimits;
use std::num::NonZeroU32;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn key_over_its_quota_gets_retry_after() {
    let limits = ServerLimits { requests_per_minute: NonZeroU32::new(2), ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let key = stage.key("default", "read").await;
    let ask = || stage.request("GET", "/v1/sessions").key(&key).send();
    let first = ask().await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.header("ratelimit-policy"), Some("\"requests\";q=2;w=60"));
    assert_eq!(first.header("ratelimit"), Some("\"requests\";r=1;t=30"));
    assert_eq!(ask().await.status, 200);
    let refused = ask().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "request.limited"));
    let pause: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&pause), "{pause}");
    assert!(refused.header("ratelimit").unwrap().starts_with("\"requests\";r=0;"));
    // Callers without a key have a separate quota.
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_a_quota_sends_no_quota_headers() {
    let stage = Stage::new().await;
    let answer = stage.get("/v1/sessions").await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), (None, None));
}

/// Returns four keys that are invalid for different reasons.
async fn wrong_keys(stage: &Stage) -> [String; 4] {
    let good = stage.key("acme", "read").await;
    let (id, secret) = good.split_at("olk_".len() + 32);
    let revoked = stage.key("acme", "read").await;
    let key: outlast::vocab::access::ApiKey = revoked.parse().unwrap();
    let operator = stage.outlast.operator();
    operator.runtime().store().revoke_key(key.id, operator.runtime().now()).await.unwrap();
    let other = |text: &str| text.chars().map(|c| if c == '0' { '1' } else { '0' }).collect::<String>();
    [format!("{id}{}", other(secret)), format!("olk_{}{secret}", "7".repeat(32)), revoked, "olk_1".to_owned()]
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_key_limit_does_not_block_valid_keys() {
    let limits =
        ServerLimits { wrong_keys_per_minute: NonZeroU32::new(8).unwrap(), ..ServerLimits::default() };
    let stage =
        Stage::with(|policy| outlast_server::OriginPolicy { without_key: None, ..policy }, limits).await;
    let (good, wrong) = (stage.key("acme", "read").await, wrong_keys(&stage).await);
    let ask = |key: &str| stage.request("GET", "/v1/sessions").key(key).send();
    let mut bodies = Vec::new();
    for key in wrong.iter().chain(&wrong) {
        let answer = ask(key).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        bodies.push(answer.body.replace(answer.header("x-request-id").unwrap(), "REQUEST"));
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    for key in &wrong {
        let refused = ask(key).await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "request.limited"));
        let pause: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=8).contains(&pause), "{pause}");
    }
    assert_eq!(ask(&good).await.status, 200);
    // A request without a key is not an attempt to guess one.
    assert_eq!(stage.get("/v1/sessions").await.status, 401);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_time_does_not_reveal_known_keys() {
    let stage = Stage::keyed().await;
    let [known, unknown, ..] = wrong_keys(&stage).await;
    let (mut of_known, mut of_unknown) = (Vec::new(), Vec::new());
    for _ in 0..1_000 {
        for (key, times) in [(&known, &mut of_known), (&unknown, &mut of_unknown)] {
            let began = Instant::now();
            assert_eq!(stage.request("GET", "/v1/sessions").key(key).send().await.status, 401);
            times.push(began.elapsed());
        }
    }
    of_known.sort();
    of_unknown.sort();
    let ratio = of_known[500].as_secs_f64() / of_unknown[500].as_secs_f64();
    assert!((0.67..1.5).contains(&ratio), "{:?} and {:?}", of_known[500], of_unknown[500]);
    stage.stop().await;
}
