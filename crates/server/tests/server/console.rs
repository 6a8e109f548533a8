//! The console next to the API.
use crate::stage::Stage;

#[tokio::test]
async fn console_routes_do_not_shadow_the_api() {
    let stage = Stage::keyed().await;
    for path in [
        "/",
        "/sessions",
        "/sessions/ses_1",
        "/compare?left=a&right=b",
        "/approvals",
        "/agents/clerk",
        "/server",
    ] {
        let page = stage.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.starts_with("<!doctype html>"), "{path}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"), "{path}");
    }
    assert_eq!(stage.get("/assets/console.js").await.status, 200);
    for path in ["/sessions/a/b", "/assets/other.js", "/console"] {
        assert_eq!(stage.get(path).await.code(), "route.not_found", "{path}");
    }
    assert_eq!(stage.get("/v1/sessions").await.status, 401);
}
