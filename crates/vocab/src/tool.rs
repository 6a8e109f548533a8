//! Tools as data: the manifest that a catalogue lists, and the contract that a call needs.
use crate::Hash;
use crate::cost::Cost;
use crate::id::CallId;
use crate::label::{Labels, Provenance};
use crate::message::{ModelCallId, ToolName};
use crate::policy::{PolicyDecision, RecordedDecision};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The repeatability of a tool: whether a call that was interrupted may be performed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing. May be performed any number of times.
    Pure,
    /// May be performed again with the same idempotency key.
    Idempotent,
    /// Must not be performed again once started. The default for a tool that declares nothing.
    #[default]
    AtMostOnce,
    /// Writes only to the session's own stores. Its writes commit with its answer.
    Transactional,
}

impl EffectClass {
    /// Returns the name of the class in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::AtMostOnce => "at_most_once",
            Self::Transactional => "transactional",
        }
    }

    /// Returns whether a call that was started and not answered may be performed again.
    pub const fn may_repeat(self) -> bool {
        match self {
            Self::Pure | Self::Idempotent | Self::Transactional => true,
            Self::AtMostOnce => false,
        }
    }
}

/// How the calls of one tool are ordered within a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallScheduling {
    /// Concurrently with any other call.
    #[default]
    Parallel,
    /// Sequentially with calls that share this key, in the order the model asked for them.
    Keyed(String),
    /// Alone: after every earlier call and before every later call of the batch.
    Serial,
}

/// How often a failed call is retried. Only errors of class `retry` are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The total number of attempts; 1 means no retry.
    pub attempts: u32,
    /// The pause before the second attempt. Doubles each time.
    pub backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 1, backoff: Duration::from_millis(200) }
    }
}

/// The entry of a tool in a catalogue. Small, so that a catalogue can list hundreds of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolManifest {
    /// The name that a model uses.
    pub name: ToolName,
    /// One line for people, and for choosing a tool.
    pub summary: String,
    /// What may happen to an interrupted call.
    pub class: EffectClass,
}

/// The complete definition of a tool. Resolved on demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a promise of its own that is written down by its name"
)]
pub struct ToolContract {
    /// The name that a model uses.
    pub name: ToolName,
    /// The description that the model reads.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input: Value,
    /// The JSON Schema of the result, if the tool promises one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What may happen to an interrupted call.
    #[serde(default)]
    pub class: EffectClass,
    /// How its calls are ordered within a batch.
    #[serde(default)]
    pub scheduling: CallScheduling,
    /// How often a failed call is retried.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// The timeout of one attempt. Defaults to the limit of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// Whether it uses durable steps, waits or pending completions, and therefore needs a durable host.
    #[serde(default)]
    pub durable: bool,
    /// Whether a person should approve its calls. A hint: the policy decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval: bool,
    /// The tool that undoes a call of this one, with its result as arguments, if the tool does not build the
    /// undo call itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<ToolName>,
    /// Whether its results are trusted: no external party influences them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// The sinks of a call after untrusted text was read. Without it, the call itself is the sink if it
    /// changes the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sinks: Option<CallSinks>,
    /// Whether its arguments leave this machine, so that a call can send data out although it changes
    /// nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub egress: bool,
    /// The MCP server that wrote the definition, if its text was not declared trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The price of one call, for budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Cost>,
    /// The fingerprint of what performs its calls, if that is configured separately from the contract: a
    /// program and its arguments, an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_of: Option<Hash>,
}

/// The sinks of a call: the parts that untrusted text must not choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum CallSinks {
    /// The call itself: its mere execution matters, whatever its arguments. Written as `"call"`.
    Call,
    /// JSON pointers to the arguments that matter, such as recipients, amounts and addresses.
    Arguments(Vec<String>),
}

impl TryFrom<Value> for CallSinks {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let pointers = match &value {
            Value::String(word) if word == "call" => return Ok(Self::Call),
            Value::Array(pointers) => {
                pointers.iter().map(|one| one.as_str().map(ToOwned::to_owned)).collect()
            }
            _ => None,
        };
        pointers.map(Self::Arguments).ok_or_else(|| {
            format!("`sinks` is `\"call\"` or a list of JSON pointers such as `[\"/to\"]`, got `{value}`")
        })
    }
}

impl From<CallSinks> for Value {
    fn from(sinks: CallSinks) -> Self {
        match sinks {
            CallSinks::Call => "call".into(),
            CallSinks::Arguments(pointers) => pointers.into(),
        }
    }
}

/// The call that undoes another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoCall {
    /// The tool.
    pub tool: ToolName,
    /// The arguments.
    pub arguments: Value,
}

impl ToolContract {
    /// Creates a contract with defaults. Set the rest with struct update syntax.
    pub fn new(name: ToolName, description: impl Into<String>, input: Value) -> Self {
        Self {
            name,
            description: description.into(),
            input,
            output: None,
            class: EffectClass::default(),
            scheduling: CallScheduling::default(),
            retry: RetryPolicy::default(),
            deadline: None,
            durable: false,
            approval: false,
            undo: None,
            trusted: false,
            sinks: None,
            egress: false,
            server: None,
            price: None,
            made_of: None,
        }
    }

    /// Returns the call that undoes a call with this result, if the contract names a tool for it.
    pub fn undo(&self, result: &Value) -> Option<UndoCall> {
        Some(UndoCall { tool: self.undo.clone()?, arguments: result.clone() })
    }

    /// Returns the manifest of this contract.
    pub fn manifest(&self) -> ToolManifest {
        let summary = self.description.lines().next().unwrap_or_default().to_owned();
        ToolManifest { name: self.name.clone(), summary, class: self.class }
    }
}

/// A client-side tool: the sender of the input runs it, and its calls wait for the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTool {
    /// The name that a model uses.
    pub name: ToolName,
    /// The description that the model reads.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input: Value,
}

impl ClientTool {
    /// Returns the contract of the tool. A started call only waits for its client, so it may be started
    /// again.
    pub fn contract(&self) -> ToolContract {
        let Self { name, description, input } = self.clone();
        let class = EffectClass::Idempotent;
        ToolContract { class, durable: true, ..ToolContract::new(name, description, input) }
    }
}

/// A call after `prepare`: the form that the journal stores, and everything that `execute` receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedCall {
    /// Outlast's id of the call, derived from its place. Also the idempotency key for external systems.
    pub id: CallId,
    /// The id that the model gave it.
    pub model_id: ModelCallId,
    /// The tool.
    pub tool: ToolName,
    /// The class under which it was claimed. A later contract does not change it.
    pub class: EffectClass,
    /// The validated arguments.
    pub arguments: Value,
    /// The data that `prepare` computed in addition to the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The policy decision, if a rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<RecordedDecision>,
    /// The untrusted sources that may have caused it, if labels are recorded.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The origins of its sink arguments, if it has labels and sinks.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
}

impl PreparedCall {
    /// Returns whether it must wait for an approval or a deferral before it starts.
    pub fn is_held(&self) -> bool {
        self.ruling.as_ref().is_some_and(|ruling| match ruling.decision {
            PolicyDecision::Ask(_) => ruling.grant.is_none(),
            PolicyDecision::Defer { .. } => true,
            _ => false,
        })
    }

    /// Returns the fingerprint of the call. The same call id with another fingerprint is a determinism
    /// violation.
    pub fn fingerprint(&self) -> Hash {
        crate::canonical_json::fingerprint(self)
    }
}
