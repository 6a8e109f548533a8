//! A call of an agent: a durable turn, followed until it ends, waits for somebody, or the caller has waited long enough.
//!
//! The turn is durable before anything is awaited. A caller that goes away, or a server that dies, takes nothing with it: the
//! same call with its key, or a call with the `turn`, follows the same turn again.
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

/// The answer of a client to a question that it was asked.
type Asking = Pin<Box<dyn Future<Output = (ApprovalId, Result<ElicitResult, ServiceError>)> + Send>>;

/// A call of an agent.
pub(crate) struct Call<'s> {
    server: &'s McpServer,
    runtime: Runtime,
    context: RequestContext<RoleServer>,
    way: Way,
}

/// A turn that is followed.
struct Followed {
    session: SessionId,
    turn: TurnId,
    events: Events,
    /// Whether its answer is to fit a schema.
    typed: bool,
    /// Whether the caller can come back to it.
    kept: bool,
    /// How often the caller was told of progress.
    told: u32,
    /// The questions that were put to the caller.
    asked: BTreeSet<ApprovalId>,
    /// The one that was not answered yet.
    asking: Option<Asking>,
    /// Why an answer that the caller came back with was not counted.
    misheard: Option<Error>,
    /// Why it could not go on, at the record that was seen last.
    stuck: Option<Failure>,
}

/// What happened first.
enum Happened {
    Cancelled,
    Late,
    Answered(ApprovalId, Result<ElicitResult, ServiceError>),
    Event(Result<Event, Error>),
}

impl<'s> Call<'s> {
    /// A call that came in with this handle.
    pub(crate) fn new(server: &'s McpServer, runtime: Runtime, context: RequestContext<RoleServer>) -> Self {
        let way = Way::of(&runtime, &context);
        Self { server, runtime, context, way }
    }

    /// Makes it. What goes wrong with the turn is a result that says so; only a caller that went away gets none.
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

    /// Sends the message, which is durable when this comes back.
    async fn say(&self, agent: &str, message: String, said: Arguments) -> Result<Followed, Error> {
        let Arguments { session, idempotency_key, schema, .. } = said;
        let fresh = self.runtime.fresh_session();
        let target = match (session, &idempotency_key) {
            (Some(session), _) if session.starts_with("ses_") => Target::Id(session.parse()?),
            (Some(key), _) => Target::Key { key, fresh },
            // A request that is made again finds its turn only in the session it was made in.
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

    /// The span that caused the call: of the request, or of the HTTP request that brought it. One that is none means nothing, as
    /// its standard has it.
    fn traceparent(&self) -> Option<TraceParent> {
        let said = self.context.meta.get_traceparent();
        let brought = self.context.extensions.get::<Parts>();
        let header = brought.and_then(|parts| parts.headers.get("traceparent")?.to_str().ok());
        said.or(header)?.parse().ok()
    }

    /// Follows a turn that is there.
    async fn again(&self, turn: TurnId) -> Result<Followed, Error> {
        let TurnView { session, span: (Seq(first), _), .. } = self.runtime.store().turn(turn).await?;
        let before = Seq(first.saturating_sub(1));
        let input = self.runtime.store().records(session, before, 1).await?.pop().map(|record| record.fact);
        let typed = matches!(input, Some(Fact::Accepted(accepted)) if accepted.output.is_some());
        let events = self.runtime.events(session, before);
        Ok(Followed { kept: true, typed, ..Followed::new((session, turn), events) })
    }

    /// Goes on with a call whose result was a question, with the answers to it.
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

    /// Counts an answer. One that came too late changes nothing: the turn says what was decided.
    async fn count(&self, id: ApprovalId, answer: ElicitResult) -> Result<Option<Voted>, Error> {
        match asking::count(&self.runtime, id, answer).await {
            Err(error) if error.kind() == Kind::ApprovalNotFound => Ok(None),
            counted => counted,
        }
    }

    /// Follows the turn. None if the caller does not want the result any more.
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

    /// Whether the turn still holds still for these. It is followed from its first record on, so what held it up may be mended.
    async fn stands_at(&self, (session, turn): (SessionId, TurnId), waits: &[Wait]) -> Result<bool, Error> {
        let session = self.runtime.store().session(session).await?;
        Ok(session.state == SessionState::Parked && session.active == Some(turn) && session.waits == waits)
    }

    /// Puts the next question of the turn to the caller; what nobody here can answer is the result.
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

    /// Somebody answered, or put the question away.
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
            // What waits still, waits for others; what does not, goes on.
            Ok(()) => self.ask(followed).await,
            Err(error) => self.misheard(followed, &error).await.map(Some),
        }
    }

    /// An answer could not be counted: the turn waits as before, and the caller is told both.
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

    /// Tells a caller that wants to know what is going on.
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
        // Whoever does not hear it any more gets no result either.
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

/// The answer to the question that is open; waits for ever if there is none.
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

/// What went wrong before there was a turn to tell of.
fn failed(cause: &Error) -> CallToolResult {
    let (kind, detail) = (cause.kind(), hidden(cause.kind(), cause.detail()));
    tracing::info!(error = %cause, "a call of an agent was refused");
    let error = json!({ "code": kind.code(), "class": kind.class().name(), "detail": detail });
    let mut result = CallToolResult::structured_error(json!({ "status": "failed", "error": error }));
    result.content = vec![ContentBlock::text(format!("error[{}]: {detail}", kind.code()))];
    result
}

/// What waits for somebody, and how they say yes or no.
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
