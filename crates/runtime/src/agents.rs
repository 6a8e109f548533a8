//! The agents of this process: definitions by a program, registry, factories for agents of the database, resolved
//! agents, and plug-ins.

pub mod agent_definition;
pub mod agent_factory;
mod agent_plugins;
pub mod agent_registry;
pub mod agent_resolver;
pub mod plugins;
pub mod resolved_agent;
