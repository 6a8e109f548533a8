//! A turn as data: each step owns the state machine and accepts only its own answer.
//!
//! The driver matches on [`Step`], performs what the step asks for, and passes the outcome to the same step,
//! which becomes the next one. A step is consumed by its answer, so it cannot be answered twice.
use crate::provenance::TurnMessages;
use outlast_vocab::effect::{
    Boundary, Checkpoint, CheckpointOutcome, Generation, JournalPosition, ModelCall, ModelOutcome, Reply,
    StopReason,
};
use outlast_vocab::message::{CallArguments, Message, ModelName, Part, ToolResult, ToolUse, text_of};
use outlast_vocab::record::TurnEnd;
use outlast_vocab::wait::Wait;
use outlast_vocab::{Failure, Hash, Kind, ReplayKey};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The fixed parameters of a turn. They do not change while the turn runs.
#[derive(Clone, Debug)]
pub struct TurnParameters {
    /// The index of the turn in its session, counted from 0.
    pub index: u32,
    /// The model that answers.
    pub model: ModelName,
    /// The fingerprint of the contracts of the tools that the model may call.
    pub tools: Hash,
    /// The most model calls of the turn.
    pub model_calls: u32,
    /// The most tool calls of one reply.
    pub tools_per_reply: usize,
    /// The JSON Schema of the answer.
    pub output: Option<Value>,
    /// How often an answer that does not match the schema is sent back.
    pub output_repairs: u32,
}

/// What the turn needs next.
#[derive(Debug)]
#[must_use = "a step dropped is a turn lost"]
pub enum Step {
    /// The model must be called.
    CallModel(CallModelStep),
    /// The tool calls of a reply must run.
    RunTools(RunToolsStep),
    /// Inputs and corrections may join here.
    Checkpoint(CheckpointStep),
    /// The turn is parked.
    Wait(ParkedTurn),
    /// The turn is over.
    Done(EndedTurn),
}

/// A step that needs a model call.
#[derive(Debug)]
pub struct CallModelStep {
    machine: TurnMachine,
    key: ReplayKey,
}

/// A step that needs the tool calls of a reply to run.
#[derive(Debug)]
pub struct RunToolsStep {
    continuation: AfterTools,
    key: ReplayKey,
    slots: Vec<CallSlot>,
}

/// The continuation once every call has its result.
#[derive(Debug)]
enum AfterTools {
    /// The turn continues.
    Continue(TurnMachine),
    /// The turn was aborted, and these calls undid its effects.
    Abort { reason: String },
}

#[derive(Debug)]
struct CallSlot {
    call: ToolUse,
    refused: Option<Failure>,
    result: Option<ToolResult>,
}

/// A step at which inputs and corrections may join.
#[derive(Debug)]
pub struct CheckpointStep {
    machine: TurnMachine,
    key: ReplayKey,
    boundary: Boundary,
}

/// A parked turn. Nothing of it stays in memory: when a wait is resolved, the turn is resumed from its journal.
#[derive(Debug, PartialEq, Eq)]
pub struct ParkedTurn {
    /// What the turn waits for. Never empty.
    pub waits: Vec<Wait>,
}

/// A finished turn.
#[derive(Debug, PartialEq, Eq)]
pub struct EndedTurn {
    /// How it ended.
    pub end: TurnEnd,
    /// The messages of an answered turn. Read the messages of any other turn from its journal.
    pub messages: Vec<Message>,
}

impl From<TurnEnd> for EndedTurn {
    fn from(end: TurnEnd) -> Self {
        Self { end, messages: Vec::new() }
    }
}

#[derive(Debug)]
struct TurnMachine {
    plan: TurnParameters,
    root: ReplayKey,
    messages: Vec<Message>,
    /// The indices of the messages that the user typed.
    typed: Vec<usize>,
    /// The index of the input that began the turn.
    input: usize,
    model_calls: u32,
    checkpoints: u32,
    repairs: u32,
}

/// Returns the first step of a turn with this input. `before` holds the messages of an earlier conversation
/// elsewhere.
pub fn begin_turn(plan: TurnParameters, before: Vec<Message>, input: Vec<Part>) -> Step {
    let root = ReplayKey::turn(plan.index);
    let mut messages = before;
    messages.push(Message::User { parts: input });
    let input = messages.len() - 1;
    let is_user = |(_, message): &(usize, &Message)| matches!(message, Message::User { .. });
    let typed = messages.iter().enumerate().filter(is_user).map(|(place, _)| place).collect();
    TurnMachine { plan, root, messages, typed, input, model_calls: 0, checkpoints: 0, repairs: 0 }.ask()
}

/// Returns the first step that undoes the effects of an aborted turn. The calls run in this order.
pub fn begin_undo(index: u32, calls: Vec<ToolUse>, reason: String) -> Step {
    let slot = |call| CallSlot { call, refused: None, result: None };
    let slots = calls.into_iter().map(slot).collect();
    RunToolsStep { continuation: AfterTools::Abort { reason }, key: ReplayKey::turn(index).undo(), slots }
        .next()
}

impl CallModelStep {
    /// Returns the replay key of the call.
    pub fn key(&self) -> &ReplayKey {
        &self.key
    }

    /// Returns the request. `at` is the last message of the conversation so far, or `None` on a host that
    /// stores nothing.
    pub fn effect(&self, at: Option<JournalPosition>) -> ModelCall {
        let TurnParameters { model, tools, output, .. } = &self.machine.plan;
        ModelCall {
            model: model.clone(),
            at,
            tools: *tools,
            choice: outlast_vocab::effect::ToolChoice::default(),
            options: Generation::default(),
            output: output.clone(),
        }
    }

    /// Returns the index of the model call in the turn, counted from 0.
    pub fn number(&self) -> u32 {
        self.machine.model_calls - 1
    }

    /// Returns the messages of this turn so far, in the order the model reads them.
    pub fn messages(&self) -> &[Message] {
        &self.machine.messages
    }

    /// Continues with the outcome of the call.
    pub fn resume(self, outcome: ModelOutcome) -> Step {
        let reply = match outcome {
            ModelOutcome::Reply(reply) => reply,
            ModelOutcome::Failed(failed) => {
                return Step::Done(TurnEnd::Failed { failure: failed.failure }.into());
            }
        };
        let mut machine = self.machine;
        let Reply { parts, calls, stop, .. } = reply;
        if !calls.is_empty() {
            let key = machine.root.tools(machine.model_calls - 1);
            let slots = slots(&calls, machine.plan.tools_per_reply);
            machine.messages.push(Message::Assistant { parts, calls });
            return RunToolsStep { continuation: AfterTools::Continue(machine), key, slots }.next();
        }
        let text = || text_of(&parts).into_owned();
        let end = match stop {
            StopReason::End | StopReason::ToolUse => {
                machine.messages.push(Message::Assistant { parts, calls });
                return machine.check(Boundary::BeforeCompletion);
            }
            StopReason::Refusal => TurnEnd::Refused { text: text() },
            StopReason::Length => {
                let detail = "the model ran out of tokens before its answer was whole";
                TurnEnd::Failed { failure: Failure::new(Kind::ModelCut, detail) }
            }
        };
        Step::Done(end.into())
    }

    /// Parks the turn before the call is tried again.
    pub fn wait(self, wait: Wait) -> Step {
        self.wait_for_any(vec![wait])
    }

    /// Parks the turn until one of these waits is over.
    pub fn wait_for_any(self, waits: Vec<Wait>) -> Step {
        Step::Wait(ParkedTurn { waits })
    }

    /// Ends the turn because the call or its reply was refused.
    pub fn fail(self, failure: Failure) -> Step {
        Step::Done(TurnEnd::Failed { failure }.into())
    }

    /// Ends the turn instead of calling the model.
    pub fn cancel(self, reason: String) -> Step {
        Step::Done(TurnEnd::Cancelled { reason }.into())
    }

    /// Ends the turn because this budget is too low for the call.
    pub fn exhaust_budget(self, budget: String, why: String) -> Step {
        Step::Done(TurnEnd::OutOfBudget { budget, why: Some(why) }.into())
    }
}

/// Decides which calls of a reply are refused without asking their tool.
fn slots(calls: &[ToolUse], most: usize) -> Vec<CallSlot> {
    let mut seen = BTreeSet::new();
    let refuse = |index: usize, call: &ToolUse, first: bool| match &call.arguments {
        _ if index >= most => Some(Failure::new(
            Kind::LimitExceeded,
            format!("tools_per_reply is limited to {most}, but this reply asks for {}", calls.len()),
        )),
        _ if !first => {
            let detail = format!("a reply's calls need ids of their own, but `{}` stands twice", call.id);
            Some(Failure::new(Kind::ToolArgsInvalid, detail))
        }
        CallArguments::Broken(text) => {
            let shown = outlast_vocab::message::shown(text);
            Some(Failure::new(Kind::ToolArgsInvalid, format!("the arguments must be JSON, got `{shown}`")))
        }
        CallArguments::Json(_) => None,
    };
    let slot = |(index, call): (usize, &ToolUse)| {
        let refused = refuse(index, call, seen.insert(call.id.clone()));
        CallSlot { call: call.clone(), refused, result: None }
    };
    calls.iter().enumerate().map(slot).collect()
}

impl RunToolsStep {
    /// Returns the replay key of the batch.
    pub fn key(&self) -> &ReplayKey {
        &self.key
    }

    /// Returns whether the calls undo the effects of an aborted turn. Such calls run one after the other, and
    /// none of them may wait.
    pub fn is_undo(&self) -> bool {
        matches!(self.continuation, AfterTools::Abort { .. })
    }

    /// Returns the calls in the order the model asked for them, with the reason for each that cannot run.
    pub fn calls(&self) -> impl Iterator<Item = (&ToolUse, Option<&Failure>)> {
        self.slots.iter().map(|slot| (&slot.call, slot.refused.as_ref()))
    }

    /// Returns the messages of this turn that the model had read when it asked for the calls. Empty if it did
    /// not ask for them.
    pub fn read(&self) -> &[Message] {
        match &self.continuation {
            AfterTools::Continue(machine) => &machine.messages,
            AfterTools::Abort { .. } => &[],
        }
    }

    /// Returns the same messages with their authorship.
    pub fn turn_messages(&self) -> TurnMessages<'_> {
        match &self.continuation {
            AfterTools::Continue(TurnMachine { messages, typed, input, .. }) => {
                TurnMessages { messages, user_typed: typed, input: *input }
            }
            AfterTools::Abort { .. } => TurnMessages { messages: &[], user_typed: &[], input: 0 },
        }
    }

    /// Returns the model call that follows the results of the calls, with the messages so far. `None` if no
    /// model call follows.
    pub fn next_model(&self) -> Option<(ReplayKey, &[Message])> {
        let AfterTools::Continue(machine) = &self.continuation else { return None };
        let may = machine.model_calls < machine.plan.model_calls;
        may.then(|| (machine.root.model(machine.model_calls), machine.messages.as_slice()))
    }

    /// Settles one call. Results reach the model in the order of the calls, whatever order they arrive in. A
    /// replay that settles them in another order builds the same transcript.
    ///
    /// # Panics
    /// Panics if the call is not open: the driver settles only calls it was given, once.
    pub fn settle(mut self, index: usize, result: ToolResult) -> Step {
        let slot = self.slots.get_mut(index).filter(|slot| slot.result.is_none());
        slot.expect("the driver settles only calls it was given, once").result = Some(result);
        self.next()
    }

    /// Parks the turn: every call that is not settled waits for an external event.
    pub fn wait(self, waits: Vec<Wait>) -> Step {
        Step::Wait(ParkedTurn { waits })
    }

    /// Ends the turn because its calls were refused.
    pub fn fail(self, failure: Failure) -> Step {
        Step::Done(TurnEnd::Failed { failure }.into())
    }

    /// Ends the turn because this budget is too low for its calls.
    pub fn exhaust_budget(self, budget: String, why: String) -> Step {
        Step::Done(TurnEnd::OutOfBudget { budget, why: Some(why) }.into())
    }

    /// Ends the turn after as many of its calls as possible were settled.
    pub fn cancel(self, reason: String) -> Step {
        Step::Done(TurnEnd::Cancelled { reason }.into())
    }

    fn next(self) -> Step {
        if self.slots.iter().any(|slot| slot.result.is_none()) {
            return Step::RunTools(self);
        }
        let mut machine = match self.continuation {
            AfterTools::Continue(machine) => machine,
            AfterTools::Abort { reason } => {
                let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                let done = |slot: &&CallSlot| matches!(slot.result, Some(ToolResult::Ok(_)));
                let undone = self.slots.iter().filter(done).count();
                let left = count(self.slots.len() - undone);
                return Step::Done(TurnEnd::Aborted { reason, undone: count(undone), left }.into());
            }
        };
        let results = self.slots.into_iter().filter_map(|CallSlot { call, result, .. }| {
            Some(Message::Tool { call: call.id, tool: call.tool, result: result? })
        });
        machine.messages.extend(results);
        machine.check(Boundary::AfterWork)
    }
}

impl CheckpointStep {
    /// Returns the replay key of the checkpoint.
    pub fn key(&self) -> &ReplayKey {
        &self.key
    }

    /// Returns the request.
    pub fn effect(&self) -> Checkpoint {
        Checkpoint { boundary: self.boundary }
    }

    /// Returns the key of the model call that follows if the turn continues.
    pub fn next_model(&self) -> ReplayKey {
        self.machine.root.model(self.machine.model_calls)
    }

    /// Returns the key of the model call that gave the last reply.
    pub fn answered_by(&self) -> ReplayKey {
        self.machine.root.model(self.machine.model_calls - 1)
    }

    /// Returns the answer that would complete the turn, or `None` if the turn continues anyway.
    pub fn answer(&self) -> Option<Cow<'_, str>> {
        (self.boundary == Boundary::BeforeCompletion).then(|| self.machine.answer())
    }

    /// Returns the answer that would complete the turn and the schema it must match, or `None` if the turn
    /// continues anyway.
    pub fn contract(&self) -> Option<(Cow<'_, str>, &Value)> {
        let schema =
            self.machine.plan.output.as_ref().filter(|_| self.boundary == Boundary::BeforeCompletion)?;
        Some((self.machine.answer(), schema))
    }

    /// Ends the turn instead of completing it.
    pub fn fail(self, failure: Failure) -> Step {
        Step::Done(TurnEnd::Failed { failure }.into())
    }

    /// Parks the turn before it is completed.
    pub fn wait(self, wait: Wait) -> Step {
        Step::Wait(ParkedTurn { waits: vec![wait] })
    }

    /// Ends the turn because it was cancelled.
    pub fn cancel(self, reason: String) -> Step {
        Step::Done(TurnEnd::Cancelled { reason }.into())
    }

    /// Continues with what joined. The turn is complete if nothing did.
    pub fn resume(self, joined: CheckpointOutcome) -> Step {
        let mut machine = self.machine;
        if joined.is_empty() && self.boundary == Boundary::BeforeCompletion {
            let text = machine.answer().into_owned();
            return Step::Done(EndedTurn { end: TurnEnd::Answered { text }, messages: machine.messages });
        }
        if let Some(failure) = rejection_reason(self.boundary, &joined) {
            machine.repairs += 1;
            if machine.repairs > machine.plan.output_repairs {
                return Step::Done(TurnEnd::Failed { failure }.into());
            }
        }
        let inputs = joined.inputs.len();
        machine.messages.extend(joined.into_messages());
        // Inputs come last. Hooks and the runtime wrote the messages before them.
        let end = machine.messages.len();
        machine.typed.extend(end - inputs..end);
        machine.ask()
    }
}

/// Returns why an answer does not complete the turn, if it does not.
fn rejection_reason(boundary: Boundary, joined: &CheckpointOutcome) -> Option<Failure> {
    if let Some(correction) = &joined.correction {
        return Some(Failure::new(Kind::OutputInvalid, correction.clone()));
    }
    if let Some(failure) = &joined.refused {
        return Some(failure.clone());
    }
    let message = joined.messages.last().filter(|_| boundary == Boundary::BeforeCompletion)?;
    let detail = format!("`{}` sends every answer back; it said last: {}", message.by, message.text);
    Some(Failure::new(Kind::HookRefused, detail))
}

impl TurnMachine {
    fn ask(mut self) -> Step {
        let limit = self.plan.model_calls;
        if self.model_calls == limit {
            return Step::Done(TurnEnd::OutOfModelCalls { limit }.into());
        }
        let key = self.root.model(self.model_calls);
        self.model_calls += 1;
        Step::CallModel(CallModelStep { machine: self, key })
    }

    fn answer(&self) -> Cow<'_, str> {
        self.messages.last().map(Message::text).unwrap_or_default()
    }

    fn check(mut self, boundary: Boundary) -> Step {
        let key = self.root.checkpoint(self.checkpoints);
        self.checkpoints += 1;
        Step::Checkpoint(CheckpointStep { machine: self, key, boundary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use outlast_vocab::TurnId;
    use outlast_vocab::effect::{JoinedInput, ModelFailure, Usage};

    /// Plays answers to a turn and prints what it asks for next. The script accepts `say TEXT`,
    /// `refuse TEXT`, `length TEXT`, `error`, `call TOOL…` (`!TOOL` with broken arguments), `ok INDEX OUTPUT`,
    /// `pass`, `join TEXT`, `correct TEXT` and `cancel REASON`.
    #[track_caller]
    fn check(model_calls: u32, script: &str, want: &Expect) {
        let model = "rehearsal/test".parse().unwrap();
        let plan = TurnParameters {
            index: 0,
            model,
            tools: Hash::ZERO,
            model_calls,
            tools_per_reply: 3,
            output: Some(Value::Bool(true)),
            output_repairs: 1,
        };
        let mut step = begin_turn(plan, Vec::new(), vec![Part::text("hi")]);
        let mut log = Vec::new();
        for line in script.lines().map(str::trim) {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            step = answer(step, verb, rest);
            log.push(show(&step));
        }
        want.assert_eq(&(log.join("\n") + "\n"));
    }

    fn show(step: &Step) -> String {
        match step {
            Step::CallModel(ask) => {
                let texts: Vec<_> = ask.messages().iter().map(Message::text).collect();
                format!("{} <- {texts:?}", ask.key())
            }
            Step::RunTools(tools) => {
                let show = |(call, refused): (&ToolUse, Option<&Failure>)| match refused {
                    Some(failure) => format!("{} refused ({failure})", call.tool),
                    None => call.tool.to_string(),
                };
                format!("{} <- {}", tools.key(), tools.calls().map(show).collect::<Vec<_>>().join(", "))
            }
            Step::Checkpoint(at) => format!("{} {:?}", at.key(), at.effect().boundary),
            Step::Wait(waiting) => format!("waits: {:?}", waiting.waits),
            Step::Done(done) => format!("done: {:?}", done.end),
        }
    }

    fn answer(step: Step, verb: &str, rest: &str) -> Step {
        match (step, verb) {
            (Step::CallModel(ask), "say") => ask.resume(reply(rest, vec![], StopReason::End)),
            (Step::CallModel(ask), "refuse") => ask.resume(reply(rest, vec![], StopReason::Refusal)),
            (Step::CallModel(ask), "length") => ask.resume(reply(rest, vec![], StopReason::Length)),
            (Step::CallModel(ask), "error") => {
                let failure = Failure::new(Kind::ModelRejected, "no");
                ask.resume(ModelOutcome::Failed(ModelFailure { failure, streamed: false }))
            }
            (Step::CallModel(ask), "call") => {
                let calls = rest.split(' ').enumerate().map(|(i, tool)| tool_use(i, tool)).collect();
                ask.resume(reply("", calls, StopReason::ToolUse))
            }
            (Step::RunTools(tools), "ok") => {
                let (index, output) = rest.split_once(' ').unwrap();
                tools.settle(index.parse().unwrap(), ToolResult::Ok(Value::String(output.into())))
            }
            (Step::Checkpoint(at), "pass") => at.resume(CheckpointOutcome::default()),
            (Step::Checkpoint(at), "join") => {
                let input = JoinedInput { turn: TurnId::from_u128(9), parts: vec![Part::text(rest)] };
                at.resume(CheckpointOutcome { inputs: vec![input], ..CheckpointOutcome::default() })
            }
            (Step::Checkpoint(at), "correct") => at.resume(CheckpointOutcome {
                correction: Some(rest.to_owned()),
                ..CheckpointOutcome::default()
            }),
            (Step::CallModel(ask), "cancel") => ask.cancel(rest.into()),
            (Step::RunTools(tools), "cancel") => tools.cancel(rest.into()),
            (step, verb) => panic!("the script says `{verb}`, but the turn wants {step:?}"),
        }
    }

    fn reply(text: &str, calls: Vec<ToolUse>, stop: StopReason) -> ModelOutcome {
        let parts = vec![Part::text(text)];
        let (stop_sequence, usage, cost, estimate) = (None, Usage::default(), None, None);
        ModelOutcome::Reply(Reply { parts, calls, stop, stop_sequence, usage, cost, estimate, attempt: 1 })
    }

    fn tool_use(index: usize, tool: &str) -> ToolUse {
        let (id, arguments) = match tool.strip_prefix('!') {
            Some(_) => (index.to_string(), CallArguments::Broken("{\"a".into())),
            None if tool == "twin" => ("0".into(), CallArguments::Json(Value::Null)),
            None => (index.to_string(), CallArguments::Json(Value::Null)),
        };
        ToolUse::new(id.parse().unwrap(), tool.trim_start_matches('!').parse().unwrap(), arguments)
    }

    #[test]
    fn tool_results_reach_model_in_call_order() {
        check(
            2,
            "call read grep\nok 1 b\nok 0 a\npass\nsay bye\npass",
            &expect![[r#"
            turn/0/tools/0 <- read, grep
            turn/0/tools/0 <- read, grep
            turn/0/checkpoint/0 AfterWork
            turn/0/model/1 <- ["hi", "", "a", "b"]
            turn/0/checkpoint/1 BeforeCompletion
            done: Answered { text: "bye" }
        "#]],
        );
    }

    #[test]
    fn aborted_turn_ends_after_all_undo_results() {
        let calls = vec![tool_use(0, "unbook"), tool_use(1, "unbook")];
        let Step::RunTools(batch) = begin_undo(3, calls, "enough".to_owned()) else { panic!("calls to run") };
        assert_eq!(batch.key().as_str(), "turn/3/undo");
        assert!(batch.is_undo());
        let failure = Failure::new(Kind::ToolFailed, "no");
        let step = answer(batch.settle(1, ToolResult::Err(failure)), "ok", "0 gone");
        expect![[r#"done: Aborted { reason: "enough", undone: 1, left: 1 }"#]].assert_eq(&show(&step));
        let nothing = begin_undo(3, Vec::new(), "enough".to_owned());
        expect![[r#"done: Aborted { reason: "enough", undone: 0, left: 0 }"#]].assert_eq(&show(&nothing));
    }

    #[test]
    fn turn_stops_when_model_calls_run_out() {
        check(
            1,
            "call read\nok 0 a\npass",
            &expect![[r"
            turn/0/tools/0 <- read
            turn/0/checkpoint/0 AfterWork
            done: OutOfModelCalls { limit: 1 }
        "]],
        );
    }

    #[test]
    fn input_joins_after_work_and_before_completion() {
        check(
            3,
            "call read\nok 0 a\njoin also this\nsay done\njoin one more\nsay bye\npass",
            &expect![[r#"
            turn/0/tools/0 <- read
            turn/0/checkpoint/0 AfterWork
            turn/0/model/1 <- ["hi", "", "a", "also this"]
            turn/0/checkpoint/1 BeforeCompletion
            turn/0/model/2 <- ["hi", "", "a", "also this", "done", "one more"]
            turn/0/checkpoint/2 BeforeCompletion
            done: Answered { text: "bye" }
        "#]],
        );
    }

    #[test]
    fn invalid_call_yields_error_result() {
        check(
            2,
            "call read twin !grep read",
            &expect![[r#"
            turn/0/tools/0 <- read, twin refused (tool.args_invalid: a reply's calls need ids of their own, but `0` stands twice), grep refused (tool.args_invalid: the arguments must be JSON, got `{"a`), read refused (limit.exceeded: tools_per_reply is limited to 3, but this reply asks for 4)
        "#]],
        );
    }

    #[test]
    fn invalid_output_is_sent_back_up_to_limit() {
        check(
            5,
            "say old\ncorrect not a number\nsay 3\npass",
            &expect![[r#"
                turn/0/checkpoint/0 BeforeCompletion
                turn/0/model/1 <- ["hi", "old", "not a number"]
                turn/0/checkpoint/1 BeforeCompletion
                done: Answered { text: "3" }
            "#]],
        );
        check(
            5,
            "say old\ncorrect not a number\nsay older\ncorrect still not",
            &expect![[r#"
                turn/0/checkpoint/0 BeforeCompletion
                turn/0/model/1 <- ["hi", "old", "not a number"]
                turn/0/checkpoint/1 BeforeCompletion
                done: Failed { failure: Failure { code: OutputInvalid, detail: "still not", policy: None } }
            "#]],
        );
    }

    #[test]
    fn turn_end_reflects_model_or_caller() {
        check(
            1,
            "refuse no",
            &expect![[r#"
            done: Refused { text: "no" }
        "#]],
        );
        check(
            1,
            "error",
            &expect![[r#"
            done: Failed { failure: Failure { code: ModelRejected, detail: "no", policy: None } }
        "#]],
        );
        check(
            1,
            "length half an ans",
            &expect![[r#"
            done: Failed { failure: Failure { code: ModelCut, detail: "the model ran out of tokens before its answer was whole", policy: None } }
        "#]],
        );
        check(
            1,
            "cancel enough",
            &expect![[r#"
            done: Cancelled { reason: "enough" }
        "#]],
        );
    }
}
