//! What a program offers beside its agents, through the same server.
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ServerCapabilities, ServerResult};
use rmcp::service::{DynService, RequestContext, RoleServer, Service};
use std::sync::Arc;

/// Tools, resources, prompts and completions of a program's own, as a server of the SDK. An agent comes before a tool of its
/// name, and resources under `outlast:` are always sessions. Lists of it have one page.
#[derive(Clone)]
pub struct More(Arc<dyn DynService<RoleServer>>);

impl More {
    /// What this server offers.
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
