//! What a turn came to, recorded and run again, side by side.
use super::reuse::Counted;
use outlast_vocab::SessionId;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{
    BatchCall, Command, DirectOutcome, ModelOutcome, Outcome, Reply, ToolOutcome, Usage,
};
use outlast_vocab::message::{ToolName, ToolResult, text_of};
use outlast_vocab::record::{Accepted, Answered, Asked, ClaimRef, End, Fact, Performed, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A session that was run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The session.
    pub session: SessionId,
    /// Its turns from the point on.
    pub turns: Vec<ComparedTurn>,
    /// What the recorded turns cost, as far as prices were known.
    pub recorded_cost: Cost,
    /// What the re-run cost, as far as prices are known.
    pub rerun_cost: Cost,
    /// Calls that were answered from the recording.
    pub reused: u64,
    /// Calls that were made.
    pub ran: u64,
    /// Calls that were not made, because they must happen at most once.
    pub not_made: Vec<String>,
}

impl Compared {
    pub(super) fn new(session: SessionId, turns: Vec<ComparedTurn>, counted: &Counted) -> Self {
        let recorded_cost = turns.iter().map(|turn| turn.recorded.cost).sum();
        let rerun_cost = turns.iter().map(|turn| turn.rerun.cost).sum();
        let Counted { reused, ran, not_made } = counted.clone();
        Self { session, turns, recorded_cost, rerun_cost, reused, ran, not_made }
    }

    /// How many turns came to something else.
    pub fn changed(&self) -> usize {
        self.turns.iter().filter(|turn| !turn.is_same()).count()
    }
}

/// A turn, recorded and run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedTurn {
    /// Which turn of the session, counted from 0.
    pub index: u32,
    /// What was said to it.
    pub input: String,
    /// What it came to then.
    pub recorded: Course,
    /// What it came to now.
    pub rerun: Course,
}

impl ComparedTurn {
    /// Whether it ended in the same way, with the same answer and the same calls.
    pub fn is_same(&self) -> bool {
        let (then, now) = (&self.recorded, &self.rerun);
        let asked = |course: &Course| {
            course.calls.iter().map(|call| (call.tool.clone(), call.arguments.clone())).collect::<Vec<_>>()
        };
        then.answer == now.answer && then.end == now.end && asked(then) == asked(now)
    }
}

/// What a turn did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The model that answered it.
    pub model: String,
    /// How it ended, in one word.
    pub end: String,
    /// Its answer, if it has one.
    pub answer: Option<String>,
    /// The tools it used, in the order asked.
    pub calls: Vec<CallMade>,
    /// Replies of models.
    pub replies: u64,
    /// Tokens.
    pub usage: Usage,
    /// Money, as far as prices are known.
    pub cost: Cost,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallMade {
    /// The tool.
    pub tool: ToolName,
    /// What was passed.
    pub arguments: Value,
    /// What it gave; an error by its code and text.
    pub result: Value,
}

/// A turn side by side.
pub(super) fn compare(index: u32, recorded: &[Record], rerun: &[Record]) -> ComparedTurn {
    let input = recorded.iter().find_map(|record| match &record.fact {
        Fact::Accepted(Accepted { parts, .. }) => Some(text_of(parts).into_owned()),
        _ => None,
    });
    let (recorded, rerun) = (course(recorded), course(rerun));
    ComparedTurn { index, input: input.unwrap_or_default(), recorded, rerun }
}

fn course(records: &[Record]) -> Course {
    let mut course = Course::default();
    let mut places: BTreeMap<ClaimRef, usize> = BTreeMap::new();
    for record in records {
        match &record.fact {
            Fact::Performed(Performed { command, outcome, .. }) => {
                if let Command::ModelCall(call) = command {
                    course.model = call.model.to_string();
                }
                course.replied(outcome);
            }
            Fact::Asked(Asked { command: Command::ToolBatch(batch), .. }) => {
                for (child, call) in (0..).zip(&batch.calls) {
                    places.insert(ClaimRef { asked: record.seq, child }, course.calls.len());
                    course.calls.push(made(call));
                }
            }
            Fact::Answered(Answered { claim, outcome: Outcome::ToolCall(outcome), .. }) => {
                if let Some(call) = places.get(claim).and_then(|at| course.calls.get_mut(*at)) {
                    call.result = told(outcome);
                }
            }
            Fact::Ended { end } => {
                end.name().clone_into(&mut course.end);
                course.answer = match end {
                    End::Answered { text } | End::Refused { text } => Some(text.clone()),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    course
}

impl Course {
    fn replied(&mut self, outcome: &Outcome) {
        if let Outcome::ModelCall(ModelOutcome::Reply(reply))
        | Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))) = outcome
        {
            let Reply { usage, cost, .. } = reply;
            self.replies += 1;
            self.usage = self.usage + *usage;
            self.cost = self.cost + cost.unwrap_or_default();
        }
    }
}

fn made(call: &BatchCall) -> CallMade {
    match call {
        BatchCall::Run(run) => {
            CallMade { tool: run.tool.clone(), arguments: run.arguments.clone(), result: Value::Null }
        }
        BatchCall::Refused(refused) => CallMade {
            tool: refused.tool.clone(),
            arguments: Value::Null,
            result: Value::String(format!("{}: {}", refused.failure.code.code(), refused.failure.detail)),
        },
    }
}

fn told(outcome: &ToolOutcome) -> Value {
    match outcome {
        ToolOutcome::Done(ToolResult::Ok(value)) => value.clone(),
        ToolOutcome::Done(ToolResult::Err(failure)) => {
            Value::String(format!("{}: {}", failure.code.code(), failure.detail))
        }
        ToolOutcome::Pending => Value::String("somebody outside finishes it".to_owned()),
        ToolOutcome::Unknown => Value::String("nobody knows".to_owned()),
    }
}
