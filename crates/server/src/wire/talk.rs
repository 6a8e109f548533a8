//! Requests of clients that bring the whole conversation: what is new goes to the session that it was had in, or to a new one.
use super::conversed::Brought;
use super::refusal::{Answer, Refusal};
use super::sending::{self, Sent};
use super::threads::{self, Found};
use crate::inputs::Marks;
use outlast_ports::store::Target;
use outlast_runtime::{Input, Runtime};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::tool::ClientTool;
use outlast_vocab::{Error, Kind};
use serde_json::Value;

/// The idempotency key of the input that begins a session of such a client.
const FIRST: &str = "first";

/// What such a request says beside its conversation.
pub(crate) struct Talk {
    /// The wire it came over: sessions of one are not those of another.
    pub(crate) wire: &'static str,
    pub(crate) agent: String,
    /// What the model is told after what its agent says.
    pub(crate) instructions: Vec<String>,
    /// A JSON Schema that the answer must fit.
    pub(crate) output: Option<Value>,
    /// Kept with the turn.
    pub(crate) note: Option<Value>,
    pub(crate) client_tools: Vec<ClientTool>,
}

impl Talk {
    /// Sends what was brought, and listens to the leg that it begins.
    pub(crate) async fn send(self, runtime: &Runtime, brought: Brought, marks: Marks) -> Answer<Sent> {
        let (before, parts) = match brought {
            Brought::Results(results) => {
                let sent = sending::go_on(runtime, &results).await;
                return sent.map_err(|error| Refusal::from(error).about("messages"));
            }
            Brought::Input { before, parts } => (before, parts),
        };
        let Self { wire, agent, instructions, output, note, client_tools } = self;
        let (key, traceparent) = marks.parts();
        let thread = threads::Thread {
            wire,
            agent: &agent,
            instructions: &instructions,
            before: &before,
            parts: &parts,
        };
        let fresh = runtime.fresh_session();
        let found = if key.is_none() { Some(threads::find(runtime, &thread).await?) } else { None };
        let (target, key, before) = match (found, key) {
            (Some(Found::Here(session)), _) => (Target::Id(session), None, Vec::new()),
            // Of two that begin with the same words at once, one begins the session.
            (Some(Found::New(key)), _) => (Target::Key { key, fresh }, Some(FIRST.to_owned()), before),
            (None, Some(key)) => (Target::Key { key: format!("{wire}/{key}"), fresh }, Some(key), before),
            (Some(Found::Another) | None, _) => (Target::New(fresh), None, before),
        };
        let overlays = if instructions.is_empty() {
            Vec::new()
        } else {
            vec![Overlay { system: instructions, ..Overlay::default() }]
        };
        let input = Input {
            parts,
            key,
            output,
            traceparent,
            before,
            note,
            client_tools,
            agent: Some(agent),
            overlays,
            ..Input::text(target, "")
        };
        let is_first = input.key.as_deref() == Some(FIRST);
        let alone = Input { target: Target::New(runtime.fresh_session()), key: None, ..input.clone() };
        let sent = sending::send(runtime, input).await.map_err(of_input)?;
        if is_first && sent.is_duplicate {
            return sending::send(runtime, alone).await.map_err(of_input);
        }
        Ok(sent)
    }
}

/// An error about what an input brings, with the parameter that said it.
pub(crate) fn of_input(error: Error) -> Refusal {
    let param = match error.kind() {
        Kind::AgentNotFound => "model",
        Kind::ToolDuplicate => "tools",
        _ => return error.into(),
    };
    Refusal::from(error).about(param)
}
