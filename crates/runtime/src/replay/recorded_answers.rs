//! Answers tool calls and model requests from the recording.
use crate::replay::rerun::RecordedTurn;
use futures_util::stream;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest, ProviderRate};
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, ToolDecorator, ToolProvider, ToolRunOutcome};
use outlast_ports::{BoxFuture, ResultFuture};
use outlast_vocab::effect::{BatchCall, Command, ModelOutcome, Outcome, Reply, ToolOutcome};
use outlast_vocab::message::{ModelName, Part, ToolName, ToolResult};
use outlast_vocab::record::{ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, Record};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{CallId, Error, Failure, Hash, Kind, ReplayKey, canonical_json};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How to handle a call.
#[derive(Clone)]
enum ReuseDecision {
    /// Answer it from the recording.
    Recorded(ToolResult),
    /// Run it.
    Execute,
    /// Refuse it, because it is an at-most-once call.
    Refused,
}

/// Counts of calls: answered from the recording, really run, and refused.
#[derive(Clone, Debug, Default)]
pub(super) struct ReuseCounts {
    pub(super) reused: u64,
    pub(super) ran: u64,
    pub(super) not_made: Vec<String>,
}

/// The recorded answers, by tool and arguments.
pub(super) struct RecordedAnswers {
    live: bool,
    at_most_once: bool,
    state: Mutex<ReuseState>,
}

#[derive(Default)]
struct ReuseState {
    answers: BTreeMap<Hash, VecDeque<ToolResult>>,
    decisions: BTreeMap<CallId, ReuseDecision>,
    counts: ReuseCounts,
}

impl RecordedAnswers {
    /// Collects the answers of these turns.
    pub(super) fn of(turns: &[RecordedTurn], live: bool, at_most_once: bool) -> Self {
        let mut answers: BTreeMap<Hash, VecDeque<ToolResult>> = BTreeMap::new();
        for (call, result) in turns.iter().flat_map(|turn| recorded_calls(&turn.records)) {
            answers.entry(call).or_default().push_back(result);
        }
        let state = Mutex::new(ReuseState { answers, ..ReuseState::default() });
        Self { live, at_most_once, state }
    }

    /// Takes the counts of the calls so far.
    pub(super) fn take_counts(&self) -> ReuseCounts {
        std::mem::take(&mut self.lock().counts)
    }

    fn lock(&self) -> MutexGuard<'_, ReuseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses how to handle a call. Every attempt of a call gets the same choice.
    fn decide(&self, call: &PreparedCall) -> ReuseDecision {
        let mut state = self.lock();
        if let Some(choice) = state.decisions.get(&call.id) {
            return choice.clone();
        }
        let may_repeat = call.class.may_repeat();
        let asked = fingerprint(&call.tool, &call.arguments);
        let recorded = match state.answers.get_mut(&asked) {
            // The last answer of a repeatable call serves all further calls.
            Some(answers) if may_repeat && answers.len() == 1 => answers.front().cloned(),
            Some(answers) => answers.pop_front(),
            None => None,
        };
        let choice = match recorded {
            Some(result) if !(self.live && may_repeat) => ReuseDecision::Recorded(result),
            _ if may_repeat || self.at_most_once => ReuseDecision::Execute,
            _ => ReuseDecision::Refused,
        };
        match &choice {
            ReuseDecision::Recorded(_) => state.counts.reused += 1,
            ReuseDecision::Execute => state.counts.ran += 1,
            ReuseDecision::Refused => {
                let not_made = format!("{} {}", call.tool, call.arguments);
                state.counts.not_made.push(not_made);
            }
        }
        state.decisions.insert(call.id, choice.clone());
        choice
    }
}

fn fingerprint(tool: &ToolName, arguments: &Value) -> Hash {
    canonical_json::fingerprint(&(tool, arguments))
}

/// Returns the fingerprints of the calls of a turn that have a known result, in the order in which the model asked for
/// them.
fn recorded_calls(records: &[Record]) -> Vec<(Hash, ToolResult)> {
    let mut asked: BTreeMap<ClaimRef, (ReplayKey, Hash)> = BTreeMap::new();
    let mut results: BTreeMap<ClaimRef, ToolResult> = BTreeMap::new();
    let mut nested = Vec::new();
    for record in records {
        match &record.fact {
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                for (child, call) in (0..).zip(&batch.calls) {
                    if let BatchCall::Run(call) = call {
                        let place = key.child(child as usize, call.model_id.as_str());
                        let call = fingerprint(&call.tool, &call.arguments);
                        asked.insert(ClaimRef { asked: record.seq, child }, (place, call));
                    }
                }
            }
            Fact::Answered(EffectAnswered {
                claim,
                outcome: Outcome::ToolCall(ToolOutcome::Done(result)),
                ..
            }) => {
                results.insert(*claim, result.clone());
            }
            Fact::Performed(EffectPerformed { key, outcome: Outcome::AwaitEvent(resolution), .. }) => {
                let call = asked.iter().find(|(_, (place, _))| *key == place.completion());
                if let Some((claim, _)) = call {
                    results.insert(*claim, completion_result(resolution));
                }
            }
            Fact::Performed(EffectPerformed {
                command: Command::ToolCall(call),
                outcome: Outcome::ToolCall(ToolOutcome::Done(result)),
                ..
            }) => nested.push((fingerprint(&call.call.tool, &call.call.arguments), result.clone())),
            _ => {}
        }
    }
    let known = asked.into_iter().filter_map(|(claim, (_, call))| Some((call, results.remove(&claim)?)));
    known.chain(nested).collect()
}

fn completion_result(resolution: &Resolution) -> ToolResult {
    match resolution {
        Resolution::Ok(value) => ToolResult::Ok(value.clone()),
        Resolution::Err(failure) => ToolResult::Err(failure.clone()),
        Resolution::Timeout => ToolResult::Err(Failure::new(
            Kind::WaitTimedOut,
            "the call was not completed before its deadline",
        )),
        Resolution::Cancelled => ToolResult::Err(Failure::new(Kind::WaitCancelled, "the call was cancelled")),
    }
}

/// Answers calls from the recording if it has an answer.
impl ToolDecorator for RecordedAnswers {
    fn execute<'a>(
        &'a self,
        tools: &'a dyn ToolProvider,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        match self.decide(prepared) {
            ReuseDecision::Recorded(ToolResult::Ok(value)) => {
                Box::pin(ready(Ok(ToolRunOutcome::Completed(value))))
            }
            ReuseDecision::Recorded(ToolResult::Err(failure)) => Box::pin(ready(Err(failure.into()))),
            ReuseDecision::Execute => tools.execute(prepared, call, scope),
            ReuseDecision::Refused => {
                let detail = format!(
                    "`{}` must happen at most once and the recording has no answer for this call, so it was not made",
                    prepared.tool
                );
                Box::pin(ready(Err(Error::new(Kind::CallNotRepeated, detail))))
            }
        }
    }
}

/// The model replies of the first turn that precede the point.
pub(super) struct RecordedReplies(Mutex<VecDeque<Reply>>);

impl RecordedReplies {
    /// Takes the first `replies` model replies of a turn.
    pub(super) fn of(records: &[Record], replies: usize) -> Self {
        let said = records.iter().filter_map(|record| match &record.fact {
            Fact::Performed(EffectPerformed {
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => Some(reply.clone()),
            _ => None,
        });
        Self(Mutex::new(said.take(replies).collect()))
    }

    fn next(&self) -> Option<Reply> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Wraps a model. It first repeats the recorded replies, at no cost.
pub(super) struct ReplayingModel {
    pub(super) model: Arc<dyn ModelProvider>,
    pub(super) prefix: Arc<RecordedReplies>,
}

impl ModelProvider for ReplayingModel {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.model.info(model)
    }

    fn learn_window<'a>(&'a self, model: &'a ModelName) -> BoxFuture<'a, ()> {
        self.model.learn_window(model)
    }

    fn unavailable_reason(&self, model: &ModelName) -> Option<Error> {
        self.model.unavailable_reason(model)
    }

    fn rate(&self, model: &ModelName) -> ProviderRate {
        self.model.rate(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        match self.prefix.next() {
            Some(reply) => Box::pin(stream::iter(events(reply).into_iter().map(Ok))),
            None => self.model.stream(request),
        }
    }
}

fn events(reply: Reply) -> Vec<ModelEvent> {
    let said = reply.parts.into_iter().filter_map(|part| match part {
        Part::Text { text } => Some(ModelEvent::Text(text)),
        Part::Reasoning { text, signature } => Some(ModelEvent::Reasoning { text, signature }),
        Part::Sealed { provider, data } => Some(ModelEvent::Sealed { provider, data }),
        Part::Attachment { .. } | Part::Instruction { .. } | Part::Link { .. } => None,
    });
    let calls = reply.calls.into_iter().map(ModelEvent::Call);
    said.chain(calls).chain([ModelEvent::End(reply.stop)]).collect()
}
