//! Capabilities: named bundles of prompt text, tools and hooks that an agent switches on (R10.3).
use crate::hook::HookUse;
use crate::message::{CapabilityName, ToolName};
use serde::{Deserialize, Serialize};

/// What an agent gets that switches it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// What it is called.
    pub name: CapabilityName,
    /// What the model is told with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Tools that the model may ask for with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
    /// Hooks that run with it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookUse>,
}
