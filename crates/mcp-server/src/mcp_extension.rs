//! Tools and resources that a program serves in addition to its agents.
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ServerCapabilities, ServerResult};
use rmcp::service::{DynService, RequestContext, RoleServer, Service};
use std::sync::Arc;

/// Tools, resources, prompts and completions of a program, as a server of the MCP SDK.
///
/// An agent takes precedence over a tool of the same name, and resources under `outlast:` are always sessions. Lists of
/// this server have one page.
#[derive(Clone)]
pub struct McpExtension(Arc<dyn DynService<RoleServer>>);

impl McpExtension {
    /// Wraps a server of the SDK.
    pub fn new(server: impl Service<RoleServer>) -> Self {
        Self(Arc::new(server))
    }

    pub(crate) async fn answer(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        self.0.handle_request(request, context).await
    }

    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        self.0.get_info().capabilities
    }
}
