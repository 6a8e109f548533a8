//! Applies plug-ins to an agent: their tools, prompts, hooks and capabilities.
use crate::agents::agent_definition::InstallPlugin;
use crate::agents::plugins::Plugins;
use outlast_ports::hook::HookAt;
use outlast_ports::plugin::InstalledPlugin;
use outlast_ports::tool::Toolbox;
use outlast_vocab::capability::CapabilityBundle;
use outlast_vocab::hook::{HookPoint, HookUse};
use outlast_vocab::message::{HookName, ToolName};
use outlast_vocab::{Error, Kind};

/// The plug-ins of an agent and the capabilities it has enabled.
pub(crate) struct AgentPlugins {
    installed: Vec<InstalledPlugin>,
    enabled: Vec<CapabilityBundle>,
}

impl AgentPlugins {
    /// Installs the plug-ins and enables the capabilities.
    pub(crate) fn install(plugins: Vec<InstallPlugin>, switched_on: &[String]) -> Result<Self, Error> {
        let installed: Vec<InstalledPlugin> =
            plugins.into_iter().map(|install| install()).collect::<Result<_, _>>()?;
        let on = switched_on
            .iter()
            .map(|name| find_capability(&installed, name).cloned())
            .collect::<Result<_, _>>()?;
        let plugged = Self { installed, enabled: on };
        for capability in plugged.capabilities() {
            plugged.check_unique(capability)?;
        }
        Ok(plugged)
    }

    /// Adds the tools of the plug-ins.
    pub(crate) fn add_tools(&mut self, toolbox: &mut Toolbox) -> Result<(), Error> {
        self.installed.iter_mut().try_for_each(|plugin| plugin.add_tools(toolbox))
    }

    /// Returns the tools that the agent has: all except those of disabled capabilities.
    pub(crate) fn visible_tools(&self, all: Vec<ToolName>) -> Vec<ToolName> {
        let bundled = |tool: &ToolName| self.capabilities().any(|capability| capability.tools.contains(tool));
        let on = |tool: &ToolName| self.enabled.iter().any(|capability| capability.tools.contains(tool));
        all.into_iter().filter(|tool| on(tool) || !bundled(tool)).collect()
    }

    /// Returns the system prompt with the additions of plug-ins and capabilities.
    pub(crate) fn system_prompt(&self, system: String) -> String {
        let prompts = self.installed.iter().flat_map(InstalledPlugin::prompts);
        let of_capabilities = self.enabled.iter().map(|capability| &capability.prompt);
        let added = prompts.chain(of_capabilities).filter(|prompt| !prompt.is_empty());
        added.fold(system, |system, prompt| format!("{system}\n\n{prompt}"))
    }

    /// Returns the hooks that the agent uses, in order: its own, those of plug-ins, those of capabilities.
    pub(crate) fn used_hooks(&self, own: &[HookAt]) -> Vec<HookUse> {
        let bundled = |name: &HookName, point: HookPoint| {
            let mut uses = self.capabilities().flat_map(|capability| &capability.hooks);
            uses.any(|usage| usage.name == *name && usage.point == point)
        };
        let brought = self.installed.iter().flat_map(InstalledPlugin::hooks).map(|hook| &hook.usage);
        let brought = brought.filter(|usage| !bundled(&usage.name, usage.point));
        let on = self.enabled.iter().flat_map(|capability| &capability.hooks);
        own.iter().map(|hook| &hook.usage).chain(brought).chain(on).cloned().collect()
    }

    /// Returns all available hooks, used or not.
    pub(crate) fn hooks(&self, own: Vec<HookAt>) -> Vec<HookAt> {
        own.into_iter().chain(self.installed.iter().flat_map(InstalledPlugin::hooks).cloned()).collect()
    }

    /// Returns the plug-ins for the runtime.
    pub(crate) fn plugins(&self, agent: &str) -> Result<Plugins, Error> {
        Plugins::new(agent, &self.installed)
    }

    fn capabilities(&self) -> impl Iterator<Item = &CapabilityBundle> {
        self.installed.iter().flat_map(InstalledPlugin::capabilities)
    }

    /// Rejects a capability whose name is used twice.
    fn check_unique(&self, capability: &CapabilityBundle) -> Result<(), Error> {
        let same = self.capabilities().filter(|other| other.name == capability.name);
        if same.count() > 1 {
            let detail = format!("two capabilities are called `{}`; names must be unique", capability.name);
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        Ok(())
    }
}

fn find_capability<'a>(installed: &'a [InstalledPlugin], name: &str) -> Result<&'a CapabilityBundle, Error> {
    let all: Vec<&CapabilityBundle> = installed.iter().flat_map(InstalledPlugin::capabilities).collect();
    all.iter().find(|capability| capability.name.as_str() == name).copied().ok_or_else(|| {
        let there: Vec<&str> = all.iter().map(|capability| capability.name.as_str()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Error::new(Kind::PluginUnknown, format!("no plug-in has the capability `{name}`; there are: {there}"))
    })
}
