//! The plug-ins of this process: validation of the values that inputs carry for them, and their triggers.
use outlast_ports::plugin::InstalledPlugin;
use outlast_ports::trigger::Trigger;
use outlast_vocab::message::PluginName;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::collections::BTreeMap;

/// Checks the value that an input carries for a plug-in.
type PluginInputCheck = fn(Value) -> Result<(), Error>;

/// The plug-ins by name, with their input checks and triggers.
#[derive(Default)]
pub struct Plugins {
    checks: BTreeMap<PluginName, PluginInputCheck>,
    triggers: Vec<Trigger>,
}

impl Plugins {
    /// Merges these plug-ins with those of another agent. A plug-in that both have is shared, because its state belongs
    /// to the session. A trigger that both have is an error, because only one agent can answer it.
    pub fn and(mut self, other: Self) -> Result<Self, Error> {
        self.checks.extend(other.checks);
        other.triggers.into_iter().try_for_each(|trigger| self.add(trigger))?;
        Ok(self)
    }

    /// Collects the plug-ins of an agent, which answers their triggers. Duplicate names are an error, because plug-in
    /// state and trigger keys would collide.
    pub fn new<'a>(
        agent: &str,
        installed: impl IntoIterator<Item = &'a InstalledPlugin>,
    ) -> Result<Self, Error> {
        let mut plugins = Self::default();
        for plugin in installed {
            if plugins.checks.insert(plugin.name.clone(), plugin.check_input).is_some() {
                let detail = format!("two plug-ins are called `{}`; names must be unique", plugin.name);
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            for trigger in plugin.triggers() {
                plugins.add(Trigger { agent: Some(agent.to_owned()), ..trigger.clone() })?;
            }
        }
        Ok(plugins)
    }

    fn add(&mut self, trigger: Trigger) -> Result<(), Error> {
        if self.triggers.iter().any(|other| other.name == trigger.name) {
            let detail = format!("two triggers are called `{}`; names must be unique", trigger.name);
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        self.triggers.push(trigger);
        Ok(())
    }

    /// The triggers.
    pub(crate) fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// Rejects an input that carries a value for an unknown plug-in, or an invalid value.
    pub(crate) fn check(&self, carried: &BTreeMap<PluginName, Value>) -> Result<(), Error> {
        for (name, value) in carried {
            let Some(check) = self.checks.get(name) else {
                let there: Vec<&str> = self.checks.keys().map(PluginName::as_str).collect();
                let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                let detail = format!(
                    "the input has data for the plug-in `{name}`, which does not exist here; there are: {there}"
                );
                return Err(Error::new(Kind::PluginUnknown, detail));
            };
            check(value.clone())?;
        }
        Ok(())
    }
}
