//! Client-side tools, and messages from outside the session that come with an input.
use crate::common::*;
use outlast_runtime::Input;
use outlast_vocab::message::{CallArguments, Message, Part, ToolResult, ToolUse};
use outlast_vocab::record::{InputDelivery, TurnEnd};
use outlast_vocab::tool::ClientTool;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Kind, TurnId};
use serde_json::json;
use std::sync::Arc;

fn weather() -> ClientTool {
    let input = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    ClientTool { name: "weather".parse().unwrap(), description: "Looks out of the window.".to_owned(), input }
}

fn asking(text: &str) -> Input {
    Input { client_tools: vec![weather()], ..input(text) }
}

fn lines() -> Vec<Line> {
    let calls = vec![
        ("weather", json!({"city": "Oslo"})),
        ("weather", json!({"town": "Rome"})),
        ("look", json!({"text": "a"})),
    ];
    vec![Line::Call(calls), Line::Say("bring a coat")]
}

/// Resolves the only wait of the turn.
async fn answer(life: &Life, turn: TurnId) {
    let waits = life.runtime.store().session(SESSION).await.unwrap().waits;
    let [wait] = waits.as_slice() else { panic!("{waits:?}") };
    assert_eq!(wait.kind, WaitKind::ClientTool);
    let key = life.runtime.key_of(turn, &wait.key).await.unwrap();
    life.runtime.resolve(&key, Resolution::Ok(json!("snow"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_tool_call_waits_while_other_calls_run() {
    let (_memory, life) = fresh(lines()).await;
    let turn = life.runtime.submit(asking("what shall I wear?")).await.unwrap().turn;
    life.until("turn.parked").await;
    assert_eq!(life.script.tool_descriptions.lock().unwrap()["weather"], "Looks out of the window.");
    answer(&life, turn).await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "bring a coat".into() });
    let shown = life.last_shown();
    assert_eq!(shown[2], "snow");
    assert!(shown[3].starts_with("error tool.args_invalid"), "{}", shown[3]);
    assert_eq!(shown[4], "saw a");
}

#[tokio::test(start_paused = true)]
async fn another_worker_resumes_after_client_tool_result() {
    let (memory, first) = fresh(lines()).await;
    let turn = first.runtime.submit(asking("what shall I wear?")).await.unwrap().turn;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let second = live(Arc::new(memory), lines(), witness, 2).await;
    answer(&second, turn).await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "bring a coat".into() });
    assert_eq!(second.last_shown()[2], "snow");
}

#[tokio::test(start_paused = true)]
async fn invalid_client_tools_are_refused() {
    let (_memory, life) = fresh(Vec::new()).await;
    let refused = async |client_tools| {
        let input = Input { client_tools, ..input("hi") };
        life.runtime.submit(input).await.unwrap_err().to_string()
    };
    assert_eq!(
        refused(vec![ClientTool { name: "look".parse().unwrap(), ..weather() }]).await,
        "tool.duplicate: there is a tool `look` already; give yours another name"
    );
    let wrong = ClientTool { input: json!({"type": "objekt"}), ..weather() };
    assert!(
        refused(vec![wrong])
            .await
            .starts_with("input.invalid: the parameters of tool `weather` are no JSON Schema")
    );
    assert_eq!(
        refused(vec![weather(); 129]).await,
        "limit.exceeded: client_tools is limited to 128, but this needs 129"
    );
}

fn elsewhere() -> Vec<Message> {
    let id = "c9".parse().unwrap();
    let asked = ToolUse::new(id, "weather".parse().unwrap(), CallArguments::Json(json!({"city": "Oslo"})));
    vec![
        Message::user("how is Oslo?"),
        Message::Assistant { parts: Vec::new(), calls: vec![asked] },
        Message::Tool {
            call: "c9".parse().unwrap(),
            tool: "weather".parse().unwrap(),
            result: ToolResult::Ok(json!("snow")),
        },
        Message::Assistant { parts: vec![Part::text("cold")], calls: Vec::new() },
    ]
}

#[tokio::test(start_paused = true)]
async fn supplied_messages_reach_model_now_and_next_turn() {
    let lines = vec![Line::Say(""), Line::Say(""), Line::Say("wear two"), Line::Say("yes")];
    let (memory, first) = fresh(lines.clone()).await;
    let input = |text, before| Input { before, key: Some("k".to_owned()), ..input(text) };
    let accepted = first.runtime.submit(input("and a coat?", elsewhere())).await.unwrap();
    assert_eq!(first.end(accepted.turn).await, TurnEnd::Answered { text: "wear two".into() });
    assert_eq!(first.last_shown(), ["how is Oslo?", "", "snow", "cold", "and a coat?"]);
    assert!(first.runtime.submit(input("and a coat?", elsewhere())).await.unwrap().duplicate);
    let other = first.runtime.submit(input("and a coat?", Vec::new())).await.unwrap_err();
    assert_eq!(other.kind(), Kind::InputKeyReused);
    let witness = first.die(&memory).await;
    let second = live(Arc::new(memory), lines, witness, 2).await;
    let turn = second.send("really?").await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "yes".into() });
    let shown = ["how is Oslo?", "", "snow", "cold", "and a coat?", "wear two", "really?"];
    assert_eq!(second.last_shown(), shown);
}

#[tokio::test(start_paused = true)]
async fn joining_input_cannot_supply_earlier_messages() {
    let (_memory, life) = fresh(Vec::new()).await;
    let joining = Input { before: elsewhere(), delivery: InputDelivery::Join, ..input("hi") };
    assert_eq!(life.runtime.submit(joining).await.unwrap_err().kind(), Kind::InputInvalid);
}
