//! Schemas from callers that would take too long to validate against are rejected with the input.
use crate::stage::Stage;
use serde_json::{Map, Value, json};

/// A schema of a few kilobytes that takes 2^39 steps to validate against.
fn doubling() -> Value {
    let link = |level: usize| {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        (format!("d{level}"), json!({ "allOf": [next, next] }))
    };
    let mut defs: Map<String, Value> = (0..39).map(link).collect();
    defs.insert("d39".to_owned(), json!(true));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

#[tokio::test]
async fn oversized_answer_schema_is_refused() {
    let stage = Stage::new().await;
    let refused = stage.post("/v1/turns", &json!({ "text": "1", "schema": doubling() })).await;
    assert_eq!((refused.status, refused.code().as_str()), (413, "limit.exceeded"));
    assert_eq!(
        refused.json()["detail"],
        "the schema of the answer is too large: schema_size is limited to 20000, but with its references written out this needs \
         2199023255550"
    );
    let circular = json!({ "anyOf": [{ "$ref": "#" }, { "type": "string" }] });
    let refused = stage.post("/v1/turns", &json!({ "text": "1", "schema": circular })).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "input.invalid"));
    assert_eq!(stage.say("after", "hello").await["end"]["how"], "answered");
    stage.stop().await;
}

#[tokio::test]
async fn oversized_tool_parameters_are_refused() {
    let stage = Stage::new().await;
    let tool = json!({ "type": "function", "function": { "name": "t", "parameters": doubling() } });
    let body = json!({ "model": "assistant", "messages": [{ "role": "user", "content": "hello" }], "tools": [tool] });
    let refused = stage.post("/openai/v1/chat/completions", &body).await;
    assert_eq!(refused.status, 413, "{}", refused.body);
    stage.stop().await;
}
