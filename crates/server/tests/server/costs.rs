//! What was spent, as the API tells it.
use crate::stage::Stage;

#[tokio::test]
async fn what_was_spent_is_told_day_by_day() {
    let stage = Stage::new().await;
    stage.say("ann", "hello").await;
    let cost = stage.get("/v1/cost?by=model&per=day").await.ok();
    let day = cost["items"][0]["day"].as_str().unwrap_or_default();
    assert_eq!((cost["items"][0]["replies"].as_u64(), day.len()), (Some(1), "2026-11-16".len()), "{cost}");
    assert_eq!(stage.get("/v1/cost?per=week").await.status, 400);
}
