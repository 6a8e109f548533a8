//! Collects the files that tools must not change: what the server reads and runs outside a sandbox.
//!
//! [`AgentSources`](super::sources::AgentSources) calls this for everything that it loads. All agents of a server
//! share the list.
use super::definition::pins_of;
use super::layers::document_files;
use super::program::named_files;
use crate::config::document::Document;
use crate::{cedar, sinks};
use outlast::Error;
use outlast::tools::ProtectedFiles;
use outlast::vocab::overlay::Overlay;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// Adds a configuration with the files that it names outside its agents: sinks, Cedar policies and documents.
///
/// Tables that cannot be read are left out. The server does not use them.
pub(super) fn add_configuration(protected: &ProtectedFiles, document: &Document) -> Result<(), Error> {
    add_document(protected, document)?;
    let configured = sinks::read(document.path(), document.text()).unwrap_or_default();
    protected.deny(configured.iter().flat_map(sinks::ConfiguredSink::files));
    protected.deny(cedar::files(document)?);
    Ok(())
}

/// Adds the file of an agent or an overlay: the file itself, its accepted MCP definitions, and its documents.
pub(super) fn add_document(protected: &ProtectedFiles, document: &Document) -> Result<(), Error> {
    protected.deny([pins_of(document.path()), document.path().to_owned()]);
    protected.make_read_only(document_files(document)?);
    Ok(())
}

/// Adds the programs of a layer: of its tools, MCP servers and hooks. Their paths are absolute.
pub(super) fn add_layer(protected: &ProtectedFiles, layer: &Overlay) {
    let named = layer.tools.iter().chain(&layer.hooks).filter_map(|named| named.definition.get("command"));
    let servers = layer.mcp.values().filter_map(|server| server.get("command"));
    let commands = named.chain(servers).filter_map(|words: &Value| Vec::<String>::deserialize(words).ok());
    protected.deny(commands.flat_map(|words| named_files(&words, Path::new("/"))));
}
