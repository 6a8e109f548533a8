//! Effects: everything a turn asks of the outside world. Each kind is a struct with exactly one outcome type.
//!
//! [`Command`] and [`Outcome`] are the tagged forms that the journal stores. They can disagree only when
//! bytes are decoded, and [`Outcome::of`] is the one function that checks it.
use crate::cost::Cost;
use crate::error::Failure;
use crate::id::TurnId;
use crate::key::ReplayKey;
use crate::label::{Labels, Provenance};
use crate::message::{CallArguments, Message, ModelCallId, ModelName, Part, ToolName, ToolResult, ToolUse};
use crate::policy::RecordedDecision;
use crate::record::Seq;
use crate::tool::PreparedCall;
use crate::wait::Resolution;
use crate::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Add;

/// A request whose answer has exactly one type.
pub trait Effect: Clone + Into<Command> {
    /// The kind of this request.
    const KIND: EffectKind;
    /// The type of its answer.
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

            /// Returns the name of the kind, which is the same everywhere.
            pub const fn name(self) -> &'static str { match self { $(Self::$kind => $name),* } }
        }

        /// Any request, tagged by its kind.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Command { $($(#[$doc])* #[serde(rename = $name)] $kind($request),)* }

        impl Command {
            /// Returns the kind of the request.
            pub const fn kind(&self) -> EffectKind { match self { $(Self::$kind(_) => EffectKind::$kind),* } }
        }

        /// Any answer, tagged by the kind of its request.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Outcome { $($(#[$doc])* #[serde(rename = $name)] $kind($outcome),)* }

        impl Outcome {
            /// Returns the kind of the request that this answers.
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
    /// Calls the model that answers the turn.
    ModelCall -> ModelOutcome = ModelCall, "model_call";
    /// Calls a model outside the conversation.
    DirectCall -> DirectOutcome = DirectCall, "direct_call";
    /// Runs one prepared tool call.
    ToolCall -> ToolOutcome = ToolCall, "tool_call";
    /// Runs the tool calls of one reply together.
    ToolBatch -> BatchOutcome = ToolBatch, "tool_batch";
    /// Runs one named step inside a tool.
    DurableStep -> StepOutcome = DurableStep, "durable_step";
    /// Collects the inputs and messages that join the turn at a boundary.
    Checkpoint -> CheckpointOutcome = Checkpoint, "checkpoint";
    /// Sleeps until a point in time.
    Sleep -> SleepOutcome = Sleep, "sleep";
    /// Waits until a key is resolved from outside.
    AwaitEvent -> Resolution = AwaitEvent, "await_event";
    /// Moves the turn to the configuration that its client last asked for.
    SyncEnvironment -> SyncOutcome = SyncEnvironment, "sync_environment";
}

impl fmt::Display for EffectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Command {
    /// Returns the fingerprint of the request. Equivalent requests have the same fingerprint. Times come from
    /// a clock and differ from run to run, so they are not part of it.
    pub fn fingerprint(&self) -> Hash {
        crate::canonical_json::fingerprint(&self.without_times())
    }

    /// Returns the request as JSON, without the values that come from a clock.
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
    /// Returns the answer to a request of type `E`. If the answer has another kind, the record is corrupt.
    pub fn of<E: Effect>(self, key: &ReplayKey) -> Result<E::Outcome, Error> {
        E::Outcome::try_from(self).map_err(|found| {
            let detail = format!("the record of {key} requests {}, but its outcome is {found}", E::KIND);
            Error::new(Kind::RecordCorrupt, detail)
        })
    }
}

/// A place in a session's history: a record and the chain's hash there, which identifies the whole prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalPosition {
    /// The record.
    pub seq: Seq,
    /// The chain's hash after it.
    pub hash: Hash,
}

/// Calls the model that answers the turn. Refers to the conversation by place and contains none of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The model.
    pub model: ModelName,
    /// The end of the conversation that the model sees. `None` on a host that stores nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<JournalPosition>,
    /// The fingerprint of the contracts of the tools that the model may call.
    pub tools: Hash,
    /// Whether the model may, must or must not call tools.
    #[serde(default, skip_serializing_if = "is_default")]
    pub choice: ToolChoice,
    /// The generation options.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: Generation,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// Whether a model may call tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must call a tool.
    Required,
    /// It must call this tool.
    Only(ToolName),
    /// It must not call tools.
    None,
}

/// Generation options. The provider's default applies to absent options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// The most tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_most: Option<u32>,
    /// The temperature in thousandths, so that it is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// A named variant of the model, such as a reasoning effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The probability mass of the tokens to choose from, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p_milli: Option<u32>,
    /// The number of tokens to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Texts at which the answer ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The seed of the random choice of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The penalty of tokens that the text contains, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence_penalty_milli: Option<i32>,
    /// The penalty of tokens by how often the text contains them, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_penalty_milli: Option<i32>,
    /// The change of the likelihood of tokens, by the provider's number of the token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logit_bias: BTreeMap<String, i32>,
    /// Whether a reply may contain several tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tools: Option<bool>,
    /// The form of the summary of the reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// How detailed the answer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
    /// The provider's class of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// The end user, as the provider knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The outcome of a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOutcome {
    /// A complete reply.
    Reply(Reply),
    /// An error.
    Failed(ModelFailure),
}

/// A model's error, and whether text had already been streamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// The error.
    pub failure: Failure,
    /// Whether text was already streamed.
    pub streamed: bool,
}

/// A complete reply. A stream that was cut off never becomes a `Reply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The content of the reply.
    pub parts: Vec<Part>,
    /// The tool calls of the reply, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolUse>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// The text of [`Generation::stop`] at which it stopped, if the provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<String>,
    /// The tokens used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// The cost in money, if the price was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What is charged if the provider did not report its usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Box<ModelCharge>>,
    /// The number of the attempt that gave the reply, counted from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub attempt: u32,
}

impl Reply {
    /// Returns what is charged: what the provider reported, or else the estimate.
    pub fn charge(&self) -> ModelCharge {
        self.estimate.as_deref().copied().unwrap_or(ModelCharge { usage: self.usage, cost: self.cost })
    }

    /// Returns the size of the text, reasoning and calls.
    pub fn received_bytes(&self) -> usize {
        let calls = self.calls.iter().map(ToolUse::size);
        self.parts.iter().map(Part::size).chain(calls).sum()
    }
}

/// What a request to a model is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCharge {
    /// The tokens.
    pub usage: Usage,
    /// Their price, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
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
    /// The answer is complete.
    End,
    /// It waits for tools.
    ToolUse,
    /// It reached its token limit.
    Length,
    /// It refused to answer.
    Refusal,
}

/// Token counts in disjoint buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens at the full price.
    pub input: u64,
    /// Input tokens read from the provider's prompt cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_read: u64,
    /// Input tokens written to the provider's prompt cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write: u64,
    /// Output tokens.
    pub output: u64,
    /// Reasoning tokens.
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

/// Calls a model outside the conversation, for a tool, hook or plug-in. The usage is attributed to its
/// source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectCall {
    /// The source that the usage is attributed to.
    pub usage_source: String,
    /// The model.
    pub model: ModelName,
    /// The system prompt.
    pub system: String,
    /// The messages.
    pub messages: Vec<Message>,
    /// The generation options.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: Generation,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// The outcome of a direct call.
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

/// The outcome of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The call returned a result.
    Done(ToolResult),
    /// An external system will complete the call with its completion key.
    Pending,
    /// The process died while an at-most-once tool ran, so it is unknown whether the call happened.
    Unknown,
}

/// Runs the tool calls of one reply together. Its record claims every call in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolBatch {
    /// The calls, in the order the model asked for them.
    pub calls: Vec<BatchCall>,
}

/// One call of a batch.
#[expect(clippy::large_enum_variant)] // nearly every call runs, so a box would cost one allocation for each
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchCall {
    /// The call runs.
    Run(PreparedCall),
    /// The call was refused before it could run: unknown tool, invalid arguments, limit exceeded.
    Refused(RefusedCall),
}

impl BatchCall {
    /// Returns the id that the model gave the call.
    pub fn model_id(&self) -> &ModelCallId {
        match self {
            Self::Run(call) => &call.model_id,
            Self::Refused(call) => &call.model_id,
        }
    }

    /// Returns the tool that the model asked for.
    pub fn tool(&self) -> &ToolName {
        match self {
            Self::Run(call) => &call.tool,
            Self::Refused(call) => &call.tool,
        }
    }

    /// Returns the tool that runs, or `None` if the call was refused.
    pub fn running_tool(&self) -> Option<&ToolName> {
        match self {
            Self::Run(call) => Some(&call.tool),
            Self::Refused(_) => None,
        }
    }

    /// Returns the call in the form in which a model asks for it.
    pub fn to_use(&self) -> ToolUse {
        let arguments = match self {
            Self::Run(call) => call.arguments.clone(),
            Self::Refused(_) => Value::Object(serde_json::Map::new()),
        };
        ToolUse::new(self.model_id().clone(), self.tool().clone(), CallArguments::Json(arguments))
    }
}

/// A call that never runs. The model reads the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    /// The id that the model gave the call.
    pub model_id: ModelCallId,
    /// The tool that the model named.
    pub tool: ToolName,
    /// Why it does not run.
    pub failure: Failure,
    /// The policy decision, if a policy refused the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Box<RecordedDecision>>,
    /// The untrusted sources that may have caused the call.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The origins of its sink arguments, if it has labels and sinks.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
}

impl RefusedCall {
    /// Creates a refused call with this reason.
    pub fn new(model_id: ModelCallId, tool: ToolName, failure: Failure) -> Self {
        let (labels, provenance) = (Labels::default(), Provenance::default());
        Self { model_id, tool, failure, ruling: None, labels, provenance }
    }
}

/// One outcome per call of a batch, in the order of the calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchOutcome(pub Vec<ToolOutcome>);

/// Runs one named step inside a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableStep {
    /// The name of the step, unique within its call.
    pub name: String,
    /// The input of the step.
    pub input: Value,
}

/// The outcome of a durable step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// A value.
    Value(Value),
    /// An error that a retry cannot fix.
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

/// Collects the inputs and messages that join the turn at a boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The boundary.
    pub boundary: Boundary,
}

/// A point of a turn at which something can join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// After tools ran, before the next model call.
    AfterWork,
    /// After the last reply, before the turn ends.
    BeforeCompletion,
}

/// What joined the turn at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointOutcome {
    /// Inputs queued for steering, in the order they arrived.
    pub inputs: Vec<JoinedInput>,
    /// Why the answer does not match its contract. The model reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
    /// Why the policy refuses the answer. The model reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Failure>,
    /// Other messages to the model, such as those of a hook that sends its answer back.
    #[serde(rename = "told", default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<InjectedMessage>,
}

/// A message to the model that the user did not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedMessage {
    /// The author.
    pub by: String,
    /// The text.
    pub text: String,
}

impl CheckpointOutcome {
    /// Returns whether nothing joined but the reason why the answer is rejected.
    pub fn is_rejection_only(&self) -> bool {
        let rejects = self.correction.is_some() || self.refused.is_some();
        rejects && self.inputs.is_empty() && self.messages.is_empty()
    }

    /// Returns whether nothing joined.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
            && self.correction.is_none()
            && self.refused.is_none()
            && self.messages.is_empty()
    }

    /// Returns what joined as the messages that the model reads.
    pub fn into_messages(self) -> impl Iterator<Item = Message> {
        let correction = self.correction.into_iter().map(Message::user);
        let refused = self.refused.into_iter().map(|failure| {
            Message::user(format!(
                "The answer was not let out ({failure}). Answer again in a way that may be."
            ))
        });
        let messages = self.messages.into_iter().map(|message| Message::user(message.text));
        let inputs = self.inputs.into_iter().map(|input| Message::User { parts: input.parts });
        correction.chain(refused).chain(messages).chain(inputs)
    }
}

/// An input that joined a running turn instead of starting a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedInput {
    /// The turn that the input was accepted as.
    pub turn: TurnId,
    /// The content of the input.
    pub parts: Vec<Part>,
}

/// Sleeps until a point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sleep {
    /// The end of the sleep.
    pub until: Millis,
}

/// The sleep is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepOutcome {}

/// Waits until a key is resolved from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitEvent {
    /// The replay key that waits.
    pub key: ReplayKey,
    /// When the wait times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
}

/// Moves the turn to the configuration that its client last asked for, before the next model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncEnvironment {
    /// Whether the turn may change its configuration.
    pub may_change: bool,
}

/// The new configuration of the turn, or `None` if it keeps the one that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SyncOutcome(pub Option<Environment>);

/// The configuration of the next model calls of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The fingerprint of the package.
    pub package: Hash,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_another_kind_is_corrupt() {
        let outcome = Outcome::from(SleepOutcome {});
        let error = outcome.of::<DurableStep>(&ReplayKey::turn(0).step("a")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record.corrupt: the record of turn/0/step:a requests durable_step, but its outcome is sleep"
        );
    }

    #[test]
    fn command_round_trips_tagged_by_kind() {
        let command = Command::from(Sleep { until: Millis(9) });
        let text = serde_json::to_string(&command).unwrap();
        assert_eq!(text, r#"{"sleep":{"until":9}}"#);
        assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
        assert_eq!(EffectKind::ALL.len(), 9);
    }
}
