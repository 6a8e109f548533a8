//! How many requests a key may send, and what answers say of it (S31, S42).
use crate::stage::Stage;
use outlast_vocab::limits::ServerLimits;
use std::num::NonZeroU32;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_sends_too_much_is_told_when_to_come_again_and_others_are_not_held_up() {
    let limits = ServerLimits { requests_per_minute: NonZeroU32::new(2), ..ServerLimits::default() };
    let stage = Stage::with(|door| door, limits).await;
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
    // Who comes without a key has a quota of their own.
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_quota_says_nothing_of_one() {
    let stage = Stage::new().await;
    let answer = stage.get("/v1/sessions").await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), (None, None));
}
