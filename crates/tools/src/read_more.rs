//! `read_more`: reads more of an attachment, such as a result that was too large to show in full.
use outlast_ports::service::Attachments;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_views::AttachmentView;
use outlast_vocab::Error;
use outlast_vocab::id::AttachmentId;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The default number of bytes to return.
const BYTES: usize = 8 << 10;
/// The maximum number of bytes to return at once.
pub const READ_BYTES: usize = 24 << 10;

/// The tool that returns part of an attachment of the session.
pub struct ReadMore;

/// What the model passes to `read_more`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMoreArgs {
    /// The attachment's id, like `att_…`.
    attachment: String,
    /// How many bytes to skip; 0 when absent.
    offset: Option<u64>,
    /// How many bytes to read; 8192 when absent, 24576 at most.
    bytes: Option<usize>,
}

impl Tool for ReadMore {
    type Args = ReadMoreArgs;
    type Needs = Attachments;

    fn spec(&self) -> ToolSpec {
        let description = "Reads on in an attachment: a result that was too large to be shown whole, or a text file of \
                           the user.";
        ToolSpec::new("read_more", description).pure()
    }

    async fn run(
        &self,
        attachments: Attachments,
        _: Call,
        args: ReadMoreArgs,
    ) -> Result<ToolRunOutcome, Error> {
        let id: AttachmentId = args.attachment.parse()?;
        let AttachmentView { attachment, bytes, .. } = attachments.info(id).await?;
        let offset = args.offset.unwrap_or(0);
        if offset > bytes {
            return Err(failed(format!(
                "offset {offset} is beyond the end of {id}, which has {bytes} bytes"
            )));
        }
        let wanted = args.bytes.unwrap_or(BYTES).clamp(1, READ_BYTES);
        // The range may start and end inside a character, which has at most four bytes.
        let before = offset.saturating_sub(3);
        let read = attachments.read(id, before..offset + wanted as u64 + 4).await?;
        let Some((start, text)) = piece(&read, usize::try_from(offset - before).unwrap_or(0), wanted) else {
            return Err(failed(format!("{id} is {}, not text", attachment.media_type.as_str())));
        };
        let start = before + start as u64;
        let next = Some(start + text.len() as u64).filter(|next| *next < bytes);
        done(json!({"text": text, "offset": start, "next_offset": next, "bytes": bytes}))
    }
}

/// Returns the text that starts with the character at `offset`, and the position of that character. The text has as
/// many characters as fit into `wanted` bytes, but at least one. Returns `None` if the bytes are not text.
fn piece(bytes: &[u8], offset: usize, wanted: usize) -> Option<(usize, &str)> {
    let begins = |at: &usize| bytes.get(*at).is_none_or(|byte| byte & 0b1100_0000 != 0b1000_0000);
    let start = (0..=offset).rev().take(4).find(begins)?;
    let first = (start + 1..=bytes.len()).find(begins).unwrap_or(bytes.len());
    let end = (first..=(start + wanted).min(bytes.len())).rev().find(begins).unwrap_or(first);
    Some((start, std::str::from_utf8(&bytes[start..end]).ok()?))
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn attachment_pieces_end_on_character_boundaries() {
        let trial = ToolTester::new();
        let id = trial.attach("text/plain", "zwölf Boxkämpfer".as_bytes());
        let read =
            |offset: usize| trial.show("read_more", json!({"attachment": id, "offset": offset, "bytes": 3}));
        let said = [0, 2, 3, 4, 15].map(read).concat();
        expect![[r#"
            {"bytes":18,"next_offset":2,"offset":0,"text":"zw"}
            {"bytes":18,"next_offset":5,"offset":2,"text":"öl"}
            {"bytes":18,"next_offset":5,"offset":2,"text":"öl"}
            {"bytes":18,"next_offset":7,"offset":4,"text":"lf "}
            {"bytes":18,"next_offset":null,"offset":15,"text":"fer"}
        "#]]
        .assert_eq(&said);
    }

    #[test]
    fn unreadable_attachment_error_names_the_cause() {
        let trial = ToolTester::new();
        let id = trial.attach("image/png", b"\x89PNG\xff");
        let text = trial.attach("text/plain", b"abc");
        let said = trial.show("read_more", json!({"attachment": id}))
            + &trial.show("read_more", json!({"attachment": "file"}))
            + &trial.show("read_more", json!({"attachment": text, "offset": 4}));
        expect![[r"
            tool.failed: att_70da9437532d6a1363ddf2b511a2f88b is image/png, not text
            id.invalid: expected an attachment id (`att_` and 32 hex digits), got `file`
            tool.failed: offset 4 is beyond the end of att_7dabf7bad3016950a117b5060c115443, which has 3 bytes
        "]]
        .assert_eq(&said);
    }
}
