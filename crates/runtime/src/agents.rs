//! The agents of this process: registry, factories for agents of the database, resolved agents, and plug-ins.

pub mod agent_factory;
pub mod agent_registry;
pub mod agent_resolver;
pub mod plugins;
pub mod resolved_agent;
