//! The configuration a turn runs under, as data that is stored by its fingerprint.
//!
//! A turn names the fingerprint of what it is pinned to, so a later edit or deploy never changes a turn that is running or
//! replayed.
use crate::budget::Budgets;
use crate::hook::HookUse;
use crate::label::Guard;
use crate::message::{ModelName, ToolName};
use crate::policy::Policy;
use crate::tool::Contract;
use serde::{Deserialize, Serialize};

/// What a turn answers with: prompt, model, tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// What the agent is called.
    pub agent: String,
    /// Which model answers.
    pub model: ModelName,
    /// What the model is told before the first message.
    pub system: String,
    /// The tools the model may ask for.
    pub tools: Vec<ToolName>,
    /// Model calls in one turn.
    pub model_calls: u32,
    /// What its calls may do.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
    /// What it does with calls that untrusted text may have asked for.
    #[serde(default, skip_serializing_if = "Guard::is_open")]
    pub guard: Guard,
    /// What its turns may use.
    #[serde(default, skip_serializing_if = "Budgets::is_empty")]
    pub budgets: Budgets,
    /// What runs at points of its turns, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookUse>,
}

/// What a turn is pinned to: a package, with the contracts that its tools had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The package.
    #[serde(flatten)]
    pub package: Package,
    /// The contracts of its tools, in its order. None in databases from before they were stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contracts: Option<Vec<Contract>>,
}
