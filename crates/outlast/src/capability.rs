//! Capabilities defined in code: named bundles of tools, services and prompt that an agent can enable.
use crate::Builder;
use outlast_vocab::{Error, Kind};

type AddCapability = Box<dyn FnOnce(Builder) -> Result<Builder, Error> + Send>;

/// A named bundle of settings. It can add anything that a [`Builder`] accepts.
///
/// ```
/// # use outlast::{Capability, Outlast, tools::Builtin, vocab::overlay::Overlay};
/// # fn main() -> Result<(), outlast::Error> {
/// let sums = Capability::new("sums", |agent| {
///     let told = Overlay { system: vec!["Use the calculator.".to_owned()], ..Overlay::default() };
///     Ok(agent.builtin(Builtin::Calculator).overlay(told))
/// });
/// let agent = Outlast::ephemeral().define_capability(sums).enable_capability("sums")?;
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
pub struct Capability {
    name: String,
    needs: Vec<String>,
    add: AddCapability,
}

impl Capability {
    /// Creates a capability with this name.
    pub fn new(
        name: impl Into<String>,
        add: impl FnOnce(Builder) -> Result<Builder, Error> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), needs: Vec::new(), add: Box::new(add) }
    }

    /// Declares another capability that this one needs. It is enabled first.
    #[must_use]
    pub fn needs(mut self, name: impl Into<String>) -> Self {
        self.needs.push(name.into());
        self
    }
}

impl Builder {
    /// Defines a capability without enabling it. A later definition replaces an earlier one of the same name.
    #[must_use]
    pub fn define_capability(mut self, capability: Capability) -> Self {
        self.capability_definitions.retain(|known| known.name != capability.name);
        self.capability_definitions.push(capability);
        self
    }

    /// Enables a capability, after those it needs. Enabling it again has no effect.
    ///
    /// For an undefined name, returns an error that lists the defined ones.
    pub fn enable_capability(mut self, name: &str) -> Result<Self, Error> {
        if self.agent.enabled_capabilities.iter().any(|on| on == name) {
            return Ok(self);
        }
        let Some(at) = self.capability_definitions.iter().position(|known| known.name == name) else {
            let mut names: Vec<&str> =
                self.capability_definitions.iter().map(|known| known.name.as_str()).collect();
            names.sort_unstable();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let detail = format!("the capability `{name}` does not exist; there are: {there}");
            return Err(Error::new(Kind::CapabilityUnknown, detail));
        };
        let Capability { needs, add, .. } = self.capability_definitions.remove(at);
        self.agent.enabled_capabilities.push(name.to_owned());
        for needed in needs {
            self = self.enable_capability(&needed)?;
        }
        add(self)
    }
}
