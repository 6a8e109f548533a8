//! What wires of other providers share; their official clients are played in `cli/tests`.
use crate::stage::Stage;
use serde_json::json;

#[tokio::test]
async fn a_client_that_cannot_come_without_a_key_may_send_any_where_nobody_needs_one() {
    let stage = Stage::new().await;
    let models = |key: &str| stage.request("GET", "/openai/v1/models").key(key).send();
    assert_eq!(models("none").await.ok()["data"][0]["id"], "assistant");
    // One that looks like ours has to be one, and our own API takes nothing else.
    assert_eq!(models("olk_7").await.status, 401);
    assert_eq!(stage.request("GET", "/v1/agents").key("none").send().await.status, 401);
    stage.stop().await;
}

#[tokio::test]
async fn errors_of_a_wire_have_its_shape_also_at_the_door_and_where_nothing_is() {
    let stage = Stage::new().await;
    let stranger = stage.request("GET", "/openai/v1/models").header("host", "evil.example").send().await;
    assert_eq!((stranger.status, stranger.json()["error"]["code"].as_str()), (403, Some("origin.denied")));
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
