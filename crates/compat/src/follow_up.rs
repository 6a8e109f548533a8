//! Parameters that a request repeats when it sends tool results. The turn continues with its original
//! parameters, so different ones are rejected.
use super::compat_error::{CompatError, CompatResult};
use super::response_segment::ResponseSegment;
use super::segment_reader::RecordedSegment;
use outlast_vocab::SessionId;
use outlast_vocab::message::shown;
use outlast_vocab::tool::ClientTool;
use serde_json::{Map, Value};

/// The names of parameters, which differ between APIs.
#[derive(Clone, Copy)]
pub(crate) struct ParamNames {
    pub(crate) input: &'static str,
    pub(crate) instructions: &'static str,
    pub(crate) output: &'static str,
}

/// The repeated parameters. Absent ones stay as they were.
pub(crate) struct FollowUpParams<'a> {
    pub(crate) names: ParamNames,
    pub(crate) agent: Option<&'a str>,
    pub(crate) instructions: &'a [String],
    pub(crate) output: Option<&'a Value>,
    pub(crate) client_tools: &'a [ClientTool],
    pub(crate) metadata: Option<&'a Map<String, Value>>,
    /// The response that ended with the tool calls.
    pub(crate) previous: Option<ResponseSegment>,
    pub(crate) conversation: Option<SessionId>,
}

impl FollowUpParams<'_> {
    /// Rejects parameters that differ from those of the turn, which paused at the end of segment `stopped`.
    pub(crate) fn check(&self, past: &RecordedSegment, stopped: ResponseSegment) -> CompatResult<()> {
        if let Some(package) = &past.package {
            if let Some(agent) = self.agent.filter(|agent| *agent != package.agent) {
                let detail = format!(
                    "the turn of these calls belongs to `{}`, but this request names `{}`",
                    package.agent,
                    shown(agent)
                );
                return Err(CompatError::invalid_param("model", detail));
            }
            if !self.instructions.iter().all(|part| package.system.contains(part.as_str())) {
                return Err(changed_param(self.names.instructions));
            }
            if !self.client_tools.is_empty() && self.client_tools != package.client_tools {
                return Err(changed_param("tools"));
            }
        }
        let input = past.projector.input();
        if self.output.is_some() && self.output != input.output.as_ref() {
            return Err(changed_param(self.names.output));
        }
        let noted = input.note.as_ref().and_then(|note| note["metadata"].as_object());
        if self.metadata.is_some() && self.metadata != noted {
            return Err(changed_param("metadata"));
        }
        if self.previous.is_some_and(|previous| previous != stopped) {
            let detail = "expected the response that ended with the calls, got another";
            return Err(CompatError::invalid_param("previous_response_id", detail));
        }
        if self.conversation.is_some_and(|session| session != past.session) {
            let detail = "expected the conversation that the calls belong to, got another";
            return Err(CompatError::invalid_param("conversation", detail));
        }
        Ok(())
    }
}

fn changed_param(param: &'static str) -> CompatError {
    let detail = "expected the parameters of the turn that requested the calls, or none, got others";
    CompatError::invalid_param(param, detail)
}
