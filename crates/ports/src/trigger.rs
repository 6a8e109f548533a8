//! Triggers: what happens outside and begins a turn (R9.1, R15.1).
//!
//! [`Source`] is what others implement. Whatever it tells of comes again until it is settled, and begins one turn however
//! often it comes: the input's key is made of the trigger's name and the occurrence's id.
use crate::Answer;
use crate::filed::Filed;
use crate::plugin::Plugin;
use crate::store::Upload;
use outlast_vocab::id::TurnId;
use outlast_vocab::message::{MediaType, PluginName, TriggerName};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// What it is known by to its source. The same id is the same occurrence, for the same session, for ever.
    pub id: String,
    /// The key of the session that it is for, which is opened if it is not there.
    pub session: String,
    /// What the agent is told. These are words of the program; what somebody outside wrote belongs in a file, where it
    /// carries a label (R11.4).
    pub text: String,
    /// What came with it.
    pub files: Vec<Filed>,
    /// What it carries for plug-ins.
    pub plugins: BTreeMap<PluginName, Value>,
}

impl Occurrence {
    /// Something that happened, for a session.
    pub fn new(id: impl Into<String>, session: impl Into<String>, text: impl Into<String>) -> Self {
        let (id, session, text) = (id.into(), session.into(), text.into());
        Self { id, session, text, files: Vec::new(), plugins: BTreeMap::new() }
    }

    /// With what somebody outside wrote.
    pub fn attach(
        mut self,
        media_type: &str,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        self.files.push(Upload::new(MediaType::try_from(media_type.to_owned())?, name, bytes)?.into());
        Ok(self)
    }

    /// With something for a plug-in.
    pub fn carry<P: Plugin>(mut self, input: &P::Input) -> Result<Self, Error> {
        let value = serde_json::to_value(input).map_err(|cause| {
            Error::new(Kind::InputInvalid, format!("what is for `{}` does not fit JSON: {cause}", P::NAME))
        })?;
        self.plugins.insert(P::NAME.parse()?, value);
        Ok(self)
    }
}

/// Tells what happens outside. Every process that runs the plug-in asks its own.
pub trait Source: Send + Sync {
    /// Waits until something has happened that is not settled. It may be dropped while it waits. An error is met with a
    /// pause.
    fn next(&self) -> Answer<'_, Occurrence>;

    /// Is told what came of an occurrence: the turn that it began, or why it can begin none. It need not come again; if
    /// this fails, or the process dies before it, it comes again and is found to have begun that turn.
    fn settled<'a>(&'a self, id: &'a str, came: Result<TurnId, &'a Error>) -> Answer<'a, ()>;
}

/// A source with its name.
#[derive(Clone)]
pub struct Trigger {
    /// Its name. Keys are made of it, so it keeps that for ever.
    pub name: TriggerName,
    /// Who tells.
    pub source: Arc<dyn Source>,
    /// The agent that is to answer; the runtime's first one when absent.
    pub agent: Option<String>,
}

impl Trigger {
    /// The key of the input that an occurrence becomes.
    pub fn key(&self, id: &str) -> String {
        format!("trigger/{}/{id}", self.name)
    }
}
