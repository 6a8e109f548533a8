//! Capabilities in code: named bundles of tools, services and prompt that an agent switches on (R10.3).
use crate::Builder;
use outlast_vocab::{Error, Kind};

type Add = Box<dyn FnOnce(Builder) -> Result<Builder, Error> + Send>;

/// A named bundle. What it adds is whatever a [`Builder`] can be given.
///
/// ```
/// # use outlast::{Capability, Outlast, tools::Builtin, vocab::overlay::Overlay};
/// # fn main() -> Result<(), outlast::Error> {
/// let sums = Capability::new("sums", |agent| {
///     let told = Overlay { system: vec!["Use the calculator.".to_owned()], ..Overlay::default() };
///     Ok(agent.builtin(Builtin::Calculator).overlay(told))
/// });
/// let agent = Outlast::ephemeral().define(sums).switch_on("sums")?;
/// # drop(agent);
/// # Ok(())
/// # }
/// ```
pub struct Capability {
    name: String,
    needs: Vec<String>,
    add: Add,
}

impl Capability {
    /// A bundle of this name.
    pub fn new(
        name: impl Into<String>,
        add: impl FnOnce(Builder) -> Result<Builder, Error> + Send + 'static,
    ) -> Self {
        Self { name: name.into(), needs: Vec::new(), add: Box::new(add) }
    }

    /// Another capability that it needs, which is switched on before it.
    #[must_use]
    pub fn needs(mut self, name: impl Into<String>) -> Self {
        self.needs.push(name.into());
        self
    }
}

impl Builder {
    /// Defines a capability. Nothing is added until it is switched on; of two with one name the last counts.
    #[must_use]
    pub fn define(mut self, capability: Capability) -> Self {
        self.bundles.retain(|known| known.name != capability.name);
        self.bundles.push(capability);
        self
    }

    /// Switches a capability on, after those it needs. Once is enough; a name that nobody defined is an error that lists
    /// those there are.
    pub fn switch_on(mut self, name: &str) -> Result<Self, Error> {
        if self.on.iter().any(|on| on == name) {
            return Ok(self);
        }
        let Some(at) = self.bundles.iter().position(|known| known.name == name) else {
            let mut names: Vec<&str> = self.bundles.iter().map(|known| known.name.as_str()).collect();
            names.sort_unstable();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let detail = format!("the capability `{name}` is not there; there are: {there}");
            return Err(Error::new(Kind::CapabilityUnknown, detail));
        };
        let Capability { needs, add, .. } = self.bundles.remove(at);
        self.on.push(name.to_owned());
        for needed in needs {
            self = self.switch_on(&needed)?;
        }
        add(self)
    }
}
