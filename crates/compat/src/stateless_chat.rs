//! Handles requests that contain the whole conversation. The new input goes to the session of the
//! conversation, or to a new one.
use super::compat_error::{CompatError, CompatResult};
use super::conversation_items::RequestContent;
use super::follow_up::{FollowUpParams, ParamNames};
use super::input_submission::{self, StartedSegment};
use super::session_match::{self, SessionMatch};
use outlast_http::request_headers::RequestHeaders;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::{Input, Runtime};
use outlast_vocab::message::Part;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::tool::ClientTool;
use outlast_vocab::{Error, Kind};
use serde_json::Value;

/// How often to look for a place for an input if another request takes it.
const TRIES: usize = 4;

/// The parameters of such a request, without its conversation.
pub(crate) struct StatelessChat {
    /// The API of the request. Each API has separate sessions.
    pub(crate) api: &'static str,
    pub(crate) agent: String,
    /// Instructions to the model, after those of the agent.
    pub(crate) instructions: Vec<String>,
    /// A JSON Schema that the answer must match.
    pub(crate) output: Option<Value>,
    /// Stored with the turn.
    pub(crate) note: Option<Value>,
    pub(crate) client_tools: Vec<ClientTool>,
    /// How many seconds the turn waits for a provider that is down, if the agent sets no limit.
    pub(crate) provider_wait_s: u32,
    pub(crate) names: ParamNames,
}

impl StatelessChat {
    /// Sends what the request contains, and reads the segment that it starts.
    pub(crate) async fn send(
        self,
        runtime: &Runtime,
        brought: RequestContent,
        marks: RequestHeaders,
    ) -> CompatResult<StartedSegment> {
        let (before, parts, files) = match brought {
            RequestContent::Results(results) => {
                return input_submission::resume_with_results(runtime, &results, &self.follow_up_params())
                    .await;
            }
            RequestContent::Input { before, parts, files } => (before, parts, files),
        };
        let Self { api: wire, agent, instructions, output, note, client_tools, provider_wait_s, .. } = self;
        let RequestHeaders { key, request, traceparent } = marks;
        let overlays = if instructions.is_empty() {
            Vec::new()
        } else {
            vec![Overlay { system: instructions.clone(), ..Overlay::default() }]
        };
        let input = Input {
            parts,
            output,
            traceparent,
            before,
            note,
            client_tools,
            agent: Some(agent.clone()),
            overlays,
            provider_wait_s: Some(provider_wait_s),
            files,
            ..Input::text(SessionTarget::New(runtime.fresh_session()), "")
        };
        if let Some(key) = key {
            let target = SessionTarget::Key { key: key.clone(), fresh: runtime.fresh_session() };
            let keyed = Input { target, key: Some(key), request, ..input };
            return input_submission::send(runtime, keyed).await.map_err(of_input);
        }
        let (before, parts) = (&input.before, &input.parts);
        let thread = session_match::ChatTranscript {
            api: wire,
            agent: &agent,
            instructions: &instructions,
            before,
            parts,
        };
        for _ in 0..TRIES {
            let placed = match session_match::find(runtime, &thread).await? {
                SessionMatch::Existing { session, turns } => Input {
                    target: SessionTarget::Id(session),
                    index: Some(turns),
                    before: Vec::new(),
                    // The session already has the files of earlier messages.
                    files: input.files.iter().filter(|file| refers_to(parts, file)).cloned().collect(),
                    ..input.clone()
                },
                SessionMatch::New(key) => Input {
                    target: SessionTarget::Key { key, fresh: runtime.fresh_session() },
                    index: Some(0),
                    ..input.clone()
                },
                SessionMatch::Unkeyed => break,
            };
            match input_submission::send(runtime, placed).await {
                // Another request just continued that session or started with the same messages. It is
                // another conversation.
                Err(error) if error.kind() == Kind::SessionMoved => {}
                sent => return sent.map_err(of_input),
            }
        }
        input_submission::send(runtime, input).await.map_err(of_input)
    }

    fn follow_up_params(&self) -> FollowUpParams<'_> {
        let note = self.note.as_ref();
        FollowUpParams {
            names: self.names,
            agent: Some(&self.agent),
            instructions: &self.instructions,
            output: self.output.as_ref(),
            client_tools: &self.client_tools,
            metadata: note.and_then(|note| note["metadata"].as_object()),
            previous: None,
            conversation: None,
        }
    }
}

fn refers_to(parts: &[Part], file: &AttachmentUpload) -> bool {
    let id = file.attachment().id;
    parts.iter().any(|part| matches!(part, Part::Attachment { attachment } if attachment.id == id))
}

/// Adds to an error about an input the parameter that caused it.
pub(crate) fn of_input(error: Error) -> CompatError {
    let param = match error.kind() {
        Kind::AgentNotFound => "model",
        Kind::ToolDuplicate => "tools",
        _ => return error.into(),
    };
    CompatError::from(error).about(param)
}
