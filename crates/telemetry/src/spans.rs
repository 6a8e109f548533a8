//! Converts a turn to spans: the turn itself, its model calls, its tool calls with the effects inside them, and its
//! waits. Names and attributes follow the semantic conventions for generative AI.
//!
//! Pure: spans only depend on the records of a finished turn. A crash during the turn only shows as events that the
//! turn was resumed and calls were taken over. Times come from the records: an effect ends when its outcome was
//! written, and a model call starts when the record before it was written.
use crate::content::{self, ContentExport};
use crate::otlp::{nanos, number, text, texts};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use outlast_ports::sink::SinkOutput;
use outlast_vocab::effect::{
    BatchCall, Command, DirectOutcome, ModelOutcome, Outcome, Reply, StepOutcome, ToolOutcome, Usage,
};
use outlast_vocab::message::{ModelName, ToolResult};
use outlast_vocab::record::{
    CallReclaimed, ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, FailedAttempt, Record,
    Seq, TurnAccepted, TurnEnd,
};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::trace::{SpanId, TraceId, provider_name};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Failure, Kind, Millis, ReplayKey};

/// The flag bits of a span: whether it is sampled, and whether it is known that its parent is remote.
const SAMPLED: u32 = 1;
const HAS_IS_REMOTE: u32 = 1 << 8;
const IS_REMOTE: u32 = 1 << 9;

/// Returns the spans of a finished turn, starting with that of the turn.
pub(crate) fn of_turn(
    output: &SinkOutput,
    end: &TurnEnd,
    agent: Option<&str>,
    records: &[Record],
    content: ContentExport,
) -> Vec<Span> {
    let mut tracing = TraceBuilder::begin(output, content, records);
    for record in records {
        tracing.record(record);
    }
    tracing.end(output, end, agent)
}

/// An effect whose span is being built.
struct OpenSpan {
    key: ReplayKey,
    span: Span,
    /// The claim that its answer refers to.
    claim: Option<ClaimRef>,
    /// Whether its end is known.
    is_ended: bool,
}

struct TraceBuilder {
    output_turn: outlast_vocab::TurnId,
    content: ContentExport,
    trace: TraceId,
    root: Span,
    open: Vec<OpenSpan>,
    /// The times of the previous write and of the current one.
    last_write: Millis,
    now: Millis,
}

impl TraceBuilder {
    fn begin(output: &SinkOutput, content: ContentExport, records: &[Record]) -> Self {
        let accepted = records.iter().find_map(|record| match &record.fact {
            Fact::Accepted(accepted) => Some((record.at, accepted.traceparent)),
            _ => None,
        });
        let (began, parent) = accepted.unwrap_or((output.at, None));
        let trace = parent.map_or_else(|| TraceId::of(output.turn), |parent| parent.trace);
        let remote = if parent.is_some() { IS_REMOTE } else { 0 };
        let root = Span {
            trace_id: trace.to_bytes().to_vec(),
            span_id: SpanId::of(output.turn).to_bytes().to_vec(),
            parent_span_id: parent.map(|parent| parent.span.to_bytes().to_vec()).unwrap_or_default(),
            flags: SAMPLED | HAS_IS_REMOTE | remote,
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(began),
            end_time_unix_nano: nanos(output.at),
            ..Span::default()
        };
        Self {
            output_turn: output.turn,
            content,
            trace,
            root,
            open: Vec::new(),
            last_write: began,
            now: began,
        }
    }

    fn record(&mut self, record: &Record) {
        if record.at > self.now {
            (self.last_write, self.now) = (self.now, record.at);
        }
        match &record.fact {
            Fact::Accepted(accepted) => self.add_input(accepted),
            Fact::Asked(asked) => self.asked(asked, record.seq),
            Fact::Answered(answered) => self.answered(answered),
            Fact::Performed(performed) => self.performed(performed),
            Fact::Reclaimed(CallReclaimed { claim, attempt }) => {
                let event =
                    self.event("outlast.call.reclaimed", vec![number("outlast.attempt", (*attempt).into())]);
                self.claim_span(*claim).events.push(event);
            }
            Fact::Parked { waits } => waits.iter().for_each(|wait| self.open_wait(wait)),
            Fact::Resolved { key, resolution } => self.resolved(key, resolution),
            Fact::Stuck { failure } => {
                let event = self.event("outlast.turn.stuck", vec![text("error.type", failure.code.code())]);
                self.root.events.push(event);
            }
            Fact::Resumed(resumed) => {
                let event = self.event("outlast.turn.resumed", vec![number("outlast.lease", resumed.lease)]);
                self.root.events.push(Event { time_unix_nano: nanos(resumed.since), ..event });
            }
            Fact::CancelRequested { .. } => self.add_root_event("outlast.turn.cancel_requested"),
            Fact::EnvironmentRequested(_) => self.add_root_event("outlast.turn.environment_requested"),
            Fact::Compacted(_) => self.add_root_event("outlast.context.compacted"),
            Fact::Hooked(hooked) => {
                let event =
                    self.event("outlast.hook.changed", vec![text("outlast.hook", hooked.hook.as_str())]);
                self.enclosing_span(&hooked.key).events.push(event);
            }
            Fact::Payment(payment) => {
                let event =
                    self.event("outlast.payment", vec![text("outlast.payment.id", payment.id.to_string())]);
                self.enclosing_span(&payment.key).events.push(event);
            }
            Fact::Ruled(ruled) => {
                let event = self.event(
                    "outlast.policy.ruled",
                    vec![text("outlast.policy.rule", ruled.ruling.rule.as_str())],
                );
                self.enclosing_span(&ruled.key).events.push(event);
            }
            Fact::Tried(tried) => {
                self.enclosing_span(&tried.key).events.extend(tried.attempts.iter().map(attempt_failed));
            }
            // Other records do not affect spans.
            _ => {}
        }
        if !matches!(record.fact, Fact::Parked { .. } | Fact::Resolved { .. } | Fact::CancelRequested { .. })
        {
            self.close_parked_waits();
        }
    }

    fn add_input(&mut self, accepted: &TurnAccepted) {
        if self.content == ContentExport::Included {
            self.root.attributes.push(text("gen_ai.input.messages", content::of_input(&accepted.parts)));
        }
    }

    /// Opens a span for each claimed call. Its answer closes it.
    fn asked(&mut self, EffectRequested { key, command }: &EffectRequested, seq: Seq) {
        match command {
            Command::ToolBatch(batch) => {
                for (child, (index, call)) in (0..).zip(batch.calls.iter().enumerate()) {
                    let key = key.child(index, call.model_id().as_str());
                    let claim = ClaimRef { asked: seq, child };
                    match call {
                        BatchCall::Run(call) => self.open_call(key, call, claim),
                        BatchCall::Refused(refused) => {
                            let mut span =
                                self.span(&key, format!("execute_tool {}", refused.tool), self.now);
                            span.attributes.push(text("gen_ai.operation.name", "execute_tool"));
                            span.attributes.push(text("gen_ai.tool.name", refused.tool.as_str()));
                            span.attributes.push(text("gen_ai.tool.call.id", refused.model_id.as_str()));
                            self.mark_failed(&mut span, &refused.failure);
                            self.open.push(OpenSpan { key, span, claim: None, is_ended: true });
                        }
                    }
                }
            }
            Command::ToolCall(call) => {
                self.open_call(key.clone(), &call.call, ClaimRef { asked: seq, child: 0 });
            }
            _ => {}
        }
    }

    fn open_call(&mut self, key: ReplayKey, call: &PreparedCall, claim: ClaimRef) {
        let span = self.tool_span(&key, call, self.now);
        self.open.push(OpenSpan { key, span, claim: Some(claim), is_ended: false });
    }

    fn tool_span(&self, key: &ReplayKey, call: &PreparedCall, since: Millis) -> Span {
        let mut span = self.span(key, format!("execute_tool {}", call.tool), since);
        span.attributes.extend([
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.tool.name", call.tool.as_str()),
            text("gen_ai.tool.type", "function"),
            text("gen_ai.tool.call.id", call.model_id.as_str()),
            text("outlast.call.id", call.id.to_string()),
            text("outlast.call.class", call.class.name()),
        ]);
        if let Some(ruling) = &call.ruling {
            span.attributes.push(text("outlast.policy.rule", ruling.rule.as_str()));
        }
        if self.content == ContentExport::Included {
            span.attributes.push(text("gen_ai.tool.call.arguments", content::of_value(&call.arguments)));
        }
        span
    }

    fn answered(&mut self, EffectAnswered { claim, outcome, .. }: &EffectAnswered) {
        let Outcome::ToolCall(outcome) = outcome else { return };
        let Some(at) = self.open.iter().position(|open| open.claim == Some(*claim)) else { return };
        // A pending call is completed from outside.
        if *outcome != ToolOutcome::Pending {
            self.close_call_span(at, outcome);
        }
    }

    fn close_call_span(&mut self, at: usize, outcome: &ToolOutcome) {
        let mut span = std::mem::take(&mut self.open[at].span);
        self.add_outcome(&mut span, outcome);
        span.end_time_unix_nano = nanos(self.now);
        (self.open[at].span, self.open[at].is_ended) = (span, true);
    }

    fn add_outcome(&self, span: &mut Span, outcome: &ToolOutcome) {
        match outcome {
            ToolOutcome::Done(ToolResult::Ok(value)) => {
                if self.content == ContentExport::Included {
                    span.attributes.push(text("gen_ai.tool.call.result", content::of_value(value)));
                }
            }
            ToolOutcome::Done(ToolResult::Err(failure)) => self.mark_failed(span, failure),
            ToolOutcome::Unknown => {
                let failure = Failure::new(Kind::ToolOutcomeUnknown, "the outcome is unknown");
                self.mark_failed(span, &failure);
            }
            ToolOutcome::Pending => {}
        }
    }

    fn performed(&mut self, EffectPerformed { key, command, outcome, tried, .. }: &EffectPerformed) {
        match (command, outcome) {
            (Command::ModelCall(call), Outcome::ModelCall(outcome)) => {
                let mut span = self.chat(key, &call.model, outcome);
                span.events.extend(tried.iter().map(attempt_failed));
                self.push_closed(key, span);
            }
            (Command::DirectCall(call), Outcome::DirectCall(DirectOutcome(outcome))) => {
                let mut span = self.chat(key, &call.model, outcome);
                span.attributes.push(text("outlast.usage_source", call.usage_source.as_str()));
                span.events.extend(tried.iter().map(attempt_failed));
                self.push_closed(key, span);
            }
            (Command::ToolCall(call), Outcome::ToolCall(outcome)) => {
                let mut span = self.tool_span(key, &call.call, self.started_at(key));
                self.add_outcome(&mut span, outcome);
                self.push_closed(key, span);
            }
            (Command::DurableStep(step), Outcome::DurableStep(outcome)) => {
                let mut span = self.span(key, format!("step {}", step.name), self.started_at(key));
                if let StepOutcome::Failed(failure) = outcome {
                    self.mark_failed(&mut span, failure);
                }
                self.push_closed(key, span);
            }
            (_, Outcome::AwaitEvent(resolution)) => self.resolved(key, resolution),
            (_, Outcome::Sleep(_)) => self.close(key, None),
            (_, Outcome::Checkpoint(joined)) if !joined.inputs.is_empty() => {
                for input in &joined.inputs {
                    let joined = vec![text("outlast.turn.id", input.turn.to_string())];
                    let event = self.event("outlast.input.joined", joined);
                    self.root.events.push(event);
                }
            }
            _ => {}
        }
    }

    /// Returns the span of a model call. The record contains its end; it started when the record before it was written.
    fn chat(&self, key: &ReplayKey, model: &ModelName, outcome: &ModelOutcome) -> Span {
        let (provider, name) = model.as_str().split_once('/').unwrap_or(("", model.as_str()));
        let mut span = self.span(key, format!("chat {name}"), self.started_at(key));
        span.kind = SpanKind::Client.into();
        span.attributes.extend([text("gen_ai.operation.name", "chat"), text("gen_ai.request.model", name)]);
        if !provider.is_empty() {
            span.attributes.push(text("gen_ai.provider.name", provider_name(provider)));
        }
        match outcome {
            ModelOutcome::Reply(reply) => {
                span.attributes.extend(of_reply(reply));
                if self.content == ContentExport::Included {
                    span.attributes.push(text("gen_ai.output.messages", content::of_reply(reply)));
                }
            }
            ModelOutcome::Failed(failed) => self.mark_failed(&mut span, &failed.failure),
        }
        span
    }

    /// Opens a wait the first time that the turn parks for it.
    fn open_wait(&mut self, wait: &Wait) {
        if let Some(open) = self.open.iter_mut().find(|open| open.key == wait.key && open.claim.is_none()) {
            if !open.is_ended {
                open.span.end_time_unix_nano = 0;
            }
            return;
        }
        let mut span = self.span(&wait.key, format!("wait {}", wait.kind.name()), self.now);
        span.attributes.push(text("outlast.wait.kind", wait.kind.name()));
        if wait.kind == WaitKind::Approval {
            span.attributes.push(text("outlast.approval", "asked"));
        }
        span.end_time_unix_nano = 0;
        self.open.push(OpenSpan { key: wait.key.clone(), span, claim: None, is_ended: false });
    }

    fn resolved(&mut self, key: &ReplayKey, resolution: &Resolution) {
        let how = match resolution {
            Resolution::Ok(_) => "ok",
            Resolution::Err(_) => "error",
            Resolution::Timeout => "timeout",
            Resolution::Cancelled => "cancelled",
        };
        self.close(key, Some(how));
        // It completes the pending call.
        if let Some(at) = self.open.iter().position(|open| !open.is_ended && open.key.completion() == *key) {
            let outcome = match resolution {
                Resolution::Ok(value) => ToolResult::Ok(value.clone()),
                Resolution::Err(failure) => ToolResult::Err(failure.clone()),
                Resolution::Timeout => {
                    ToolResult::Err(Failure::new(Kind::ToolTimedOut, "the tool did not finish"))
                }
                Resolution::Cancelled => {
                    ToolResult::Err(Failure::new(Kind::ToolInterrupted, "it was cancelled"))
                }
            };
            self.close_call_span(at, &ToolOutcome::Done(outcome));
        }
    }

    /// Closes a wait, once.
    fn close(&mut self, key: &ReplayKey, how: Option<&str>) {
        let now = self.now;
        let waits = |open: &&mut OpenSpan| open.key == *key && open.claim.is_none() && !open.is_ended;
        if let Some(open) = self.open.iter_mut().find(waits) {
            open.span.end_time_unix_nano = nanos(now);
            open.span.attributes.extend(how.map(|how| text("outlast.wait.resolution", how)));
            open.is_ended = true;
        }
    }

    /// Handles the end of parking: waits without another end are closed here.
    fn close_parked_waits(&mut self) {
        let now = nanos(self.now);
        let waits = |open: &&mut OpenSpan| {
            !open.is_ended && open.claim.is_none() && open.span.end_time_unix_nano == 0
        };
        self.open.iter_mut().filter(waits).for_each(|open| open.span.end_time_unix_nano = now);
    }

    fn push_closed(&mut self, key: &ReplayKey, span: Span) {
        self.open.push(OpenSpan { key: key.clone(), span, claim: None, is_ended: true });
    }

    fn mark_failed(&self, span: &mut Span, failure: &Failure) {
        span.attributes.push(text("error.type", failure.code.code()));
        // The error may repeat parts of the conversation.
        let message =
            if self.content == ContentExport::Included { failure.detail.clone() } else { String::new() };
        span.status = Some(Status { code: StatusCode::Error.into(), message });
    }

    fn event(&self, name: &str, attributes: Vec<KeyValue>) -> Event {
        Event {
            time_unix_nano: nanos(self.now),
            name: name.to_owned(),
            attributes,
            dropped_attributes_count: 0,
        }
    }

    fn add_root_event(&mut self, name: &str) {
        let event = self.event(name, Vec::new());
        self.root.events.push(event);
    }

    /// Returns when an effect may have started: not before the previous write and not before its enclosing call.
    fn started_at(&self, key: &ReplayKey) -> Millis {
        let outer = self.enclosing_call(key).map_or(0, |open| open.span.start_time_unix_nano / 1_000_000);
        Millis(self.last_write.0.max(outer).min(self.now.0))
    }

    /// Returns the innermost call around an effect.
    fn enclosing_call(&self, key: &ReplayKey) -> Option<&OpenSpan> {
        let around = self.open.iter().filter(|open| key.is_under(&open.key));
        around.max_by_key(|open| open.key.as_str().len())
    }

    /// Returns the enclosing span: that of the same key, of the innermost call around it, or of the turn.
    fn enclosing_span(&mut self, key: &ReplayKey) -> &mut Span {
        let holds = |open: &OpenSpan| key == &open.key || key.is_under(&open.key);
        let around = self.open.iter_mut().filter(|open| holds(open));
        match around.max_by_key(|open| open.key.as_str().len()) {
            Some(open) => &mut open.span,
            None => &mut self.root,
        }
    }

    fn claim_span(&mut self, claim: ClaimRef) -> &mut Span {
        match self.open.iter_mut().find(|open| open.claim == Some(claim)) {
            Some(open) => &mut open.span,
            None => &mut self.root,
        }
    }

    fn span(&self, key: &ReplayKey, name: String, since: Millis) -> Span {
        let parent = self.enclosing_call(key).map_or(&self.root, |open| &open.span);
        Span {
            trace_id: self.trace.to_bytes().to_vec(),
            span_id: SpanId::of_effect(self.output_turn, key, "").to_bytes().to_vec(),
            parent_span_id: parent.span_id.clone(),
            flags: SAMPLED | HAS_IS_REMOTE,
            name,
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(since),
            end_time_unix_nano: nanos(self.now),
            attributes: vec![text("outlast.replay_key", key.as_str())],
            ..Span::default()
        }
    }

    fn end(mut self, output: &SinkOutput, end: &TurnEnd, agent: Option<&str>) -> Vec<Span> {
        let mut root = std::mem::take(&mut self.root);
        root.name = agent.map_or_else(|| "invoke_agent".to_owned(), |agent| format!("invoke_agent {agent}"));
        root.attributes.extend([
            text("gen_ai.operation.name", "invoke_agent"),
            text("gen_ai.conversation.id", output.session.to_string()),
            text("outlast.turn.id", output.turn.to_string()),
            text("outlast.org.id", output.org.to_string()),
            text("outlast.turn.outcome", end.name()),
        ]);
        root.attributes.extend(agent.map(|agent| text("gen_ai.agent.name", agent)));
        match end {
            TurnEnd::Failed { failure } => self.mark_failed(&mut root, failure),
            TurnEnd::Sealed { claims, alone, hung } => {
                let detail = TurnEnd::sealed_because(*claims, *alone, *hung);
                self.mark_failed(&mut root, &Failure::new(Kind::TurnSealed, detail));
            }
            TurnEnd::Abandoned { reason } => {
                self.mark_failed(&mut root, &Failure::new(Kind::TurnAbandoned, reason.as_str()));
            }
            TurnEnd::Answered { text: said } | TurnEnd::Refused { text: said }
                if self.content == ContentExport::Included =>
            {
                root.attributes.push(text("gen_ai.output.messages", content::of_answer(said)));
            }
            _ => {}
        }
        let over = root.end_time_unix_nano;
        let mut spans = vec![root];
        spans.extend(self.open.into_iter().map(|open| {
            let unheard = !open.is_ended && (open.claim.is_some() || open.span.end_time_unix_nano == 0);
            let end_time_unix_nano = if unheard { over } else { open.span.end_time_unix_nano };
            Span { end_time_unix_nano, ..open.span }
        }));
        spans
    }
}

/// Returns the event of a failed attempt of a model call.
fn attempt_failed(failed: &FailedAttempt) -> Event {
    Event {
        time_unix_nano: nanos(failed.until),
        name: "outlast.attempt.failed".to_owned(),
        attributes: vec![
            number("outlast.attempt", failed.attempt.into()),
            text("error.type", failed.failure.code.code()),
        ],
        dropped_attributes_count: 0,
    }
}

fn of_reply(reply: &Reply) -> Vec<KeyValue> {
    let Usage { input, cache_read, cache_write, output, reasoning } = reply.usage;
    let mut said = vec![
        texts("gen_ai.response.finish_reasons", &[content::finish_reason(reply.stop)]),
        // The conventions count cached tokens as input tokens.
        number("gen_ai.usage.input_tokens", input + cache_read + cache_write),
        number("gen_ai.usage.output_tokens", output + reasoning),
    ];
    let more = [
        ("gen_ai.usage.cache_read.input_tokens", cache_read),
        ("gen_ai.usage.cache_creation.input_tokens", cache_write),
        ("gen_ai.usage.reasoning.output_tokens", reasoning),
    ];
    said.extend(
        more.into_iter().filter(|(_, tokens)| *tokens > 0).map(|(name, tokens)| number(name, tokens)),
    );
    if reply.attempt > 1 {
        said.push(number("outlast.attempt", reply.attempt.into()));
    }
    said.extend(reply.cost.map(|cost| text("outlast.cost.usd", cost.to_string())));
    said
}
