//! A server's question reaches the right call.
use crate::stage::{Stub, agent, tools};
use outlast::{Outlast, Turn};
use outlast_mcp::McpServerSettings;
use outlast_vocab::record::Fact;
use outlast_vocab::wait::Resolution;
use serde_json::{Value, json};
use std::time::Duration;

/// A server that asks the user about the arguments of each call.
fn curious() -> Stub {
    Stub::new(|method, params| match method {
        "tools/list" => Some(tools(&["ask"])),
        "tools/call" => Some(json!({"asks": format!("Who is {}?", params["arguments"]["text"].as_str()?)})),
        _ => None,
    })
}

/// Waits until a turn has parked on this question.
async fn asks(outlast: &Outlast, turn: &Turn, question: &str) {
    let store = outlast.store();
    for _ in 0..2_000 {
        let records = store.turn_records(turn.id()).await.unwrap();
        let waits = !store.session(turn.session()).await.unwrap().waits.is_empty();
        let last = records.iter().rev().find_map(|record| match &record.fact {
            Fact::Performed(performed) => Some(serde_json::to_string(&performed.outcome).unwrap()),
            _ => None,
        });
        if waits && last.is_some_and(|last| last.contains(question)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the turn does not ask `{question}`");
}

async fn answer(outlast: &Outlast, turn: &Turn, answer: &str) {
    let waits = outlast.store().session(turn.session()).await.unwrap().waits;
    let key = outlast.runtime().key_of(turn.id(), &waits[0].key).await.unwrap();
    outlast.runtime().resolve(&key, Resolution::Ok(Value::from(answer))).await.unwrap();
}

#[tokio::test]
async fn server_questions_reach_the_session_of_their_call() {
    let script = "when ann\ncall stub.ask {\"text\": \"ann\"}\n---\nsay {{result 0}}\n\
                  when bob\ncall stub.ask {\"text\": \"bob\"}\n---\nsay {{result 0}}";
    let outlast = agent(curious().in_memory(), McpServerSettings::default(), script).await;
    let mut turns = Vec::new();
    for name in ["ann", "bob"] {
        turns.push(outlast.session(name).send(name).await.unwrap());
    }
    for (turn, name) in turns.iter().zip(["ann", "bob"]) {
        asks(&outlast, turn, &format!("Who is {name}?")).await;
    }
    // The second one is answered first.
    for (turn, name) in turns.iter().zip(["Ann", "Bob"]).rev() {
        answer(&outlast, turn, name).await;
        let said = turn.answer().await.unwrap();
        assert_eq!(said, json!({"action": "accept", "content": {"name": name}}).to_string());
    }
}

#[tokio::test]
async fn calls_of_an_eliciting_server_run_serially() {
    let script = "call stub.ask {\"text\": \"one\"}\ncall stub.ask {\"text\": \"two\"}\n---\nsay {{result 0}}\nsay {{result 1}}";
    let stub = curious();
    let outlast = agent(stub.in_memory(), McpServerSettings::default(), script).await;
    let turn = outlast.session("ann").send("go").await.unwrap();
    asks(&outlast, &turn, "Who is one?").await;
    assert_eq!(stub.received("tools/call").len(), 1);
    answer(&outlast, &turn, "one").await;
    asks(&outlast, &turn, "Who is two?").await;
    answer(&outlast, &turn, "two").await;
    let said = ["one", "two"].map(|name| json!({"action": "accept", "content": {"name": name}}).to_string());
    assert_eq!(turn.answer().await.unwrap(), said.join("\n"));
}
