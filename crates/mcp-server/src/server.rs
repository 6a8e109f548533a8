//! Answers the messages of one MCP client.
#![expect(deprecated, reason = "clients of older revisions ask so")]
use crate::call::Call;
use crate::calls::Calls;
use crate::endpoint::Guest;
use crate::more::More;
use crate::sessions::{self, OURS, Places};
use crate::tools;
use http::request::Parts;
use outlast_runtime::Runtime;
use outlast_vocab::access::Scope;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind, TurnId};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CancelledNotificationParam, ClientRequest,
    CompleteRequest, CompleteRequestParams, CompleteResult, Extensions, GetPromptRequest,
    GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsRequest, ListPromptsResult,
    ListResourceTemplatesRequest, ListResourceTemplatesResult, ListResourcesRequest, ListResourcesResult,
    ListToolsRequest, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourcesCapability,
    ServerCapabilities, ServerConfig, ServerResult, SetLevelRequest, SetLevelRequestMethod,
    SetLevelRequestParams, SubscribeRequest, SubscribeRequestMethod, SubscribeRequestParams, Tool,
    ToolsCapability, UnsubscribeRequest, UnsubscribeRequestMethod, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, ServiceExt};
use rmcp::{ErrorData, ServerHandler};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{Instrument, Span};

/// The instructions that clients receive.
const INSTRUCTIONS: &str = "Each tool is an agent. A call is a durable turn: give `idempotency_key` so that a call that is made \
    again is not run twice, and `session` to go on with a conversation. Resources are the sessions.";

/// The MCP server of one client.
pub struct McpServer {
    who: Who,
    pub(crate) places: Places,
    /// How long a call waits for its turn to end.
    pub(crate) wait: Duration,
    pub(crate) calls: Calls,
    /// Whether the server is shutting down.
    closing: Arc<AtomicBool>,
    more: Option<More>,
}

/// The rights that requests have.
enum Who {
    /// Those of the only client.
    One(Box<Runtime>),
    /// Those of the guest that comes with each request.
    Guests,
}

impl McpServer {
    /// Creates the server for the only client of a pipe, with the rights of this handle.
    pub fn local(runtime: Runtime, secret: [u8; 32], limits: &ServerLimits) -> Self {
        let who = Who::One(Box::new(runtime));
        Self {
            who,
            places: Places::new(secret),
            wait: limits.mcp_wait,
            calls: Calls::default(),
            closing: Arc::default(),
            more: None,
        }
    }

    /// Creates a server whose requests each come with their guest.
    pub(crate) fn of_guests(
        secret: [u8; 32],
        wait: Duration,
        closing: Arc<AtomicBool>,
        more: Option<More>,
    ) -> Self {
        Self { who: Who::Guests, places: Places::new(secret), wait, calls: Calls::default(), closing, more }
    }

    /// Returns whether a client that disconnects during a call cancels it. The newest revision has no other way over
    /// HTTP.
    pub(crate) fn ends_with_its_stream(&self, context: &RequestContext<RoleServer>) -> bool {
        let new = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        new && matches!(self.who, Who::Guests) && !self.closing.load(Ordering::SeqCst)
    }

    /// Serves standard input and output until the client disconnects.
    pub async fn serve(self) -> Result<(), Error> {
        let broken = |cause: String| {
            Error::new(Kind::IoFailed, format!("the MCP client cannot be spoken to: {cause}"))
        };
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        let running = ServiceExt::serve(self, streams).await.map_err(|cause| broken(cause.to_string()))?;
        running.waiting().await.map(drop).map_err(|cause| broken(cause.to_string()))
    }

    /// Returns the handle of the caller.
    fn guest(&self, extensions: &Extensions) -> Result<Runtime, ErrorData> {
        match &self.who {
            Who::One(runtime) => Ok(runtime.as_ref().clone()),
            Who::Guests => brought(extensions)
                .map(|Guest { runtime, .. }| runtime.clone())
                .ok_or_else(|| ErrorData::internal_error("the request does not say who asks", None)),
        }
    }

    fn reader(&self, context: &RequestContext<RoleServer>) -> Result<Runtime, ErrorData> {
        let runtime = self.guest(&context.extensions)?;
        runtime.access().need(Scope::Read).map_err(|error| wrong(&error))?;
        Ok(runtime)
    }

    /// Passes a request to the tools and resources that the program adds.
    async fn elsewhere(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<Option<ServerResult>, ErrorData> {
        match &self.more {
            Some(more) => more.answer(request, context).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Returns the guest of a request.
fn brought(extensions: &Extensions) -> Option<&Guest> {
    extensions.get::<Parts>()?.extensions.get()
}

/// Converts an error to an error of the protocol.
pub(crate) fn wrong(error: &Error) -> ErrorData {
    let data = serde_json::json!({ "code": error.kind().code(), "class": error.kind().class().name() });
    let detail = hidden(error.kind(), error.detail());
    match error.kind().status() {
        404 => ErrorData::resource_not_found(detail, Some(data)),
        500.. => ErrorData::internal_error(detail, Some(data)),
        _ => ErrorData::invalid_params(detail, Some(data)),
    }
}

/// Returns the error text for the caller. Internal errors name files and machines, so they only go to the log.
pub(crate) fn hidden(kind: Kind, detail: &str) -> String {
    if kind.status() >= 500 {
        "the server could not do this; its log says more".to_owned()
    } else {
        detail.to_owned()
    }
}

/// Cancels a turn for a client that does not wait for the result.
pub(crate) async fn stop(runtime: &Runtime, turn: TurnId, reason: &str) {
    if let Err(error) = runtime.cancel(turn, reason).await {
        tracing::warn!(%turn, %error, "a turn could not be cancelled");
    }
}

fn unexpected() -> ErrorData {
    ErrorData::internal_error("the answer does not fit the request", None)
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities =
            self.more.as_ref().map_or_else(ServerCapabilities::default, More::capabilities);
        capabilities.tools.get_or_insert_with(ToolsCapability::default);
        capabilities.resources.get_or_insert_with(ResourcesCapability::default);
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("outlast", env!("CARGO_PKG_VERSION")).with_title("Outlast");
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let runtime = self.reader(&context)?;
        let mut tools: Vec<Tool> = runtime.agents().iter().map(tools::tool).collect();
        let params = request.unwrap_or_default();
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        match self.elsewhere(request, context).await? {
            None => {}
            Some(ServerResult::ListToolsResult(more)) => {
                let known: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
                tools.extend(more.tools.into_iter().filter(|tool| !known.contains(&tool.name)));
            }
            Some(_) => return Err(unexpected()),
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let runtime = self.guest(&context.extensions)?;
        if runtime.agents().iter().any(|agent| agent.name == request.name) {
            let span = brought(&context.extensions).map_or_else(Span::current, |guest| guest.span.clone());
            return Call::new(self, runtime, context).run(request).instrument(span).await;
        }
        let name = request.name.clone();
        match self.elsewhere(ClientRequest::CallToolRequest(CallToolRequest::new(request)), context).await? {
            None => Err(ErrorData::invalid_params(
                format!("there is no agent `{}` here", outlast_vocab::message::shown(&name)),
                None,
            )),
            Some(ServerResult::CallToolResult(result)) => Ok(result.into()),
            Some(ServerResult::InputRequiredResult(result)) => Ok(result.into()),
            Some(_) => Err(unexpected()),
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        match &self.who {
            Who::One(runtime) => runtime.agents().iter().find(|agent| agent.name == name).map(tools::tool),
            // The caller is unknown here, and no agent takes arguments from a header.
            Who::Guests => None,
        }
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        let Some(id) = cancelled.request_id else { return };
        let reason = cancelled.reason.unwrap_or_else(|| "the MCP client cancelled the call".to_owned());
        let Some((runtime, turn)) = self.calls.cancel(&id, &reason) else { return };
        stop(&runtime, turn, &reason).await;
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let runtime = self.reader(&context)?;
        let params = request.unwrap_or_default();
        let cursor = params.cursor.as_deref();
        let (mut resources, next) =
            sessions::list(&runtime, self.places, cursor).await.map_err(|error| wrong(&error))?;
        if cursor.is_none() {
            let request = ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params));
            match self.elsewhere(request, context).await? {
                None => {}
                Some(ServerResult::ListResourcesResult(more)) => resources.extend(more.resources),
                Some(_) => return Err(unexpected()),
            }
        }
        let mut page = ListResourcesResult::with_all_items(resources);
        page.next_cursor = next;
        Ok(page)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut templates = sessions::templates();
        let params = request.unwrap_or_default();
        let request =
            ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(params));
        match self.elsewhere(request, context).await? {
            None => {}
            Some(ServerResult::ListResourceTemplatesResult(more)) => {
                templates.extend(more.resource_templates);
            }
            Some(_) => return Err(unexpected()),
        }
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri.starts_with(OURS) {
            let runtime = self.reader(&context)?;
            let contents =
                sessions::read(&runtime, self.places, &request.uri).await.map_err(|error| wrong(&error))?;
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        let uri = request.uri.clone();
        match self
            .elsewhere(ClientRequest::ReadResourceRequest(ReadResourceRequest::new(request)), context)
            .await?
        {
            None => {
                let shown = outlast_vocab::message::shown(&uri).into_owned();
                Err(ErrorData::resource_not_found(format!("there is no resource `{shown}` here"), None))
            }
            Some(ServerResult::ReadResourceResult(result)) => Ok(result.into()),
            Some(ServerResult::InputRequiredResult(result)) => Ok(result.into()),
            Some(_) => Err(unexpected()),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let params = request.unwrap_or_default();
        let request = ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params));
        match self.elsewhere(request, context).await? {
            None => Ok(ListPromptsResult::default()),
            Some(ServerResult::ListPromptsResult(prompts)) => Ok(prompts),
            Some(_) => Err(unexpected()),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match self.elsewhere(ClientRequest::GetPromptRequest(GetPromptRequest::new(request)), context).await?
        {
            None => Err(ErrorData::invalid_params("there are no prompts here", None)),
            Some(ServerResult::GetPromptResult(prompt)) => Ok(prompt.into()),
            Some(ServerResult::InputRequiredResult(result)) => Ok(result.into()),
            Some(_) => Err(unexpected()),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match self.elsewhere(ClientRequest::CompleteRequest(CompleteRequest::new(request)), context).await? {
            None => Ok(CompleteResult::default()),
            Some(ServerResult::CompleteResult(result)) => Ok(result),
            Some(_) => Err(unexpected()),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = ClientRequest::SetLevelRequest(SetLevelRequest::new(request));
        let answer = self.elsewhere(request, context).await?;
        answer.map(drop).ok_or_else(ErrorData::method_not_found::<SetLevelRequestMethod>)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = ClientRequest::SubscribeRequest(SubscribeRequest::new(request));
        let answer = self.elsewhere(request, context).await?;
        answer.map(drop).ok_or_else(ErrorData::method_not_found::<SubscribeRequestMethod>)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(request));
        let answer = self.elsewhere(request, context).await?;
        answer.map(drop).ok_or_else(ErrorData::method_not_found::<UnsubscribeRequestMethod>)
    }
}
