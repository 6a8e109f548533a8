//! Tools as data: what a catalogue lists (manifest) and what a call needs (contract).
use crate::Hash;
use crate::cost::Cost;
use crate::id::CallId;
use crate::label::{Labels, Provenance};
use crate::message::{ModelCallId, ToolName};
use crate::policy::{Decision, Ruling};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// What may happen to a call that was interrupted (R6.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing; may be performed as often as needed.
    Pure,
    /// May be performed again with the same idempotency key.
    Idempotent,
    /// Must not be performed again once begun. The default when a tool says nothing.
    #[default]
    AtMostOnce,
    /// Writes only to the session's own stores; its writes commit with its answer.
    Transactional,
}

impl EffectClass {
    /// How the class is written in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::AtMostOnce => "at_most_once",
            Self::Transactional => "transactional",
        }
    }

    /// Whether a call that was begun and not answered may be performed again.
    pub const fn may_repeat(self) -> bool {
        match self {
            Self::Pure | Self::Idempotent | Self::Transactional => true,
            Self::AtMostOnce => false,
        }
    }
}

/// How calls of one tool are ordered within a batch (R6.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// Beside any other call.
    #[default]
    Parallel,
    /// One after the other with calls that share this key, in the order asked.
    Keyed(String),
    /// Alone: after every call asked before it, before every call asked after it.
    Serial,
}

/// How often a failing call is tried again (R6.9). Only errors of class `retry` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Attempts in all; 1 means never again.
    pub attempts: u32,
    /// Pause before the second attempt; doubled each time.
    pub backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 1, backoff: Duration::from_millis(200) }
    }
}

/// What a catalogue lists: cheap to have for hundreds of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// What a model calls it.
    pub name: ToolName,
    /// One line for people and for choosing.
    pub summary: String,
    /// What may happen to an interrupted call.
    pub class: EffectClass,
}

/// What a call needs: resolved on demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a promise of its own that is written down by its name"
)]
pub struct Contract {
    /// What a model calls it.
    pub name: ToolName,
    /// What the model is told it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input: Value,
    /// JSON Schema of the result, where the tool promises one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What may happen to an interrupted call.
    #[serde(default)]
    pub class: EffectClass,
    /// How its calls are ordered within a batch.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// How often a failing call is tried again.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// How long one attempt may take; the runtime's limit when it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// Whether it uses durable steps, waits or pending completions and so needs a durable host (R3.1).
    #[serde(default)]
    pub durable: bool,
    /// Whether somebody should be asked before it runs. A hint: what is asked for in the end is for a policy to say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval: bool,
    /// The tool that takes a call of this one back, given its result as arguments, where the tool does not build the call
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<ToolName>,
    /// Whether what it gives may be trusted: nobody outside has a say in it (R11.4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// What matters of a call after untrusted text was read. Without it the call itself does, if it changes the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sinks: Option<Sinks>,
    /// Whether its arguments leave this machine, so that a call can carry data out although it changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub egress: bool,
    /// The MCP server that wrote the definition, where nobody has said that its text can be trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What one call costs, for budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Cost>,
    /// The fingerprint of what performs its calls, where that is said beside the contract: a program and its words, an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_of: Option<Hash>,
}

/// What matters of a call after untrusted text was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Sinks {
    /// The call itself: its mere execution matters, whatever its arguments are. Written as `"call"`.
    Call,
    /// JSON pointers to the arguments that matter: who, what, how much, where.
    Arguments(Vec<String>),
}

impl TryFrom<Value> for Sinks {
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

impl From<Sinks> for Value {
    fn from(sinks: Sinks) -> Self {
        match sinks {
            Sinks::Call => "call".into(),
            Sinks::Arguments(pointers) => pointers.into(),
        }
    }
}

/// The call that takes another one back (R6.15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// Which tool does that.
    pub tool: ToolName,
    /// What it is passed.
    pub arguments: Value,
}

impl Contract {
    /// A tool that promises nothing beyond what it does; the rest is said by struct update.
    pub fn new(name: ToolName, description: impl Into<String>, input: Value) -> Self {
        Self {
            name,
            description: description.into(),
            input,
            output: None,
            class: EffectClass::default(),
            scheduling: Scheduling::default(),
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

    /// The call that takes back a call with this result, where the contract names the tool that does.
    pub fn undo(&self, result: &Value) -> Option<Undo> {
        Some(Undo { tool: self.undo.clone()?, arguments: result.clone() })
    }

    /// The manifest of this contract.
    pub fn manifest(&self) -> Manifest {
        let summary = self.description.lines().next().unwrap_or_default().to_owned();
        Manifest { name: self.name.clone(), summary, class: self.class }
    }
}

/// A tool that whoever sent the input runs: its calls wait for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTool {
    /// What a model calls it.
    pub name: ToolName,
    /// What the model is told it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input: Value,
}

impl ClientTool {
    /// What a call of it needs. That it was begun says only that its client is waited for, so it may be begun again.
    pub fn contract(&self) -> Contract {
        let Self { name, description, input } = self.clone();
        let class = EffectClass::Idempotent;
        Contract { class, durable: true, ..Contract::new(name, description, input) }
    }
}

/// A call after `prepare`: what goes into the journal, and all that `execute` gets (R6.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedCall {
    /// Our id of the call, derived from its place; the idempotency key towards the outside.
    pub id: CallId,
    /// The id the model gave it.
    pub model_id: ModelCallId,
    /// The tool.
    pub tool: ToolName,
    /// The class it was claimed under; a later contract does not change it.
    pub class: EffectClass,
    /// The arguments, validated.
    pub arguments: Value,
    /// What `prepare` worked out beyond the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// What the policy decided of it, where a rule fits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
    /// The untrusted sources that may have asked for it, where labels are kept.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Where the values of its sink arguments come from, if it has labels and sinks.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
}

impl PreparedCall {
    /// Whether it may begin only after something outside has happened.
    pub fn is_held(&self) -> bool {
        self.ruling.as_ref().is_some_and(|ruling| match ruling.decision {
            Decision::Ask(_) => ruling.grant.is_none(),
            Decision::Defer { .. } => true,
            _ => false,
        })
    }

    /// The fingerprint of the arguments: the same call id with another one is a determinism violation (R6.5).
    pub fn fingerprint(&self) -> Hash {
        crate::canon::fingerprint(self)
    }
}
