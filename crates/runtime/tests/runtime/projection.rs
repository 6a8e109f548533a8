//! Attachment references in tool arguments.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::service::{AttachmentRef, Attachments, Services};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::{Input, RuntimeConfig};
use outlast_vocab::effect::Command;
use outlast_vocab::message::MediaType;
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::{Error, Limits};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// What the tools received.
type SeenTexts = Arc<Mutex<Vec<String>>>;

#[derive(Deserialize, JsonSchema)]
struct Things {
    #[serde(default)]
    text: String,
    #[serde(default)]
    numbers: Vec<u32>,
    #[serde(default)]
    deep: Value,
}

/// A tool that takes large arguments.
struct Take(SeenTexts);

impl Tool for Take {
    type Args = Things;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("take", "Takes.").pure()
    }

    async fn prepare(&self, _: outlast_vocab::SessionId, args: &Things) -> Result<Option<Value>, Error> {
        Ok(Some(json!(args.text.len())))
    }

    async fn run(
        &self,
        (): (),
        call: Call,
        Things { text, numbers, deep }: Things,
    ) -> Result<ToolRunOutcome, Error> {
        self.0.lock().unwrap().push(format!("{text} {numbers:?} {deep} prepared {:?}", call.payload));
        done("taken")
    }
}

#[derive(Deserialize, JsonSchema)]
struct Picture {
    picture: AttachmentRef,
}

/// A tool that takes the reference itself.
struct Look(SeenTexts);

impl Tool for Look {
    type Args = Picture;
    type Needs = Attachments;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("look", "Looks.").pure()
    }

    async fn run(&self, attachments: Attachments, _: Call, args: Picture) -> Result<ToolRunOutcome, Error> {
        let file = attachments.get(args.picture.0).await?;
        self.0.lock().unwrap().push(format!("{:?}", file.bytes));
        done("seen")
    }
}

fn file(media_type: &str, bytes: &[u8]) -> Upload {
    Upload::new(MediaType::try_from(media_type.to_owned()).unwrap(), None, bytes).unwrap()
}

fn reference(file: &Upload) -> String {
    format!("attachment:{}", file.attachment.id)
}

/// Returns the results that the model got, and what the tools received.
async fn play(files: Vec<Upload>, calls: Vec<(&'static str, Value)>) -> (Vec<String>, Vec<String>, Life) {
    let seen = SeenTexts::default();
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Take(seen.clone())).unwrap();
        toolbox.add(Look(seen.clone())).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        config.limits = Limits { projected_bytes: 30, ..Limits::default() };
    };
    let lines = vec![Line::Call(calls), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let turn = life
        .runtime
        .submit(Input { files: files.into_iter().map(Into::into).collect(), ..input("go") })
        .await
        .unwrap()
        .turn;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    let results = life.last_shown().split_off(2);
    let seen = seen.lock().unwrap().clone();
    (results, seen, life)
}

#[tokio::test(start_paused = true)]
async fn attachment_reference_argument_becomes_its_content() {
    let (text, numbers) = (file("text/plain", b"a long text"), file("application/json", b"[1, 2]"));
    let arguments = json!({
        "text": reference(&text),
        "numbers": reference(&numbers),
        "deep": { "a/b": [reference(&numbers), "attachment:none"] },
    });
    let (_, seen, life) = play(vec![text, numbers.clone()], vec![("take", arguments.clone())]).await;
    assert_eq!(seen, ["a long text [1, 2] {\"a/b\":[[1,2],\"attachment:none\"]} prepared Some(Number(11))"]);
    // The journal stores the reference.
    let claimed = life.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Asked(asked) => match asked.command {
            Command::ToolBatch(batch) => Some(batch.calls[0].to_use().arguments),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(claimed, Some(outlast_vocab::message::CallArguments::Json(arguments)));
    // Content stays text if the schema asks for text.
    let arguments = json!({ "text": reference(&numbers) });
    let (_, seen, _) = play(vec![numbers], vec![("take", arguments)]).await;
    assert_eq!(seen, ["[1, 2] [] null prepared Some(Number(6))"]);
}

#[tokio::test(start_paused = true)]
async fn tool_can_receive_attachment_reference() {
    let picture = file("image/png", &[137, 80]);
    let calls = [reference(&picture), picture.attachment.id.to_string()];
    let calls = calls.map(|picture| ("look", json!({ "picture": picture }))).to_vec();
    let (_, seen, _) = play(vec![picture], calls).await;
    assert_eq!(seen, ["[137, 80]", "[137, 80]"]);
}

#[tokio::test(start_paused = true)]
async fn dangling_reference_is_reported_to_model() {
    let (picture, large) = (file("image/png", &[137, 80]), file("text/plain", &[b'x'; 31]));
    let text = |text: String| ("take", json!({ "text": text }));
    let gone = format!("attachment:att_{}", "0".repeat(32));
    let calls = vec![text(gone), text(reference(&picture)), text(reference(&large))];
    let (results, seen, _) = play(vec![picture, large], calls).await;
    assert_eq!(seen, Vec::<String>::new());
    assert!(results[0].contains("has no attachment att_0000"), "{results:?}");
    assert!(results[1].contains("is image/png, not text"), "{results:?}");
    assert!(results[2].contains("projected_bytes is limited to 30, but this needs 31"), "{results:?}");
}
