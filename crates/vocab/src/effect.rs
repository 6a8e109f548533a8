//! Effects: everything a turn asks of the world. Each kind is a struct with exactly one outcome type.
//!
//! [`Command`] and [`Outcome`] are the tagged forms that the journal keeps. They can disagree only where bytes are
//! decoded, and [`Outcome::of`] is the one function that finds out.
use crate::cost::Cost;
use crate::error::Failure;
use crate::id::{AgentId, ProcessId, SessionId, TurnId};
use crate::key::ReplayKey;
use crate::label::{Labels, Provenance};
use crate::message::{Arguments, Message, ModelCallId, ModelName, Part, ToolName, ToolResult, ToolUse};
use crate::policy::Ruling;
use crate::record::Seq;
use crate::tool::PreparedCall;
use crate::wait::Resolution;
use crate::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::ops::Add;

/// A request whose answer has exactly one type.
pub trait Effect: Clone + Into<Command> {
    /// The kind of this request.
    const KIND: EffectKind;
    /// What it is answered with.
    type Outcome: Into<Outcome> + TryFrom<Outcome, Error = EffectKind>;
}

macro_rules! effects {
    ($($(#[$doc:meta])* $request:ident -> $outcome:ty = $kind:ident, $name:literal;)*) => {
        /// The closed set of effects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum EffectKind { $($(#[$doc])* #[serde(rename = $name)] $kind,)* }

        impl EffectKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// How the kind is written everywhere.
            pub const fn name(self) -> &'static str { match self { $(Self::$kind => $name),* } }
        }

        /// Any request, tagged by its kind.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(clippy::large_enum_variant, reason = "a command is made once for each effect and moved a few times")]
        pub enum Command { $($(#[$doc])* #[serde(rename = $name)] $kind($request),)* }

        impl Command {
            /// The kind of the request.
            pub const fn kind(&self) -> EffectKind { match self { $(Self::$kind(_) => EffectKind::$kind),* } }
        }

        /// Any answer, tagged by the kind of its request.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Outcome { $($(#[$doc])* #[serde(rename = $name)] $kind($outcome),)* }

        impl Outcome {
            /// The kind of the request that this answers.
            pub const fn kind(&self) -> EffectKind { match self { $(Self::$kind(_) => EffectKind::$kind),* } }
        }

        $(
        impl Effect for $request {
            const KIND: EffectKind = EffectKind::$kind;
            type Outcome = $outcome;
        }

        impl From<$request> for Command {
            fn from(request: $request) -> Self { Self::$kind(request) }
        }

        impl From<$outcome> for Outcome {
            fn from(outcome: $outcome) -> Self { Self::$kind(outcome) }
        }

        impl TryFrom<Outcome> for $outcome {
            type Error = EffectKind;

            fn try_from(outcome: Outcome) -> Result<Self, EffectKind> {
                match outcome {
                    Outcome::$kind(outcome) => Ok(outcome),
                    other => Err(other.kind()),
                }
            }
        }
        )*
    };
}

effects! {
    /// Asks the model that answers the turn.
    ModelCall -> ModelOutcome = ModelCall, "model_call";
    /// Asks a model outside the conversation.
    DirectCall -> DirectOutcome = DirectCall, "direct_call";
    /// Runs one prepared tool call.
    ToolCall -> ToolOutcome = ToolCall, "tool_call";
    /// Runs the calls a model asked for together.
    ToolBatch -> BatchOutcome = ToolBatch, "tool_batch";
    /// Runs one named step inside a tool.
    DurableStep -> StepOutcome = DurableStep, "durable_step";
    /// Does something with a process.
    ProcessRequest -> ProcessOutcome = Process, "process";
    /// Runs code in a named language.
    ExecCode -> ExecOutcome = ExecCode, "exec_code";
    /// Takes in what joins the turn at a boundary.
    Checkpoint -> Joined = Checkpoint, "checkpoint";
    /// Brings the turn's configuration up to date.
    SyncEnvironment -> Environment = SyncEnvironment, "sync_environment";
    /// Lets time pass.
    Sleep -> Slept = Sleep, "sleep";
    /// Waits for somebody to resolve a key.
    AwaitEvent -> Resolution = AwaitEvent, "await_event";
}

impl fmt::Display for EffectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Command {
    /// The fingerprint of the request: two requests that mean the same have the same one. Times are read from a
    /// clock and differ from run to run, so they are no part of it (R2.3).
    pub fn fingerprint(&self) -> Hash {
        crate::canon::fingerprint(&self.without_times())
    }

    /// The request as JSON, without what a clock decided.
    ///
    /// # Panics
    /// Never: requests are plain data.
    pub fn without_times(&self) -> Value {
        let mut json = serde_json::to_value(self).expect("requests are plain data");
        match self {
            Self::Sleep(_) => json["sleep"] = Value::Null,
            Self::AwaitEvent(_) => json["await_event"]["deadline"] = Value::Null,
            _ => {}
        }
        json
    }
}

impl Outcome {
    /// The answer to a request of type `E`; a record that answers another kind is corrupt.
    pub fn of<E: Effect>(self, key: &ReplayKey) -> Result<E::Outcome, Error> {
        E::Outcome::try_from(self).map_err(|found| {
            let detail = format!("the record of {key} asks for {}, but answers {found}", E::KIND);
            Error::new(Kind::RecordCorrupt, detail)
        })
    }
}

/// A place in a session's history: a record and the chain's hash there, so it names the whole prefix (R2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The record.
    pub seq: Seq,
    /// The chain's hash after it.
    pub hash: Hash,
}

/// Asks the model that answers the turn. Names the conversation by place; holds none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// Which model.
    pub model: ModelName,
    /// Up to where the conversation is shown; nowhere on a host that keeps nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Place>,
    /// The fingerprint of the contracts of the tools it may ask for.
    pub tools: Hash,
    /// Whether it may, must or must not ask for tools.
    #[serde(default, skip_serializing_if = "is_default")]
    pub choice: ToolChoice,
    /// How it is to generate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: Generation,
    /// JSON Schema that the answer must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// Whether a model may ask for tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It must ask for one.
    Required,
    /// It must ask for this one.
    Only(ToolName),
    /// It must not.
    None,
}

/// How a model is to generate. What is absent is the provider's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Most tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_most: Option<u32>,
    /// Temperature in thousandths, so that it is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// A named variant of the model, like a reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a model call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOutcome {
    /// With a whole reply.
    Reply(Reply),
    /// With an error.
    Failed(ModelFailure),
}

/// A model's error, and whether listeners had already seen text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// What went wrong.
    pub failure: Failure,
    /// Whether text was already streamed.
    pub streamed: bool,
}

/// A whole reply. A stream that was cut never becomes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said.
    pub parts: Vec<Part>,
    /// The tools it asked for, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolUse>,
    /// Why it stopped.
    pub stop: StopReason,
    /// What it cost in tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// What it cost in money, where the price was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Which attempt gave it, counted from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub attempt: u32,
}

fn first() -> u32 {
    1
}

// serde's `skip_serializing_if` passes a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_first(attempt: &u32) -> bool {
    *attempt == 1
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it wanted.
    End,
    /// It waits for tools.
    ToolUse,
    /// It ran out of tokens.
    Length,
    /// It refused to answer.
    Refusal,
}

/// Tokens in disjoint buckets (R5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read by the model for the full price.
    pub input: u64,
    /// Read from the provider's prompt cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_read: u64,
    /// Written to the provider's prompt cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write: u64,
    /// Said by the model.
    pub output: u64,
    /// Thought by the model.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reasoning: u64,
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

/// Asks a model outside the conversation, for a tool, hook or plug-in; the usage is booked to its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectCall {
    /// Who asks, for the books.
    pub usage_source: String,
    /// Which model.
    pub model: ModelName,
    /// What it is told before the first message.
    pub system: String,
    /// The messages it is shown.
    pub messages: Vec<Message>,
    /// How it is to generate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: Generation,
    /// JSON Schema that the answer must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// How a direct call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirectOutcome(pub ModelOutcome);

/// Runs one prepared tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolCall {
    /// The call.
    pub call: PreparedCall,
}

/// How a tool call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It gave a result.
    Done(ToolResult),
    /// Somebody outside will finish it with the call's completion key.
    Pending,
    /// The process died while an at-most-once tool ran: nobody knows whether it happened (R3.4).
    Unknown,
}

/// Runs the calls a model asked for together. Its record is the claim of every call in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolBatch {
    /// The calls, in the order asked.
    pub calls: Vec<BatchCall>,
}

/// One call of a batch.
#[expect(clippy::large_enum_variant)] // nearly every call runs, so a box would be one more for each
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchCall {
    /// It will run.
    Run(PreparedCall),
    /// It was refused before it could run: unknown tool, bad arguments, over a limit.
    Refused(RefusedCall),
}

impl BatchCall {
    /// The id the model gave the call.
    pub fn model_id(&self) -> &ModelCallId {
        match self {
            Self::Run(call) => &call.model_id,
            Self::Refused(call) => &call.model_id,
        }
    }

    /// The tool that was asked for.
    pub fn tool(&self) -> &ToolName {
        match self {
            Self::Run(call) => &call.tool,
            Self::Refused(call) => &call.tool,
        }
    }

    /// The tool that runs, unless the call was refused.
    pub fn runs(&self) -> Option<&ToolName> {
        match self {
            Self::Run(call) => Some(&call.tool),
            Self::Refused(_) => None,
        }
    }

    /// The call as a model would have asked for it.
    pub fn to_use(&self) -> ToolUse {
        let arguments = match self {
            Self::Run(call) => call.arguments.clone(),
            Self::Refused(_) => Value::Object(serde_json::Map::new()),
        };
        ToolUse::new(self.model_id().clone(), self.tool().clone(), Arguments::Json(arguments))
    }
}

/// A call that never runs; the model is told why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    /// The id the model gave it.
    pub model_id: ModelCallId,
    /// The tool it named.
    pub tool: ToolName,
    /// Why it does not run.
    pub failure: Failure,
    /// What the policy decided, where that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Box<Ruling>>,
    /// The untrusted sources that may have asked for it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Where the values of its sink arguments come from, if it has labels and sinks.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
}

impl RefusedCall {
    /// A call that does not run because of this.
    pub fn new(model_id: ModelCallId, tool: ToolName, failure: Failure) -> Self {
        let (labels, provenance) = (Labels::default(), Provenance::default());
        Self { model_id, tool, failure, ruling: None, labels, provenance }
    }
}

/// One outcome per call of a batch, in the order asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchOutcome(pub Vec<ToolOutcome>);

/// Runs one named step inside a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableStep {
    /// The step's name, unique in its call.
    pub name: String,
    /// What the step works on.
    pub input: Value,
}

/// How a durable step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// With a value.
    Value(Value),
    /// With an error that repeating cannot help.
    Failed(Failure),
}

impl From<StepOutcome> for Result<Value, Error> {
    fn from(outcome: StepOutcome) -> Self {
        match outcome {
            StepOutcome::Value(value) => Ok(value),
            StepOutcome::Failed(failure) => Err(failure.into()),
        }
    }
}

/// Does something with a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessRequest {
    /// Starts one.
    Start {
        /// The id it will have.
        process: ProcessId,
        /// The tool or agent that does the work.
        work: ProcessWork,
    },
    /// Lists what the scope holds.
    List {
        /// Whether those that have ended are listed too.
        ended_too: bool,
    },
    /// Moves handles to another session.
    Transfer {
        /// Which.
        processes: Vec<ProcessId>,
        /// To whom.
        to: SessionId,
    },
    /// Ends a session and everything it holds.
    DeleteSession {
        /// Which.
        session: SessionId,
    },
    /// Waits for its end.
    Await {
        /// Which.
        process: ProcessId,
    },
    /// Asks it to stop.
    Cancel {
        /// Which.
        process: ProcessId,
        /// Why.
        reason: String,
    },
    /// Sends it a named signal.
    Signal {
        /// Which.
        process: ProcessId,
        /// The signal's name.
        name: String,
        /// Its content.
        payload: Value,
    },
}

/// Who does the work of a process (R8.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessWork {
    /// A tool.
    Tool(Box<PreparedCall>),
    /// Code.
    Code(ExecCode),
    /// A turn of another agent.
    Turn {
        /// Which agent.
        agent: AgentId,
        /// What it is told.
        parts: Vec<Part>,
    },
    /// Somebody outside who reports.
    External,
}

/// The answer to a [`ProcessRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessOutcome {
    /// It runs, or ran already under this id.
    Started(ProcessId),
    /// What the scope holds.
    Listed(Vec<ProcessId>),
    /// The request was carried out.
    Done,
    /// It ended with this.
    Ended(ToolResult),
    /// The request was refused.
    Refused(Failure),
}

/// Runs code in a named language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecCode {
    /// Which language.
    pub language: String,
    /// The code.
    pub code: String,
}

/// What code gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutcome {
    /// Its value, or how it failed.
    pub result: ToolResult,
    /// What it printed.
    pub output: String,
}

/// Takes in what joins the turn at a boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which boundary.
    pub boundary: Boundary,
}

/// Where in a turn something can join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// After tools ran, before the model is asked again.
    AfterWork,
    /// After the last reply, before the turn ends.
    BeforeCompletion,
}

/// What joined the turn at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Inputs that were queued for steering, in the order they came.
    pub inputs: Vec<JoinedInput>,
    /// What is wrong with the answer, where it does not fit the contract; the model is told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
    /// Why the policy does not let the answer out; the model is told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Failure>,
    /// What others tell the model here, like a hook that sends its answer back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<Told>,
}

/// What somebody other than the user tells the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Who.
    pub by: String,
    /// What.
    pub text: String,
}

impl Joined {
    /// Whether all that joined is the reason why the answer does not do.
    pub fn only_rejects(&self) -> bool {
        let rejects = self.correction.is_some() || self.refused.is_some();
        rejects && self.inputs.is_empty() && self.told.is_empty()
    }

    /// Whether nothing joined.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.correction.is_none() && self.refused.is_none() && self.told.is_empty()
    }

    /// What joined, as the model reads it.
    pub fn into_messages(self) -> impl Iterator<Item = Message> {
        let correction = self.correction.into_iter().map(Message::user);
        let refused = self.refused.into_iter().map(|failure| {
            Message::user(format!(
                "The answer was not let out ({failure}). Answer again in a way that may be."
            ))
        });
        let told = self.told.into_iter().map(|told| Message::user(told.text));
        let inputs = self.inputs.into_iter().map(|input| Message::User { parts: input.parts });
        correction.chain(refused).chain(told).chain(inputs)
    }
}

/// An input that joined a running turn instead of starting its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedInput {
    /// The turn the input was accepted as.
    pub turn: TurnId,
    /// What it says.
    pub parts: Vec<Part>,
}

/// Brings the turn's configuration up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncEnvironment {
    /// Whether the configuration may change within the turn.
    pub may_change: bool,
}

/// The configuration after a sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// As before.
    Unchanged,
    /// The package with this fingerprint.
    Package(Hash),
}

/// Lets time pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sleep {
    /// Until when.
    pub until: Millis,
}

/// Time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slept {}

/// Waits for somebody to resolve a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitEvent {
    /// The place that waits.
    pub key: ReplayKey,
    /// When it stops waiting by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_kind_is_a_corrupt_record() {
        let outcome = Outcome::from(Slept {});
        let error = outcome.of::<DurableStep>(&ReplayKey::turn(0).step("a")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record.corrupt: the record of turn/0/step:a asks for durable_step, but answers sleep"
        );
    }

    #[test]
    fn a_command_is_tagged_by_its_kind_and_reads_back() {
        let command = Command::from(Sleep { until: Millis(9) });
        let text = serde_json::to_string(&command).unwrap();
        assert_eq!(text, r#"{"sleep":{"until":9}}"#);
        assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
        assert_eq!(EffectKind::ALL.len(), 11);
    }
}
