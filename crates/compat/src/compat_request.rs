//! A request for an answer, in the same form for all APIs. Their handlers only parse requests and render answers.
use super::answer_delivery::RepeatTracking;
use super::compat_error::{CompatError, CompatResult};
use super::conversation_items::{ConversationItems, RequestContent};
use super::follow_up::{FollowUpParams, ParamNames};
use super::idempotency::CompatHeaders;
use super::input_submission::{self, InputDestination, StartedSegment, SubmissionTarget};
use super::session_match::{self, ChatTranscript, SessionMatch};
use outlast_http::HttpState;
use outlast_http::open_requests::RegisteredRequest;
use outlast_http::request_headers::RequestHeaders;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::{Input, RepeatableRequest, Runtime};
use outlast_vocab::message::Part;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::tool::ClientTool;
use outlast_vocab::{Error, Kind};
use serde_json::Value;

/// How often to look for a place for an input if another request takes it.
const TRIES: usize = 4;

/// An API that starts turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompatApi {
    ChatCompletions,
    Responses,
    Messages,
}

impl CompatApi {
    /// Returns the prefix of its idempotency keys. Each API has its own keys.
    pub(crate) const fn key_prefix(self) -> &'static str {
        match self {
            Self::ChatCompletions => "openai/chat",
            Self::Responses => "openai/responses",
            Self::Messages => "anthropic/messages",
        }
    }

    /// Returns the prefix of the keys of sessions that are found by their messages. Each API has its own
    /// sessions.
    pub(crate) const fn session_prefix(self) -> &'static str {
        match self {
            Self::ChatCompletions => "openai-chat",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic-chat",
        }
    }

    const fn param_names(self) -> ParamNames {
        let (input, instructions, output) = match self {
            Self::ChatCompletions => ("messages", "messages", "response_format"),
            Self::Responses => ("input", "instructions", "text.format"),
            Self::Messages => ("messages", "system", "output_config.format"),
        };
        ParamNames { input, instructions, output }
    }
}

/// A parsed request.
pub(crate) struct CompatRequest {
    pub(crate) api: CompatApi,
    /// The agent that answers, or `None` for the default agent.
    pub(crate) agent: Option<String>,
    /// The instructions, after those of the agent, and the conversation or its newest part.
    pub(crate) items: ConversationItems,
    pub(crate) client_tools: Vec<ClientTool>,
    /// A JSON Schema that the answer must match.
    pub(crate) output: Option<Value>,
    /// Stored with the turn. Its member `metadata` contains the metadata of the request.
    pub(crate) note: Option<Value>,
    pub(crate) destination: InputDestination,
    /// How many seconds the turn waits for a provider that is down, if the agent sets no limit.
    pub(crate) provider_wait_s: Option<u32>,
    pub(crate) headers: CompatHeaders,
}

impl CompatRequest {
    /// Starts the segment that answers the request. Results of calls continue the turn that asked for them. A new
    /// input starts a turn in the session of its conversation. A repeated request joins its turn.
    pub(crate) async fn start(
        mut self,
        shared: &HttpState,
        runtime: &Runtime,
    ) -> CompatResult<StartedSegment> {
        let instructions = std::mem::take(&mut self.items.instructions);
        let items = std::mem::take(&mut self.items);
        match items.into_content(self.api.param_names().input)? {
            RequestContent::Results(results) => {
                let beside = self.follow_up_params(&instructions);
                input_submission::resume_with_results(runtime, &results, &beside).await
            }
            RequestContent::Input { before, parts, files } => {
                let (api, destination) = (self.api, self.destination);
                let CompatHeaders { common: RequestHeaders { key, request, traceparent }, repeat } =
                    self.headers;
                let overlay = Overlay { system: instructions, ..Overlay::default() };
                let input = Input {
                    parts,
                    key,
                    request,
                    output: self.output,
                    traceparent,
                    before,
                    note: self.note,
                    client_tools: self.client_tools,
                    agent: self.agent,
                    overlays: if overlay.system.is_empty() { Vec::new() } else { vec![overlay] },
                    provider_wait_s: self.provider_wait_s,
                    files,
                    ..Input::text(SessionTarget::New(runtime.fresh_session()), "")
                };
                let registered = match repeat {
                    Some(repeat) => repeat.register(api, input.agent.as_deref(), shared, runtime).await?,
                    None => None,
                };
                match registered {
                    Some(registered) => {
                        submit_once(shared, runtime, api, &destination, input, registered).await
                    }
                    None => submit(runtime, api, &destination, &input).await,
                }
            }
        }
    }

    fn follow_up_params<'a>(&'a self, instructions: &'a [String]) -> FollowUpParams<'a> {
        let (previous, conversation) = match self.destination {
            InputDestination::Matched => (None, None),
            InputDestination::Session(session) => (None, Some(session)),
            InputDestination::After(segment) => (Some(segment), None),
        };
        FollowUpParams {
            names: self.api.param_names(),
            agent: self.agent.as_deref(),
            instructions,
            output: self.output.as_ref(),
            client_tools: &self.client_tools,
            metadata: self.note.as_ref().and_then(|note| note["metadata"].as_object()),
            previous,
            conversation,
        }
    }
}

/// Sends an input, or joins the turn that an equal request has started.
async fn submit_once(
    shared: &HttpState,
    runtime: &Runtime,
    api: CompatApi,
    destination: &InputDestination,
    input: Input,
    registered: RegisteredRequest,
) -> CompatResult<StartedSegment> {
    let RegisteredRequest { joins, connection } = registered;
    let (turn, fingerprint) = (connection.turn(), connection.fingerprint());
    let mut started = if joins {
        input_submission::join(runtime, turn).await?
    } else {
        let input = Input { repeatable: Some(RepeatableRequest { turn, fingerprint }), ..input };
        match submit(runtime, api, destination, &input).await {
            // The input of the earlier request arrived just now, after its connection had closed.
            Err(refused) if refused.error.kind() == Kind::InputKeyReused => {
                input_submission::join(runtime, turn).await?
            }
            Err(refused) => {
                connection.forget();
                return Err(refused);
            }
            Ok(started) => started,
        }
    };
    let tracking = RepeatTracking { connection, window: shared.limits.repeat_window };
    started.delivery = started.delivery.tracked(tracking);
    Ok(started)
}

/// Sends an input to its session. Looks for another place if another request has just taken the one that was found.
async fn submit(
    runtime: &Runtime,
    api: CompatApi,
    destination: &InputDestination,
    input: &Input,
) -> CompatResult<StartedSegment> {
    let mut tries = 0;
    loop {
        let placed = match destination {
            // Other requests have continued every session that matched, so this is another conversation.
            InputDestination::Matched if tries == TRIES => input.clone(),
            InputDestination::Matched => match_session(runtime, api, input).await?,
            InputDestination::Session(session) => {
                let target = input_submission::place_in_session(runtime, *session).await;
                placed(input, target.map_err(|error| CompatError::from(error).about("conversation"))?)
            }
            InputDestination::After(segment) => {
                let target = input_submission::place_after(runtime, segment.turn, input.key.as_deref()).await;
                placed(input, target.map_err(|error| CompatError::from(error).about("previous_response_id"))?)
            }
        };
        match input_submission::send(runtime, placed).await {
            Err(error) if error.kind() == Kind::SessionMoved && tries < TRIES => tries += 1,
            sent => return sent.map_err(of_input),
        }
    }
}

fn placed(input: &Input, SubmissionTarget { target, index }: SubmissionTarget) -> Input {
    Input { target, index, ..input.clone() }
}

/// Places an input in the session whose messages its request repeats, or in a new one. A repeated request with the
/// same idempotency key goes to the same session.
async fn match_session(runtime: &Runtime, api: CompatApi, input: &Input) -> Result<Input, Error> {
    let fresh = runtime.fresh_session();
    if let Some(key) = &input.key {
        let target = SessionTarget::Key { key: key.clone(), fresh };
        return Ok(Input { target, ..input.clone() });
    }
    let instructions: Vec<&str> =
        input.overlays.iter().flat_map(|overlay| &overlay.system).map(String::as_str).collect();
    let (agent, parts) = (input.agent.as_deref(), input.parts.as_slice());
    let transcript = ChatTranscript { api, agent, instructions: &instructions, before: &input.before, parts };
    Ok(match session_match::find(runtime, &transcript).await? {
        SessionMatch::Existing { session, turns } => Input {
            target: SessionTarget::Id(session),
            index: Some(turns),
            before: Vec::new(),
            // The session already has the files of earlier messages.
            files: input.files.iter().filter(|file| refers_to(parts, file)).cloned().collect(),
            ..input.clone()
        },
        SessionMatch::New(key) => {
            Input { target: SessionTarget::Key { key, fresh }, index: Some(0), ..input.clone() }
        }
        SessionMatch::Unkeyed => input.clone(),
    })
}

fn refers_to(parts: &[Part], file: &AttachmentUpload) -> bool {
    let id = file.attachment().id;
    parts.iter().any(|part| matches!(part, Part::Attachment { attachment } if attachment.id == id))
}

/// Adds to an error about an input the parameter that caused it.
fn of_input(error: Error) -> CompatError {
    let param = match error.kind() {
        Kind::AgentNotFound => "model",
        Kind::ToolDuplicate => "tools",
        _ => return error.into(),
    };
    CompatError::from(error).about(param)
}
