//! Parameters that a request repeats when it sends tool results. The turn continues with its original
//! parameters, so different ones are rejected.
use super::hearing::Past;
use super::leg::Leg;
use super::refusal::{Answer, Refusal};
use outlast_vocab::SessionId;
use outlast_vocab::message::shown;
use outlast_vocab::tool::ClientTool;
use serde_json::{Map, Value};

/// The names of parameters, which differ between APIs.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) input: &'static str,
    pub(crate) instructions: &'static str,
    pub(crate) output: &'static str,
}

/// The repeated parameters. Absent ones stay as they were.
pub(crate) struct Beside<'a> {
    pub(crate) names: Names,
    pub(crate) agent: Option<&'a str>,
    pub(crate) instructions: &'a [String],
    pub(crate) output: Option<&'a Value>,
    pub(crate) client_tools: &'a [ClientTool],
    pub(crate) metadata: Option<&'a Map<String, Value>>,
    /// The response that ended with the tool calls.
    pub(crate) previous: Option<Leg>,
    pub(crate) conversation: Option<SessionId>,
}

impl Beside<'_> {
    /// Rejects parameters that differ from those of the turn, which paused at the end of segment `stopped`.
    pub(crate) fn check(&self, past: &Past, stopped: Leg) -> Answer<()> {
        if let Some(package) = &past.package {
            if let Some(agent) = self.agent.filter(|agent| *agent != package.agent) {
                let detail = format!(
                    "the turn that asked for the calls is answered by `{}`, and this names `{}`",
                    package.agent,
                    shown(agent)
                );
                return Err(Refusal::wrong("model", detail));
            }
            if !self.instructions.iter().all(|part| package.system.contains(part.as_str())) {
                return Err(changed(self.names.instructions));
            }
            if !self.client_tools.is_empty() && self.client_tools != package.client_tools {
                return Err(changed("tools"));
            }
        }
        let input = past.teller.input();
        if self.output.is_some() && self.output != input.output.as_ref() {
            return Err(changed(self.names.output));
        }
        let noted = input.note.as_ref().and_then(|note| note["metadata"].as_object());
        if self.metadata.is_some() && self.metadata != noted {
            return Err(changed("metadata"));
        }
        if self.previous.is_some_and(|previous| previous != stopped) {
            let detail = "expected the response that ended with the calls, got another";
            return Err(Refusal::wrong("previous_response_id", detail));
        }
        if self.conversation.is_some_and(|session| session != past.session) {
            let detail = "expected the conversation that the calls belong to, got another";
            return Err(Refusal::wrong("conversation", detail));
        }
        Ok(())
    }
}

fn changed(param: &'static str) -> Refusal {
    let detail =
        "expected what the turn that asked for the calls was asked with, or nothing, got something else";
    Refusal::wrong(param, detail)
}
