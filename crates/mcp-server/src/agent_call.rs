//! A call of an agent: a durable turn that the server follows until it ends, waits for a person or reaches the timeout.
//!
//! The turn is durable before the server waits for it. If the caller disconnects or the server dies, nothing is lost.
//! The same call with its idempotency key, or a call with `turn`, follows the same turn again.
use crate::agent_tools::AgentCallArguments;
use crate::approval_prompt::{self, ApprovalPrompt};
use crate::server::{McpServer, cancel_turn, public_detail};
use http::request::Parts;
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::delivery::events::SessionEventStream;
use outlast_runtime::{Input, Runtime};
use outlast_views::{ApprovalQuestion, SessionState, TurnView, VoteOutcome};
use outlast_vocab::access::Scope;
use outlast_vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast_vocab::id::ApprovalId;
use outlast_vocab::record::{Fact, Record, Seq, TurnEnd};
use outlast_vocab::trace::TraceParent;
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Failure, Kind, SessionId, TurnId};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitResult, InputRequests,
    InputRequiredResult, InputResponses, ProgressNotificationParam,
};
use rmcp::service::{RequestContext, RoleServer, ServiceError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use tokio::time::{Instant, sleep_until};

/// The pending answer of a client to a question.
type PendingElicitation =
    Pin<Box<dyn Future<Output = (ApprovalId, Result<ElicitResult, ServiceError>)> + Send>>;

/// A call of an agent.
pub(crate) struct AgentCall<'s> {
    server: &'s McpServer,
    runtime: Runtime,
    context: RequestContext<RoleServer>,
    prompt: ApprovalPrompt,
}

/// A turn that a call follows.
struct FollowedTurn {
    session: SessionId,
    turn: TurnId,
    events: SessionEventStream,
    /// Whether the answer must match a schema.
    has_schema: bool,
    /// Whether the caller can find the turn again.
    is_findable: bool,
    /// The number of progress notifications sent.
    notifications: u32,
    /// The questions already put to the caller.
    put_questions: BTreeSet<ApprovalId>,
    /// The question that is still open.
    open_question: Option<PendingElicitation>,
    /// Why an answer of the caller could not be recorded.
    answer_error: Option<Error>,
    /// Why the turn is stuck, according to the last record.
    stuck: Option<Failure>,
}

/// The first event of a wait.
enum CallEvent {
    Cancelled,
    TimedOut,
    Answered(ApprovalId, Result<ElicitResult, ServiceError>),
    Event(Result<Event, Error>),
}

impl<'s> AgentCall<'s> {
    /// Creates a call that uses this handle.
    pub(crate) fn new(server: &'s McpServer, runtime: Runtime, context: RequestContext<RoleServer>) -> Self {
        let prompt = ApprovalPrompt::of(&runtime, &context);
        Self { server, runtime, context, prompt }
    }

    /// Makes the call. Failures of the turn are returned as results. Only a caller that disconnected gets no result.
    pub(crate) async fn run(self, request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let (calls, id) = (&self.server.calls, self.context.id.clone());
        calls.begin(&id);
        let followed = match self.begin(request).await {
            Ok(followed) => followed,
            Err(error) => {
                calls.end(&id);
                return Ok(failed_result(&error).into());
            }
        };
        let (turn, is_repeatable) = (followed.turn, followed.is_findable);
        if let Some(reason) = calls.set_turn(&id, &self.runtime, turn) {
            cancel_turn(&self.runtime, turn, &reason).await;
        }
        let response = match self.follow(followed).await {
            Ok(Some(response)) => response,
            Ok(None) => {
                if !is_repeatable && self.server.cancels_on_disconnect(&self.context) {
                    cancel_turn(&self.runtime, turn, "the MCP client closed the stream of the call").await;
                }
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            Err(error) => failed_result(&error).into(),
        };
        calls.end(&id);
        Ok(response)
    }

    async fn begin(&self, request: CallToolRequestParams) -> Result<FollowedTurn, Error> {
        self.runtime.access().require(Scope::Run)?;
        let CallToolRequestParams { name, arguments, input_responses, request_state, .. } = request;
        if let Some(state) = request_state {
            return self.resume(&state, input_responses.unwrap_or_default()).await;
        }
        let arguments = AgentCallArguments::read(arguments)?;
        match (arguments.turn, arguments.message) {
            (Some(turn), None) => self.follow_existing(turn).await,
            (None, Some(message)) => {
                let said = AgentCallArguments { message: None, ..arguments };
                self.submit_message(&name, message, said).await
            }
            _ => Err(Error::new(Kind::InputInvalid, "expected a `message`, or a `turn` to wait for again")),
        }
    }

    /// Sends the message. It is durable once this returns.
    async fn submit_message(
        &self,
        agent: &str,
        message: String,
        said: AgentCallArguments,
    ) -> Result<FollowedTurn, Error> {
        let AgentCallArguments { session, idempotency_key, schema, .. } = said;
        let fresh = self.runtime.fresh_session();
        let target = match (session, &idempotency_key) {
            (Some(session), _) if session.starts_with("ses_") => SessionTarget::Id(session.parse()?),
            (Some(key), _) => SessionTarget::Key { key, fresh },
            // A repeated request can find its turn only in the session of the first request.
            (None, Some(key)) => SessionTarget::Key { key: json!(["mcp", agent, key]).to_string(), fresh },
            (None, None) => SessionTarget::New(fresh),
        };
        let (typed, is_repeatable) = (schema.is_some(), idempotency_key.is_some());
        let input = Input {
            key: idempotency_key,
            output: schema,
            agent: Some(agent.to_owned()),
            traceparent: self.traceparent(),
            ..Input::text(target, message)
        };
        let (accepted, events) = self.runtime.submit_watched(input).await?;
        Ok(FollowedTurn {
            has_schema: typed,
            is_findable: is_repeatable,
            ..FollowedTurn::new(accepted.session, accepted.turn, events)
        })
    }

    /// Returns the span that caused the call, from the request's metadata or from its HTTP header. An invalid one is
    /// ignored, as the standard requires.
    fn traceparent(&self) -> Option<TraceParent> {
        let said = self.context.meta.get_traceparent();
        let brought = self.context.extensions.get::<Parts>();
        let header = brought.and_then(|parts| parts.headers.get("traceparent")?.to_str().ok());
        said.or(header)?.parse().ok()
    }

    /// Follows an existing turn.
    async fn follow_existing(&self, turn: TurnId) -> Result<FollowedTurn, Error> {
        let TurnView { session, span: (Seq(first), _), .. } = self.runtime.store().turn(turn).await?;
        let before = Seq(first.saturating_sub(1));
        let input = self.runtime.store().records(session, before, 1).await?.pop().map(|record| record.fact);
        let typed = matches!(input, Some(Fact::Accepted(accepted)) if accepted.output.is_some());
        let events = self.runtime.events(session, before);
        Ok(FollowedTurn { is_findable: true, has_schema: typed, ..FollowedTurn::new(session, turn, events) })
    }

    /// Resumes a call whose result was a question, with the answers to it.
    async fn resume(&self, state: &str, answers: InputResponses) -> Result<FollowedTurn, Error> {
        let place = self.server.cursors.verify(self.runtime.access().visibility, "calls", state)?;
        let mut followed = self.follow_existing(place.parse()?).await?;
        for (id, answer) in answers {
            let id: ApprovalId = id.parse()?;
            followed.put_questions.insert(id);
            let wrong =
                |cause| Error::new(Kind::InputInvalid, format!("the answer to {id} is invalid: {cause}"));
            let counted = match serde_json::from_value(answer).map_err(wrong) {
                Ok(answer) => self.record_vote(id, answer).await.map(drop),
                Err(error) => Err(error),
            };
            followed.answer_error = counted.err().or(followed.answer_error);
        }
        Ok(followed)
    }

    /// Records an answer. A late answer changes nothing, because the turn already has a decision.
    async fn record_vote(&self, id: ApprovalId, answer: ElicitResult) -> Result<Option<VoteOutcome>, Error> {
        match approval_prompt::record_vote(&self.runtime, id, answer).await {
            Err(error) if error.kind() == Kind::ApprovalNotFound => Ok(None),
            counted => counted,
        }
    }

    /// Follows the turn. Returns `None` if the caller cancelled the call.
    async fn follow(&self, mut followed: FollowedTurn) -> Result<Option<CallToolResponse>, Error> {
        if let Some(error) = followed.answer_error.take() {
            return self.answer_failed(&mut followed, &error).await.map(Some);
        }
        let late = Instant::now() + self.server.wait;
        loop {
            let happened = tokio::select! {
                biased;
                () = self.context.ct.cancelled() => CallEvent::Cancelled,
                (id, answer) = await_answer(&mut followed.open_question) => CallEvent::Answered(id, answer),
                event = followed.events.next() => CallEvent::Event(event),
                () = sleep_until(late) => CallEvent::TimedOut,
            };
            let response = match happened {
                CallEvent::Cancelled => return Ok(None),
                CallEvent::TimedOut => Some(self.unfinished(&mut followed).await?),
                CallEvent::Answered(id, answer) => self.handle_answer(&mut followed, id, answer).await?,
                CallEvent::Event(event) => self.handle_event(&mut followed, event?).await?,
            };
            if response.is_some() {
                return Ok(response);
            }
        }
    }

    async fn handle_event(
        &self,
        followed: &mut FollowedTurn,
        event: Event,
    ) -> Result<Option<CallToolResponse>, Error> {
        match event {
            Event::Live(LiveEvent { turn, what }) if turn == followed.turn => {
                self.send_progress(followed, what).await;
                Ok(None)
            }
            Event::Durable(record) => {
                let Record { turn: Some(turn), fact, .. } = *record else { return Ok(None) };
                if turn == followed.turn { self.handle_fact(followed, fact).await } else { Ok(None) }
            }
            _ => Ok(None),
        }
    }

    async fn handle_fact(
        &self,
        followed: &mut FollowedTurn,
        fact: Fact,
    ) -> Result<Option<CallToolResponse>, Error> {
        match fact {
            Fact::Ended { end } => Ok(Some(ended_result(followed, &end).into())),
            Fact::Stuck { failure } => {
                followed.stuck = Some(failure);
                Ok(None)
            }
            Fact::Parked { waits } => match followed.stuck.take() {
                Some(failure) if self.is_parked_on(followed.session, followed.turn, &waits).await? => {
                    Ok(Some(stuck_result(followed, &failure).into()))
                }
                _ => self.ask_next(followed).await,
            },
            _ => Ok(None),
        }
    }

    /// Returns whether the turn is still parked on these waits. Events are read from the turn's first record, so an
    /// earlier wait may already be resolved.
    async fn is_parked_on(&self, session: SessionId, turn: TurnId, waits: &[Wait]) -> Result<bool, Error> {
        let session = self.runtime.store().session(session).await?;
        Ok(session.state == SessionState::Parked && session.active == Some(turn) && session.waits == waits)
    }

    /// Puts the next question of the turn to the caller. If this caller cannot answer it, returns it as the result.
    async fn ask_next(&self, followed: &mut FollowedTurn) -> Result<Option<CallToolResponse>, Error> {
        let questions = self.runtime.approvals().of_turn(followed.turn).await?;
        if questions.is_empty() || followed.open_question.is_some() {
            return Ok(None);
        }
        let open = |question: &&ApprovalQuestion| {
            !followed.put_questions.contains(&question.id)
                && approval_prompt::may_vote(&self.runtime, question)
        };
        let Some(question) = questions.iter().find(open) else {
            return Ok(Some(waiting_result(followed, &questions).into()));
        };
        match self.prompt {
            ApprovalPrompt::None => Ok(Some(waiting_result(followed, &questions).into())),
            ApprovalPrompt::Request => {
                followed.put_questions.insert(question.id);
                followed.open_question = self.elicit(question);
                Ok(None)
            }
            ApprovalPrompt::Result => {
                let asked: InputRequests = questions
                    .iter()
                    .filter(open)
                    .filter_map(|question| {
                        Some((question.id.to_string(), approval_prompt::form_request(question)?))
                    })
                    .collect();
                let visibility = self.runtime.access().visibility;
                let state = self.server.cursors.sign(visibility, "calls", &followed.turn.to_string());
                Ok(Some(InputRequiredResult::new(Some(asked), Some(state)).into()))
            }
        }
    }

    fn elicit(&self, question: &ApprovalQuestion) -> Option<PendingElicitation> {
        let (id, form, peer) =
            (question.id, approval_prompt::approval_form(question)?, self.context.peer.clone());
        Some(Box::pin(async move { (id, peer.create_elicitation(form).await) }))
    }

    /// Handles an answer, or a question that was dismissed.
    async fn handle_answer(
        &self,
        followed: &mut FollowedTurn,
        id: ApprovalId,
        answer: Result<ElicitResult, ServiceError>,
    ) -> Result<Option<CallToolResponse>, Error> {
        followed.open_question = None;
        let unasked =
            |cause| Error::new(Kind::InputInvalid, format!("the client could not show {id}: {cause}"));
        let counted = match answer.map_err(unasked) {
            Ok(answer) => self.record_vote(id, answer).await.map(drop),
            Err(error) => Err(error),
        };
        match counted {
            // If the turn still waits, it waits for other people. Otherwise it resumes.
            Ok(()) => self.ask_next(followed).await,
            Err(error) => self.answer_failed(followed, &error).await.map(Some),
        }
    }

    /// Reports an answer that could not be recorded. The turn still waits, and the result contains both facts.
    async fn answer_failed(
        &self,
        followed: &mut FollowedTurn,
        error: &Error,
    ) -> Result<CallToolResponse, Error> {
        let questions = self.runtime.approvals().of_turn(followed.turn).await?;
        let kind = error.kind();
        let detail = public_detail(kind, error.detail());
        let mut result = waiting_result(followed, &questions);
        result.is_error = Some(true);
        result.content.insert(0, ContentBlock::text(format!("error[{}]: {detail}", kind.code())));
        let error = json!({ "code": kind.code(), "class": kind.class().name(), "detail": detail });
        Ok(with_field(result, "error", error).into())
    }

    async fn unfinished(&self, followed: &mut FollowedTurn) -> Result<CallToolResponse, Error> {
        let questions = self.runtime.approvals().of_turn(followed.turn).await?;
        let response = if questions.is_empty() {
            running_result(followed)
        } else {
            waiting_result(followed, &questions)
        };
        Ok(response.into())
    }

    /// Sends a progress notification, if the caller asked for them.
    async fn send_progress(&self, followed: &mut FollowedTurn, what: LiveEventKind) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        let text = match what {
            LiveEventKind::Text { text, .. } | LiveEventKind::Output { text, .. } => text,
            LiveEventKind::Progress { note, .. } => note,
            LiveEventKind::Retracted { .. } => "· discard the text above; the model starts again".to_owned(),
            _ => return,
        };
        followed.notifications += 1;
        let mut progress = ProgressNotificationParam::new(token, f64::from(followed.notifications));
        progress.message = Some(text);
        // A caller that can no longer receive this gets no result either.
        let _ = self.context.peer.notify_progress(progress).await;
    }
}

impl FollowedTurn {
    fn new(session: SessionId, turn: TurnId, events: SessionEventStream) -> Self {
        Self {
            session,
            turn,
            events,
            has_schema: false,
            is_findable: false,
            notifications: 0,
            put_questions: BTreeSet::new(),
            open_question: None,
            answer_error: None,
            stuck: None,
        }
    }
}

/// Awaits the answer to the open question, or forever if no question is open.
async fn await_answer(
    asking: &mut Option<PendingElicitation>,
) -> (ApprovalId, Result<ElicitResult, ServiceError>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn turn_result(followed: &FollowedTurn, status: &str, text: String) -> CallToolResult {
    let said = json!({ "status": status, "session": followed.session, "turn": followed.turn });
    let mut result = CallToolResult::structured(said);
    result.content = vec![ContentBlock::text(text)];
    result
}

fn with_field(mut result: CallToolResult, name: &str, value: Value) -> CallToolResult {
    if let Some(said) = &mut result.structured_content {
        said[name] = value;
    }
    result
}

fn ended_result(followed: &FollowedTurn, end: &TurnEnd) -> CallToolResult {
    let how = end.name();
    let bad = |text: String| {
        let mut result = turn_result(followed, how, text);
        result.is_error = Some(true);
        result
    };
    match end {
        TurnEnd::Answered { text } => {
            let answer = followed.has_schema.then(|| serde_json::from_str(text).ok()).flatten();
            let answered = turn_result(followed, how, text.clone());
            answer.map_or(answered.clone(), |answer| with_field(answered, "answer", answer))
        }
        TurnEnd::Refused { text } => turn_result(followed, how, text.clone()),
        TurnEnd::OutOfModelCalls { limit } => bad(format!("the turn used all its {limit} model calls")),
        TurnEnd::OutOfBudget { budget, why } => {
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            bad(format!("not enough is left of the {budget}{why}"))
        }
        TurnEnd::Cancelled { reason } => bad(format!("the turn was cancelled: {reason}")),
        TurnEnd::Abandoned { reason } => bad(format!("the turn was abandoned: {reason}")),
        TurnEnd::Aborted { reason, .. } => bad(format!("the turn was aborted: {reason}")),
        TurnEnd::Failed { failure } => with_field(bad(failure_text(failure)), "error", failure_json(failure)),
        TurnEnd::Sealed { claims, alone, hung } => bad(TurnEnd::sealed_because(*claims, *alone, *hung)),
        TurnEnd::Joined { into } => turn_result(followed, how, format!("the message joined {into}")),
    }
}

fn stuck_result(followed: &FollowedTurn, failure: &Failure) -> CallToolResult {
    let mut result = turn_result(
        followed,
        "stuck",
        format!("the turn is stuck and needs an operator: {}", failure_text(failure)),
    );
    result.is_error = Some(true);
    with_field(result, "error", failure_json(failure))
}

fn failure_text(failure: &Failure) -> String {
    format!("{}: {}", failure.code.code(), failure.detail)
}

fn failure_json(failure: &Failure) -> Value {
    json!({ "code": failure.code.code(), "class": failure.code.class().name(), "detail": failure.detail })
}

/// Returns the result for an error before the turn exists.
fn failed_result(cause: &Error) -> CallToolResult {
    let (kind, detail) = (cause.kind(), public_detail(cause.kind(), cause.detail()));
    tracing::info!(error = %cause, "a call of an agent was refused");
    let error = json!({ "code": kind.code(), "class": kind.class().name(), "detail": detail });
    let mut result = CallToolResult::structured_error(json!({ "status": "failed", "error": error }));
    result.content = vec![ContentBlock::text(format!("error[{}]: {detail}", kind.code()))];
    result
}

/// Returns a result that lists the open questions and how to answer them.
fn waiting_result(followed: &FollowedTurn, questions: &[ApprovalQuestion]) -> CallToolResult {
    let wait = |question: &ApprovalQuestion| {
        let (who, ApprovalQuestion { id, call, ask, votes, .. }) = (question.approvers(), question);
        let votes: Vec<&String> = votes.iter().map(|vote| &vote.by).collect();
        let mut entry = json!({ "approval": id, "tool": call.tool, "arguments": call.arguments, "who": who, "votes": votes });
        if let Some(reason) = &ask.reason {
            entry["reason"] = json!(reason);
        }
        entry
    };
    let entry = |ApprovalQuestion { id, call, .. }: &ApprovalQuestion| {
        format!(
            "- {id}: `{}` with {}; `outlast approvals approve {id}` or `outlast approvals deny {id} --reason WHY` decides it, \
             and so does POST /v1/approvals/{id}",
            call.tool, call.arguments
        )
    };
    let list: Vec<String> = questions.iter().map(entry).collect();
    let text = format!(
        "A person must approve these calls; neither the agent nor you may do it:\n{}\nThen call this tool again \
         with {{\"turn\": \"{}\"}}.",
        list.join("\n"),
        followed.turn
    );
    with_field(turn_result(followed, "waiting", text), "waits", questions.iter().map(wait).collect())
}

fn running_result(followed: &FollowedTurn) -> CallToolResult {
    let text = format!(
        "The turn is still running. Call this tool again with {{\"turn\": \"{}\"}} to wait for it.",
        followed.turn
    );
    turn_result(followed, "running", text)
}
