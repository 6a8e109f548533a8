//! Triggers: external events that start turns.
//!
//! Implement [`TriggerSource`]. It repeats an occurrence until it is settled. However often it repeats, an occurrence starts
//! only one turn, because the idempotency key of the input is derived from the trigger's name and the occurrence's id.
use crate::ResultFuture;
use crate::attachment_upload::{AttachmentUpload, Upload};
use crate::plugin::Plugin;
use outlast_vocab::id::TurnId;
use outlast_vocab::message::{MediaType, PluginName, TriggerName};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An external event.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalEvent {
    /// Its id at the source. The same id always means the same occurrence for the same session.
    pub id: String,
    /// The key of the session that it is for. The session is opened if it does not exist.
    pub session: String,
    /// The text for the agent. It must be written by the program. Put text that outsiders wrote into a file, where it
    /// gets a label.
    pub text: String,
    /// The attached files.
    pub files: Vec<AttachmentUpload>,
    /// The data that it carries for plug-ins.
    pub plugins: BTreeMap<PluginName, Value>,
}

impl ExternalEvent {
    /// Creates an occurrence for a session.
    pub fn new(id: impl Into<String>, session: impl Into<String>, text: impl Into<String>) -> Self {
        let (id, session, text) = (id.into(), session.into(), text.into());
        Self { id, session, text, files: Vec::new(), plugins: BTreeMap::new() }
    }

    /// Attaches a file with text that outsiders wrote.
    pub fn attach(
        mut self,
        media_type: &str,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        self.files.push(Upload::new(MediaType::try_from(media_type.to_owned())?, name, bytes)?.into());
        Ok(self)
    }

    /// Adds data for a plug-in.
    pub fn with_plugin_input<P: Plugin>(mut self, input: &P::Input) -> Result<Self, Error> {
        let value = serde_json::to_value(input).map_err(|cause| {
            Error::new(
                Kind::InputInvalid,
                format!("the data for `{}` cannot be written as JSON: {cause}", P::NAME),
            )
        })?;
        self.plugins.insert(P::NAME.parse()?, value);
        Ok(self)
    }
}

/// Reports external events. Every process that runs the plug-in has its own source.
pub trait TriggerSource: Send + Sync {
    /// Waits for an occurrence that is not settled. The runtime may drop the future while it waits, and pauses after an
    /// error.
    fn next(&self) -> ResultFuture<'_, ExternalEvent>;

    /// Reports the outcome of an occurrence: the turn that it started, or why it cannot start one.
    ///
    /// The source need not repeat it after that. If this fails, or the process crashes before it, the occurrence is
    /// repeated and resolves to the same turn.
    fn settled<'a>(&'a self, id: &'a str, outcome: Result<TurnId, &'a Error>) -> ResultFuture<'a, ()>;
}

/// A source with its name.
#[derive(Clone)]
pub struct Trigger {
    /// Its name. Idempotency keys are derived from it, so never change it.
    pub name: TriggerName,
    /// The source.
    pub source: Arc<dyn TriggerSource>,
    /// The agent that answers. If absent, the first agent of the runtime.
    pub agent: Option<String>,
}

impl Trigger {
    /// Returns the idempotency key of the input for an occurrence.
    pub fn key(&self, id: &str) -> String {
        format!("trigger/{}/{id}", self.name)
    }
}
