//! Inputs of the rehearsal model: scripts, and messages of people.
use futures_util::task::noop_waker_ref;
use outlast_ports::clock::VirtualClock;
use outlast_ports::model::{ModelProvider, ModelRequest};
use outlast_providers::{Rehearsal, Script};
use outlast_vocab::effect::{Generation, ModelCall, ToolChoice};
use outlast_vocab::message::{CallArguments, Message, ToolName, ToolResult, ToolUse};
use outlast_vocab::tool::{EffectClass, ToolContract};
use outlast_vocab::{Hash, Kind, Millis};
use serde_json::json;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The maximum number of events of a reply to read.
const MAX_REPLY_EVENTS: usize = 2_000;

/// Reads any text as a script, and plays it for an input before and after its tools have run.
pub(crate) fn script(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let script = match text.parse::<Script>() {
        Ok(script) => script,
        Err(error) => return assert_eq!(error.kind(), Kind::ScriptInvalid),
    };
    let rehearsal = Rehearsal::scripted(script, Arc::new(VirtualClock::at(Millis(0))));
    let input = Message::user("pay Ann a refund");
    read_reply(&rehearsal, std::slice::from_ref(&input));
    let call = ToolUse::new("call_1".parse().expect("it fits"), tool("pay"), arguments());
    let result = ToolResult::Ok(json!({ "receipt": 7, "lines": ["a", null] }));
    let ran = Message::Tool { call: call.id.clone(), tool: call.tool.clone(), result };
    let asked = Message::Assistant { parts: Vec::new(), calls: vec![call] };
    read_reply(&rehearsal, &[input, asked, ran]);
}

/// Sends any text to the rules of the rehearsal model.
pub(crate) fn agent(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let rehearsal = Rehearsal::agent(Arc::new(VirtualClock::at(Millis(0)))).with_word_delay(Duration::ZERO);
    read_reply(&rehearsal, &[Message::user(text)]);
}

/// Reads a reply until it ends, stalls or reaches the maximum.
fn read_reply(rehearsal: &Rehearsal, turn: &[Message]) {
    let names =
        ["pay", "clock", "calculator", "value_set", "value_get", "value_list", "file_read", "file_write"];
    let tools: Vec<ToolContract> = names.iter().map(|name| contract(name)).collect();
    let call = ModelCall {
        model: "rehearsal/fuzz".parse().expect("it fits"),
        at: None,
        tools: Hash::ZERO,
        choice: ToolChoice::Auto,
        options: Generation::default(),
        output: None,
    };
    let request = ModelRequest { turn, tools: &tools, ..ModelRequest::empty(&call) };
    let mut stream = rehearsal.stream(request);
    for _ in 0..MAX_REPLY_EVENTS {
        match stream.as_mut().poll_next(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(_)) | None) | Poll::Pending => return,
        }
    }
}

fn tool(name: &str) -> ToolName {
    name.parse().expect("it fits")
}

fn arguments() -> CallArguments {
    CallArguments::Json(json!({ "to": "ann" }))
}

/// Returns a tool of this name that takes any object.
pub(crate) fn contract(name: &str) -> ToolContract {
    ToolContract {
        class: EffectClass::Pure,
        ..ToolContract::new(tool(name), "", json!({ "type": "object" }))
    }
}
