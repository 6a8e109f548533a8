//! The configuration a turn runs under, as data that is stored by its fingerprint.
//!
//! A turn names the fingerprint of its package, so a later edit never changes a turn that is running or replayed.
use crate::Hash;
use crate::message::{ModelName, ToolName};
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
}

impl Package {
    /// The name under which the package is stored.
    pub fn fingerprint(&self) -> Hash {
        crate::canon::fingerprint(self)
    }
}
