//! The routes, one file for each group of them.
pub(crate) mod about;
pub(crate) mod access;
pub(crate) mod agents;
pub(crate) mod archive;
pub(crate) mod attachments;
pub(crate) mod books;
pub(crate) mod context;
pub(crate) mod effects;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod mcp;
pub(crate) mod messages;
pub(crate) mod search;
pub(crate) mod sessions;
pub(crate) mod turns;
pub(crate) mod waits;
pub(crate) mod why;
