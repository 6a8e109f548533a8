//! Capabilities: named bundles of prompt text, tools and hooks that an agent can enable.
use crate::hook::HookUse;
use crate::message::{CapabilityName, ToolName};
use serde::{Deserialize, Serialize};

/// The contents of a capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityBundle {
    /// The name of the capability.
    pub name: CapabilityName,
    /// The text that it adds to the prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The tools that it makes available to the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
    /// The hooks that it adds, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookUse>,
}
