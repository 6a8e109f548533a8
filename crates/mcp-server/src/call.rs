//! A call of an agent: a durable turn that the server follows until it ends, waits for a person or reaches the timeout.
//!
//! The turn is durable before the server waits for it. If the caller disconnects or the server dies, nothing is lost.
//! The same call with its idempotency key, or a call with `turn`, follows the same turn again.
use crate::asking::{self, Way};
use crate::server::{McpServer, hidden, stop};
use crate::tools::Arguments;
use http::request::Parts;
use outlast_ports::store::{SessionState, Target, TurnView};
use outlast_ports::votes::Voted;
use outlast_runtime::approvals::Question;
use outlast_runtime::events::Events;
use outlast_runtime::{Input, Runtime};
use outlast_vocab::access::Scope;
use outlast_vocab::event::{Event, Live, LiveKind};
use outlast_vocab::id::ApprovalId;
use outlast_vocab::record::{End, Fact, Record, Seq};
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
type Asking = Pin<Box<dyn Future<Output = (ApprovalId, Result<ElicitResult, ServiceError>)> + Send>>;

/// A call of an agent.
pub(crate) struct Call<'s> {
    server: &'s McpServer,
    runtime: Runtime,
    context: RequestContext<RoleServer>,
    way: Way,
}

/// A turn that a call follows.
struct Followed {
    session: SessionId,
    turn: TurnId,
    events: Events,
    /// Whether the answer must match a schema.
    typed: bool,
    /// Whether the caller can find the turn again.
    kept: bool,
    /// The number of progress notifications sent.
    told: u32,
    /// The questions already put to the caller.
    asked: BTreeSet<ApprovalId>,
    /// The question that is still open.
    asking: Option<Asking>,
    /// Why an answer of the caller could not be recorded.
    misheard: Option<Error>,
    /// Why the turn is stuck, according to the last record.
    stuck: Option<Failure>,
}

/// The first event of a wait.
enum Happened {
    Cancelled,
    Late,
    Answered(ApprovalId, Result<ElicitResult, ServiceError>),
    Event(Result<Event, Error>),
}

impl<'s> Call<'s> {
    /// Creates a call that uses this handle.
    pub(crate) fn new(server: &'s McpServer, runtime: Runtime, context: RequestContext<RoleServer>) -> Self {
        let way = Way::of(&runtime, &context);
        Self { server, runtime, context, way }
    }

    /// Makes the call. Failures of the turn are returned as results. Only a caller that disconnected gets no result.
    pub(crate) async fn run(self, request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let (calls, id) = (&self.server.calls, self.context.id.clone());
        calls.begin(&id);
        let followed = match self.begin(request).await {
            Ok(followed) => followed,
            Err(error) => {
                calls.end(&id);
                return Ok(failed(&error).into());
            }
        };
        let (turn, kept) = (followed.turn, followed.kept);
        if let Some(reason) = calls.follow(&id, &self.runtime, turn) {
            stop(&self.runtime, turn, &reason).await;
        }
        let response = match self.follow(followed).await {
            Ok(Some(response)) => response,
            Ok(None) => {
                if !kept && self.server.ends_with_its_stream(&self.context) {
                    stop(&self.runtime, turn, "the MCP client closed the stream of the call").await;
                }
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            Err(error) => failed(&error).into(),
        };
        calls.end(&id);
        Ok(response)
    }

    async fn begin(&self, request: CallToolRequestParams) -> Result<Followed, Error> {
        self.runtime.access().need(Scope::Run)?;
        let CallToolRequestParams { name, arguments, input_responses, request_state, .. } = request;
        if let Some(state) = request_state {
            return self.come_back(&state, input_responses.unwrap_or_default()).await;
        }
        let arguments = Arguments::read(arguments)?;
        match (arguments.turn, arguments.message) {
            (Some(turn), None) => self.again(turn).await,
            (None, Some(message)) => {
                let said = Arguments { message: None, ..arguments };
                self.say(&name, message, said).await
            }
            _ => Err(Error::new(Kind::InputInvalid, "expected a `message`, or a `turn` to wait for again")),
        }
    }

    /// Sends the message. It is durable once this returns.
    async fn say(&self, agent: &str, message: String, said: Arguments) -> Result<Followed, Error> {
        let Arguments { session, idempotency_key, schema, .. } = said;
        let fresh = self.runtime.fresh_session();
        let target = match (session, &idempotency_key) {
            (Some(session), _) if session.starts_with("ses_") => Target::Id(session.parse()?),
            (Some(key), _) => Target::Key { key, fresh },
            // A repeated request can find its turn only in the session of the first request.
            (None, Some(key)) => Target::Key { key: json!(["mcp", agent, key]).to_string(), fresh },
            (None, None) => Target::New(fresh),
        };
        let (typed, kept) = (schema.is_some(), idempotency_key.is_some());
        let input = Input {
            key: idempotency_key,
            output: schema,
            agent: Some(agent.to_owned()),
            traceparent: self.traceparent(),
            ..Input::text(target, message)
        };
        let (accepted, events) = self.runtime.submit_watched(input).await?;
        Ok(Followed { typed, kept, ..Followed::new((accepted.session, accepted.turn), events) })
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
    async fn again(&self, turn: TurnId) -> Result<Followed, Error> {
        let TurnView { session, span: (Seq(first), _), .. } = self.runtime.store().turn(turn).await?;
        let before = Seq(first.saturating_sub(1));
        let input = self.runtime.store().records(session, before, 1).await?.pop().map(|record| record.fact);
        let typed = matches!(input, Some(Fact::Accepted(accepted)) if accepted.output.is_some());
        let events = self.runtime.events(session, before);
        Ok(Followed { kept: true, typed, ..Followed::new((session, turn), events) })
    }

    /// Resumes a call whose result was a question, with the answers to it.
    async fn come_back(&self, state: &str, answers: InputResponses) -> Result<Followed, Error> {
        let place = self.server.places.read(self.runtime.access().reach, "calls", state)?;
        let mut followed = self.again(place.parse()?).await?;
        for (id, answer) in answers {
            let id: ApprovalId = id.parse()?;
            followed.asked.insert(id);
            let wrong =
                |cause| Error::new(Kind::InputInvalid, format!("the answer to {id} does not fit: {cause}"));
            let counted = match serde_json::from_value(answer).map_err(wrong) {
                Ok(answer) => self.count(id, answer).await.map(drop),
                Err(error) => Err(error),
            };
            followed.misheard = counted.err().or(followed.misheard);
        }
        Ok(followed)
    }

    /// Records an answer. A late answer changes nothing, because the turn already has a decision.
    async fn count(&self, id: ApprovalId, answer: ElicitResult) -> Result<Option<Voted>, Error> {
        match asking::count(&self.runtime, id, answer).await {
            Err(error) if error.kind() == Kind::ApprovalNotFound => Ok(None),
            counted => counted,
        }
    }

    /// Follows the turn. Returns `None` if the caller cancelled the call.
    async fn follow(&self, mut followed: Followed) -> Result<Option<CallToolResponse>, Error> {
        if let Some(error) = followed.misheard.take() {
            return self.misheard(&mut followed, &error).await.map(Some);
        }
        let late = Instant::now() + self.server.wait;
        loop {
            let happened = tokio::select! {
                biased;
                () = self.context.ct.cancelled() => Happened::Cancelled,
                (id, answer) = answered(&mut followed.asking) => Happened::Answered(id, answer),
                event = followed.events.next() => Happened::Event(event),
                () = sleep_until(late) => Happened::Late,
            };
            let response = match happened {
                Happened::Cancelled => return Ok(None),
                Happened::Late => Some(self.unfinished(&mut followed).await?),
                Happened::Answered(id, answer) => self.heard(&mut followed, id, answer).await?,
                Happened::Event(event) => self.saw(&mut followed, event?).await?,
            };
            if response.is_some() {
                return Ok(response);
            }
        }
    }

    async fn saw(&self, followed: &mut Followed, event: Event) -> Result<Option<CallToolResponse>, Error> {
        match event {
            Event::Live(Live { turn, what }) if turn == followed.turn => {
                self.tell(followed, what).await;
                Ok(None)
            }
            Event::Durable(record) => {
                let Record { turn: Some(turn), fact, .. } = *record else { return Ok(None) };
                if turn == followed.turn { self.became(followed, fact).await } else { Ok(None) }
            }
            _ => Ok(None),
        }
    }

    async fn became(&self, followed: &mut Followed, fact: Fact) -> Result<Option<CallToolResponse>, Error> {
        match fact {
            Fact::Ended { end } => Ok(Some(ended(followed, &end).into())),
            Fact::Stuck { failure } => {
                followed.stuck = Some(failure);
                Ok(None)
            }
            Fact::Parked { waits } => match followed.stuck.take() {
                Some(failure) if self.stands_at((followed.session, followed.turn), &waits).await? => {
                    Ok(Some(stuck(followed, &failure).into()))
                }
                _ => self.ask(followed).await,
            },
            _ => Ok(None),
        }
    }

    /// Returns whether the turn is still parked on these waits. Events are read from the turn's first record, so an
    /// earlier wait may already be resolved.
    async fn stands_at(&self, (session, turn): (SessionId, TurnId), waits: &[Wait]) -> Result<bool, Error> {
        let session = self.runtime.store().session(session).await?;
        Ok(session.state == SessionState::Parked && session.active == Some(turn) && session.waits == waits)
    }

    /// Puts the next question of the turn to the caller. If this caller cannot answer it, returns it as the result.
    async fn ask(&self, followed: &mut Followed) -> Result<Option<CallToolResponse>, Error> {
        let questions = self.runtime.approvals().of_turn(followed.turn).await?;
        if questions.is_empty() || followed.asking.is_some() {
            return Ok(None);
        }
        let open = |question: &&Question| {
            !followed.asked.contains(&question.id) && asking::may_answer(&self.runtime, question)
        };
        let Some(question) = questions.iter().find(open) else {
            return Ok(Some(waiting(followed, &questions).into()));
        };
        match self.way {
            Way::None => Ok(Some(waiting(followed, &questions).into())),
            Way::Request => {
                followed.asked.insert(question.id);
                followed.asking = self.put(question);
                Ok(None)
            }
            Way::Result => {
                let asked: InputRequests = questions
                    .iter()
                    .filter(open)
                    .filter_map(|question| Some((question.id.to_string(), asking::request(question)?)))
                    .collect();
                let reach = self.runtime.access().reach;
                let state = self.server.places.sign(reach, "calls", &followed.turn.to_string());
                Ok(Some(InputRequiredResult::new(Some(asked), Some(state)).into()))
            }
        }
    }

    fn put(&self, question: &Question) -> Option<Asking> {
        let (id, form, peer) = (question.id, asking::form(question)?, self.context.peer.clone());
        Some(Box::pin(async move { (id, peer.create_elicitation(form).await) }))
    }

    /// Handles an answer, or a question that was dismissed.
    async fn heard(
        &self,
        followed: &mut Followed,
        id: ApprovalId,
        answer: Result<ElicitResult, ServiceError>,
    ) -> Result<Option<CallToolResponse>, Error> {
        followed.asking = None;
        let unasked =
            |cause| Error::new(Kind::InputInvalid, format!("the client could not ask for {id}: {cause}"));
        let counted = match answer.map_err(unasked) {
            Ok(answer) => self.count(id, answer).await.map(drop),
            Err(error) => Err(error),
        };
        match counted {
            // If the turn still waits, it waits for other people. Otherwise it resumes.
            Ok(()) => self.ask(followed).await,
            Err(error) => self.misheard(followed, &error).await.map(Some),
        }
    }

    /// Reports an answer that could not be recorded. The turn still waits, and the result contains both facts.
    async fn misheard(&self, followed: &mut Followed, error: &Error) -> Result<CallToolResponse, Error> {
        let questions = self.runtime.approvals().of_turn(followed.turn).await?;
        let kind = error.kind();
        let detail = hidden(kind, error.detail());
        let mut result = waiting(followed, &questions);
        result.is_error = Some(true);
        result.content.insert(0, ContentBlock::text(format!("error[{}]: {detail}", kind.code())));
        let error = json!({ "code": kind.code(), "class": kind.class().name(), "detail": detail });
        Ok(with(result, "error", error).into())
    }

    async fn unfinished(&self, followed: &mut Followed) -> Result<CallToolResponse, Error> {
        let questions = self.runtime.approvals().of_turn(followed.turn).await?;
        let response = if questions.is_empty() { running(followed) } else { waiting(followed, &questions) };
        Ok(response.into())
    }

    /// Sends a progress notification, if the caller asked for them.
    async fn tell(&self, followed: &mut Followed, what: LiveKind) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        let text = match what {
            LiveKind::Text { text, .. } | LiveKind::Output { text, .. } => text,
            LiveKind::Progress { note, .. } => note,
            LiveKind::Retracted { .. } => "· what was said is void; the model begins anew".to_owned(),
            _ => return,
        };
        followed.told += 1;
        let mut progress = ProgressNotificationParam::new(token, f64::from(followed.told));
        progress.message = Some(text);
        // A caller that can no longer receive this gets no result either.
        let _ = self.context.peer.notify_progress(progress).await;
    }
}

impl Followed {
    fn new((session, turn): (SessionId, TurnId), events: Events) -> Self {
        Self {
            session,
            turn,
            events,
            typed: false,
            kept: false,
            told: 0,
            asked: BTreeSet::new(),
            asking: None,
            misheard: None,
            stuck: None,
        }
    }
}

/// Awaits the answer to the open question, or forever if no question is open.
async fn answered(asking: &mut Option<Asking>) -> (ApprovalId, Result<ElicitResult, ServiceError>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

fn result(followed: &Followed, status: &str, text: String) -> CallToolResult {
    let said = json!({ "status": status, "session": followed.session, "turn": followed.turn });
    let mut result = CallToolResult::structured(said);
    result.content = vec![ContentBlock::text(text)];
    result
}

fn with(mut result: CallToolResult, name: &str, value: Value) -> CallToolResult {
    if let Some(said) = &mut result.structured_content {
        said[name] = value;
    }
    result
}

fn ended(followed: &Followed, end: &End) -> CallToolResult {
    let how = end.name();
    let bad = |text: String| {
        let mut result = result(followed, how, text);
        result.is_error = Some(true);
        result
    };
    match end {
        End::Answered { text } => {
            let answer = followed.typed.then(|| serde_json::from_str(text).ok()).flatten();
            let answered = result(followed, how, text.clone());
            answer.map_or(answered.clone(), |answer| with(answered, "answer", answer))
        }
        End::Refused { text } => result(followed, how, text.clone()),
        End::OutOfModelCalls { limit } => bad(format!("the turn used all its {limit} model calls")),
        End::OutOfBudget { budget, why } => {
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            bad(format!("not enough is left of the {budget}{why}"))
        }
        End::Cancelled { reason } => bad(format!("the turn was cancelled: {reason}")),
        End::Aborted { reason, .. } => bad(format!("the turn was aborted: {reason}")),
        End::Failed { failure } => with(bad(told(failure)), "error", error(failure)),
        End::Sealed { claims, alone, hung } => bad(End::sealed_because(*claims, *alone, *hung)),
        End::Joined { into } => result(followed, how, format!("the message joined {into}")),
    }
}

fn stuck(followed: &Followed, failure: &Failure) -> CallToolResult {
    let mut result =
        result(followed, "stuck", format!("the turn cannot go on until somebody helps: {}", told(failure)));
    result.is_error = Some(true);
    with(result, "error", error(failure))
}

fn told(failure: &Failure) -> String {
    format!("{}: {}", failure.code.code(), failure.detail)
}

fn error(failure: &Failure) -> Value {
    json!({ "code": failure.code.code(), "class": failure.code.class().name(), "detail": failure.detail })
}

/// Returns the result for an error before the turn exists.
fn failed(cause: &Error) -> CallToolResult {
    let (kind, detail) = (cause.kind(), hidden(cause.kind(), cause.detail()));
    tracing::info!(error = %cause, "a call of an agent was refused");
    let error = json!({ "code": kind.code(), "class": kind.class().name(), "detail": detail });
    let mut result = CallToolResult::structured_error(json!({ "status": "failed", "error": error }));
    result.content = vec![ContentBlock::text(format!("error[{}]: {detail}", kind.code()))];
    result
}

/// Returns a result that lists the open questions and how to answer them.
fn waiting(followed: &Followed, questions: &[Question]) -> CallToolResult {
    let wait = |question: &Question| {
        let (who, Question { id, call, ask, votes, .. }) = (question.heard(), question);
        let votes: Vec<&String> = votes.iter().map(|vote| &vote.by).collect();
        let mut told = json!({ "approval": id, "tool": call.tool, "arguments": call.arguments, "who": who, "votes": votes });
        if let Some(reason) = &ask.reason {
            told["reason"] = json!(reason);
        }
        told
    };
    let told = |Question { id, call, .. }: &Question| {
        format!(
            "- {id}: `{}` with {}; `outlast approvals approve {id}` or `outlast approvals deny {id} --reason WHY` decides it, \
             and so does POST /v1/approvals/{id}",
            call.tool, call.arguments
        )
    };
    let list: Vec<String> = questions.iter().map(told).collect();
    let text = format!(
        "This waits for a person to approve it; the agent cannot, and nor can you:\n{}\nOnce that is done, call this tool again \
         with {{\"turn\": \"{}\"}}.",
        list.join("\n"),
        followed.turn
    );
    with(result(followed, "waiting", text), "waits", questions.iter().map(wait).collect())
}

fn running(followed: &Followed) -> CallToolResult {
    let text = format!(
        "The turn goes on and is not over yet. Call this tool again with {{\"turn\": \"{}\"}} to wait for it.",
        followed.turn
    );
    result(followed, "running", text)
}
