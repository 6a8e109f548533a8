//! Compares a recorded turn with its re-run.
use crate::replay::recorded_answers::ReuseCounts;
use outlast_vocab::SessionId;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{
    BatchCall, Command, DirectOutcome, ModelCharge, ModelOutcome, Outcome, ToolOutcome, Usage,
};
use outlast_vocab::message::{ToolName, ToolResult, text_of};
use outlast_vocab::record::{
    ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, Record, TurnAccepted, TurnEnd,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The result of a re-run, compared with the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RerunReport {
    /// The session.
    pub session: SessionId,
    /// Its turns, starting at the chosen point.
    pub turns: Vec<TurnComparison>,
    /// The cost of the recorded turns, where prices were known.
    pub recorded_cost: Cost,
    /// The cost of the re-run, where prices are known.
    pub rerun_cost: Cost,
    /// The number of calls answered from the recording.
    pub reused: u64,
    /// The number of calls that really ran.
    pub ran: u64,
    /// At-most-once calls that were not made.
    pub not_made: Vec<String>,
}

impl RerunReport {
    pub(super) fn new(session: SessionId, turns: Vec<TurnComparison>, counted: ReuseCounts) -> Self {
        let recorded_cost = turns.iter().map(|turn| turn.recorded.cost).sum();
        let rerun_cost = turns.iter().map(|turn| turn.rerun.cost).sum();
        let ReuseCounts { reused, ran, not_made } = counted;
        Self { session, turns, recorded_cost, rerun_cost, reused, ran, not_made }
    }

    /// Returns the number of turns with a different result.
    pub fn changed(&self) -> usize {
        self.turns.iter().filter(|turn| !turn.is_same()).count()
    }
}

/// One turn: the recording and the re-run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnComparison {
    /// The index of the turn in its session, counted from 0.
    pub index: u32,
    /// The text of the input.
    pub input: String,
    /// The recorded course.
    pub recorded: TurnTrace,
    /// The course of the re-run.
    pub rerun: TurnTrace,
}

impl TurnComparison {
    /// Returns whether both ended in the same way, with the same answer and the same calls.
    pub fn is_same(&self) -> bool {
        let (then, now) = (&self.recorded, &self.rerun);
        let is_same_call = |(one, other): (&TraceCall, &TraceCall)| {
            one.tool == other.tool && one.arguments == other.arguments
        };
        then.answer == now.answer
            && then.end == now.end
            && then.calls.len() == now.calls.len()
            && then.calls.iter().zip(&now.calls).all(is_same_call)
    }
}

/// The course of a turn: its calls, its answer and its cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnTrace {
    /// The model that answered.
    pub model: String,
    /// How the turn ended, in one word.
    pub end: String,
    /// The answer, if there is one.
    pub answer: Option<String>,
    /// The tool calls, in the order in which the model asked for them.
    pub calls: Vec<TraceCall>,
    /// The number of model replies.
    pub replies: u64,
    /// The tokens used.
    pub usage: Usage,
    /// The cost, where prices are known.
    pub cost: Cost,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceCall {
    /// The tool.
    pub tool: ToolName,
    /// The arguments.
    pub arguments: Value,
    /// The result. An error is given by its code and text.
    pub result: Value,
}

/// Compares the records of a turn with those of its re-run.
pub(super) fn compare(index: u32, recorded: Vec<Record>, rerun: Vec<Record>) -> TurnComparison {
    let input = recorded.iter().find_map(|record| match &record.fact {
        Fact::Accepted(TurnAccepted { parts, .. }) => Some(text_of(parts).into_owned()),
        _ => None,
    });
    let (recorded, rerun) = (turn_trace(recorded), turn_trace(rerun));
    TurnComparison { index, input: input.unwrap_or_default(), recorded, rerun }
}

fn turn_trace(records: Vec<Record>) -> TurnTrace {
    let mut course = TurnTrace::default();
    let mut places: BTreeMap<ClaimRef, usize> = BTreeMap::new();
    for record in records {
        match record.fact {
            Fact::Performed(EffectPerformed { command, outcome, .. }) => {
                if let Command::ModelCall(call) = command {
                    course.model = call.model.to_string();
                }
                course.add_reply(&outcome);
            }
            Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
                for (child, call) in (0..).zip(batch.calls) {
                    places.insert(ClaimRef { asked: record.seq, child }, course.calls.len());
                    course.calls.push(trace_call(call));
                }
            }
            Fact::Answered(EffectAnswered { claim, outcome: Outcome::ToolCall(outcome), .. }) => {
                if let Some(call) = places.get(&claim).and_then(|at| course.calls.get_mut(*at)) {
                    call.result = outcome_value(outcome);
                }
            }
            Fact::Ended { end } => {
                end.name().clone_into(&mut course.end);
                course.answer = match end {
                    TurnEnd::Answered { text } | TurnEnd::Refused { text } => Some(text),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    course
}

impl TurnTrace {
    fn add_reply(&mut self, outcome: &Outcome) {
        if let Outcome::ModelCall(ModelOutcome::Reply(reply))
        | Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))) = outcome
        {
            let ModelCharge { usage, cost } = reply.charge();
            self.replies += 1;
            self.usage = self.usage + usage;
            self.cost = self.cost + cost.unwrap_or_default();
        }
    }
}

fn trace_call(call: BatchCall) -> TraceCall {
    match call {
        BatchCall::Run(run) => TraceCall { tool: run.tool, arguments: run.arguments, result: Value::Null },
        BatchCall::Refused(refused) => TraceCall {
            tool: refused.tool,
            arguments: Value::Null,
            result: Value::String(format!("{}: {}", refused.failure.code.code(), refused.failure.detail)),
        },
    }
}

fn outcome_value(outcome: ToolOutcome) -> Value {
    match outcome {
        ToolOutcome::Done(ToolResult::Ok(value)) => value,
        ToolOutcome::Done(ToolResult::Err(failure)) => {
            Value::String(format!("{}: {}", failure.code.code(), failure.detail))
        }
        ToolOutcome::Pending => Value::String("a completion from outside".to_owned()),
        ToolOutcome::Unknown => Value::String("unknown outcome".to_owned()),
    }
}
