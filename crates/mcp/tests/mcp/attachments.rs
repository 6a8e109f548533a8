//! Content other than text becomes an attachment of the session.
use crate::stage::{Stub, agent, tools};
use expect_test::{Expect, expect};
use outlast_mcp::McpServerSettings;
use serde_json::json;
use std::fmt::Write as _;

/// A server whose tools answer according to their names.
fn painter() -> Stub {
    Stub::new(|method, params| match method {
        "tools/list" => Some(tools(&["picture", "broken", "many", "sheet"])),
        "tools/call" => Some(match params["name"].as_str()? {
            "picture" => json!({"content": [
                {"type": "text", "text": "Here:"},
                {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
                {"type": "audio", "data": "UklGRg==", "mimeType": "Audio/WAV; rate=8000"},
                {"type": "resource", "resource": {"uri": "demo://x/../notes.bin", "blob": "AAE="}},
                {"type": "resource", "resource": {"uri": "demo://text", "mimeType": "text/plain", "text": "words"}},
                {"type": "resource_link", "uri": "demo://elsewhere", "name": "elsewhere"},
                {"type": "image", "data": "", "mimeType": "image/png"},
                {"type": "image", "data": "AAE=", "mimeType": "a picture"},
            ]}),
            "broken" => {
                json!({"content": [{"type": "image", "data": "no base64!", "mimeType": "image/png"}]})
            }
            "many" => {
                let image = |n: u8| json!({"type": "image", "data": format!("AAA{}", char::from(b'A' + n)), "mimeType": "image/png"});
                json!({"content": (0..17).map(|n| image(4 * (n % 4))).collect::<Vec<_>>()})
            }
            _ => json!({
                "content": [{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}],
                "structuredContent": {"rows": 3},
            }),
        }),
        _ => None,
    })
}

/// Checks the result that the model receives and the attachments of the session.
async fn check(tool: &str, expected: &Expect) {
    let script = format!("call stub.{tool} {{}}\n---\nsay {{{{result 0}}}}");
    let outlast = agent(painter().in_memory(), McpServerSettings::default(), &script).await;
    let turn = outlast.session("ann").send("go").await.unwrap();
    let mut log = turn.answer().await.unwrap();
    let files = outlast.store().attachments(turn.session(), 100).await.unwrap();
    for (number, file) in files.iter().enumerate() {
        let file = &file.attachment;
        log = log.replace(&file.id.to_string(), &format!("att_{number}"));
        write!(log, "\natt_{number} {} {:?}", file.media_type.as_str(), file.name).unwrap();
    }
    expected.assert_eq(&log);
}

#[tokio::test]
async fn server_media_and_files_become_session_attachments() {
    check(
        "picture",
        &expect![[r#"
        Here:
        [an image, image/png, 4 bytes: att_1]
        [a sound, Audio/WAV; rate=8000, 4 bytes: att_2]
        [a resource, application/octet-stream, 2 bytes: att_0]
        [demo://text]
        words
        [demo://elsewhere]
        [an image, image/png, 0 bytes, left out: an attachment has no bytes]
        [an image, a picture, 2 bytes, left out: expected a media type like `image/png`, got `a picture`]
        att_0 application/octet-stream Some("notes.bin")
        att_1 image/png None
        att_2 audio/wav None"#]],
    )
    .await;
    check(
        "sheet",
        &expect![[r#"
        {"content":"[an image, image/png, 4 bytes: att_0]","structured":{"rows":3}}
        att_0 image/png None"#]],
    )
    .await;
}

#[tokio::test]
async fn undecodable_server_bytes_fail_the_call() {
    check("broken", &expect!["error tool.failed: the MCP server `stub` answered with an image that is not base64: Invalid symbol 32, offset 2."]).await;
}

#[tokio::test]
async fn a_result_has_a_bounded_number_of_attachments() {
    check(
        "many",
        &expect![["
        [an image, image/png, 3 bytes: att_1]
        [an image, image/png, 3 bytes: att_2]
        [an image, image/png, 3 bytes: att_3]
        [an image, image/png, 3 bytes: att_0]
        [an image, image/png, 3 bytes: att_1]
        [an image, image/png, 3 bytes: att_2]
        [an image, image/png, 3 bytes: att_3]
        [an image, image/png, 3 bytes: att_0]
        [an image, image/png, 3 bytes: att_1]
        [an image, image/png, 3 bytes: att_2]
        [an image, image/png, 3 bytes: att_3]
        [an image, image/png, 3 bytes: att_0]
        [an image, image/png, 3 bytes: att_1]
        [an image, image/png, 3 bytes: att_2]
        [an image, image/png, 3 bytes: att_3]
        [an image, image/png, 3 bytes: att_0]
        [an image, image/png, 3 bytes, left out: a result has at most 16 attachments]
        att_0 image/png None
        att_1 image/png None
        att_2 image/png None
        att_3 image/png None"]],
    )
    .await;
}
