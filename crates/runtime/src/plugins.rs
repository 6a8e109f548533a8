//! The plug-ins of this process, as far as inputs carry something for them (R15.1).
use outlast_ports::plugin::Installed;
use outlast_vocab::message::PluginName;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::collections::BTreeMap;

/// Refuses what does not fit a plug-in.
type Check = fn(Value) -> Result<(), Error>;

/// Plug-ins by name, with what looks at inputs for them.
#[derive(Default)]
pub struct Plugins(BTreeMap<PluginName, Check>);

impl Plugins {
    /// These and those of another agent. A plug-in that both have is one: its state belongs to the session.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// These plug-ins. A name that stands twice is an error at start-up: their states would be one.
    pub fn new<'a>(installed: impl IntoIterator<Item = &'a Installed>) -> Result<Self, Error> {
        let mut plugins = BTreeMap::new();
        for plugin in installed {
            if plugins.insert(plugin.name.clone(), plugin.check_input).is_some() {
                let detail = format!("two plug-ins are called `{}`; names must be unique", plugin.name);
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        Ok(Self(plugins))
    }

    /// Refuses an input that carries what no plug-in takes.
    pub(crate) fn check(&self, carried: &BTreeMap<PluginName, Value>) -> Result<(), Error> {
        for (name, value) in carried {
            let Some(check) = self.0.get(name) else {
                let there: Vec<&str> = self.0.keys().map(PluginName::as_str).collect();
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                let detail =
                    format!("the input carries something for the plug-in `{name}`; there are: {there}");
                return Err(Error::new(Kind::PluginUnknown, detail));
            };
            check(value.clone())?;
        }
        Ok(())
    }
}
