//! Answers the messages of one MCP client.
#![expect(deprecated, reason = "clients of older revisions ask so")]
use crate::agent_call::AgentCall;
use crate::agent_tools;
use crate::endpoint::McpCaller;
use crate::mcp_extension::McpExtension;
use crate::running_calls::RunningCalls;
use crate::session_resources::{self, McpCursors, SESSION_URI_SCHEME};
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
const INSTRUCTIONS: &str = "Each tool is an agent, and each call is a durable turn. Pass `idempotency_key` so that a repeated call does not run twice, and `session` to continue a conversation. Resources are sessions.";

/// The MCP server of one client.
pub struct McpServer {
    rights: ClientRights,
    pub(crate) cursors: McpCursors,
    /// How long a call waits for its turn to end.
    pub(crate) wait: Duration,
    pub(crate) calls: RunningCalls,
    /// Whether the server is shutting down.
    closing: Arc<AtomicBool>,
    extension: Option<McpExtension>,
}

/// The rights that requests have.
enum ClientRights {
    /// Those of the only client.
    SingleClient(Box<Runtime>),
    /// Those of the guest that comes with each request.
    PerRequest,
}

impl McpServer {
    /// Creates the server for the only client of a pipe, with the rights of this handle.
    pub fn local(runtime: Runtime, secret: [u8; 32], limits: &ServerLimits) -> Self {
        let rights = ClientRights::SingleClient(Box::new(runtime));
        Self {
            rights,
            cursors: McpCursors::new(secret),
            wait: limits.mcp_wait,
            calls: RunningCalls::default(),
            closing: Arc::default(),
            extension: None,
        }
    }

    /// Creates a server whose requests each come with their guest.
    pub(crate) fn per_request(
        secret: [u8; 32],
        wait: Duration,
        closing: Arc<AtomicBool>,
        extension: Option<McpExtension>,
    ) -> Self {
        Self {
            rights: ClientRights::PerRequest,
            cursors: McpCursors::new(secret),
            wait,
            calls: RunningCalls::default(),
            closing,
            extension,
        }
    }

    /// Returns whether a client that disconnects during a call cancels it. The newest revision has no other way over
    /// HTTP.
    pub(crate) fn cancels_on_disconnect(&self, context: &RequestContext<RoleServer>) -> bool {
        let new = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        new && matches!(self.rights, ClientRights::PerRequest) && !self.closing.load(Ordering::SeqCst)
    }

    /// Serves standard input and output until the client disconnects.
    pub async fn serve(self) -> Result<(), Error> {
        let broken = |cause: String| {
            Error::new(Kind::IoFailed, format!("the connection to the MCP client failed: {cause}"))
        };
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        let running = Box::pin(ServiceExt::serve(self, streams)).await;
        let running = running.map_err(|cause| broken(cause.to_string()))?;
        running.waiting().await.map(drop).map_err(|cause| broken(cause.to_string()))
    }

    /// Returns the handle of the caller.
    fn caller_runtime(&self, extensions: &Extensions) -> Result<Runtime, ErrorData> {
        match &self.rights {
            ClientRights::SingleClient(runtime) => Ok(runtime.as_ref().clone()),
            ClientRights::PerRequest => request_caller(extensions)
                .map(|McpCaller { runtime, .. }| runtime.clone())
                .ok_or_else(|| ErrorData::internal_error("the request has no caller", None)),
        }
    }

    fn readable_runtime(&self, context: &RequestContext<RoleServer>) -> Result<Runtime, ErrorData> {
        let runtime = self.caller_runtime(&context.extensions)?;
        runtime.access().require(Scope::Read).map_err(|error| protocol_error(&error))?;
        Ok(runtime)
    }

    /// Passes a request to the tools and resources that the program adds.
    async fn ask_extension(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<Option<ServerResult>, ErrorData> {
        match &self.extension {
            Some(more) => more.answer(request, context).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Returns the guest of a request.
fn request_caller(extensions: &Extensions) -> Option<&McpCaller> {
    extensions.get::<Parts>()?.extensions.get()
}

/// Converts an error to an error of the protocol.
pub(crate) fn protocol_error(error: &Error) -> ErrorData {
    let data = serde_json::json!({ "code": error.kind().code(), "class": error.kind().class().name() });
    let detail = public_detail(error.kind(), error.detail());
    match error.kind().status() {
        404 => ErrorData::resource_not_found(detail, Some(data)),
        500.. => ErrorData::internal_error(detail, Some(data)),
        _ => ErrorData::invalid_params(detail, Some(data)),
    }
}

/// Returns the error text for the caller. Internal errors name files and machines, so they only go to the log.
pub(crate) fn public_detail(kind: Kind, detail: &str) -> String {
    if kind.status() >= 500 {
        "an internal error occurred; the server's log has the details".to_owned()
    } else {
        detail.to_owned()
    }
}

/// Cancels a turn for a client that does not wait for the result.
pub(crate) async fn cancel_turn(runtime: &Runtime, turn: TurnId, reason: &str) {
    if let Err(error) = runtime.cancel(turn, reason).await {
        tracing::warn!(%turn, %error, "a turn could not be cancelled");
    }
}

fn unexpected_answer() -> ErrorData {
    ErrorData::internal_error("the answer does not fit the request", None)
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities =
            self.extension.as_ref().map_or_else(ServerCapabilities::default, McpExtension::capabilities);
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
        let runtime = self.readable_runtime(&context)?;
        let mut tools: Vec<Tool> = runtime.agents().iter().map(agent_tools::agent_tool).collect();
        let params = request.unwrap_or_default();
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        match self.ask_extension(request, context).await? {
            None => {}
            Some(ServerResult::ListToolsResult(more)) => {
                let known: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
                tools.extend(more.tools.into_iter().filter(|tool| !known.contains(&tool.name)));
            }
            Some(_) => return Err(unexpected_answer()),
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let runtime = self.caller_runtime(&context.extensions)?;
        if runtime.agents().iter().any(|agent| agent.name == request.name) {
            let span =
                request_caller(&context.extensions).map_or_else(Span::current, |caller| caller.span.clone());
            return AgentCall::new(self, runtime, context).run(request).instrument(span).await;
        }
        let name = request.name.clone();
        match self
            .ask_extension(ClientRequest::CallToolRequest(CallToolRequest::new(request)), context)
            .await?
        {
            None => Err(ErrorData::invalid_params(
                format!("there is no agent `{}` here", outlast_vocab::message::shown(&name)),
                None,
            )),
            Some(ServerResult::CallToolResult(result)) => Ok(result.into()),
            Some(ServerResult::InputRequiredResult(result)) => Ok(result.into()),
            Some(_) => Err(unexpected_answer()),
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        match &self.rights {
            ClientRights::SingleClient(runtime) => {
                runtime.agents().iter().find(|agent| agent.name == name).map(agent_tools::agent_tool)
            }
            // The caller is unknown here, and no agent takes arguments from a header.
            ClientRights::PerRequest => None,
        }
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        let Some(id) = cancelled.request_id else { return };
        let reason = cancelled.reason.unwrap_or_else(|| "the MCP client cancelled the call".to_owned());
        let Some((runtime, turn)) = self.calls.cancel(&id, &reason) else { return };
        cancel_turn(&runtime, turn, &reason).await;
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let runtime = self.readable_runtime(&context)?;
        let params = request.unwrap_or_default();
        let cursor = params.cursor.as_deref();
        let (mut resources, next) = session_resources::list(&runtime, self.cursors, cursor)
            .await
            .map_err(|error| protocol_error(&error))?;
        if cursor.is_none() {
            let request = ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params));
            match self.ask_extension(request, context).await? {
                None => {}
                Some(ServerResult::ListResourcesResult(more)) => resources.extend(more.resources),
                Some(_) => return Err(unexpected_answer()),
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
        let mut templates = session_resources::templates();
        let params = request.unwrap_or_default();
        let request =
            ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(params));
        match self.ask_extension(request, context).await? {
            None => {}
            Some(ServerResult::ListResourceTemplatesResult(more)) => {
                templates.extend(more.resource_templates);
            }
            Some(_) => return Err(unexpected_answer()),
        }
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri.starts_with(SESSION_URI_SCHEME) {
            let runtime = self.readable_runtime(&context)?;
            let contents = session_resources::read(&runtime, self.cursors, &request.uri)
                .await
                .map_err(|error| protocol_error(&error))?;
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        let uri = request.uri.clone();
        match self
            .ask_extension(ClientRequest::ReadResourceRequest(ReadResourceRequest::new(request)), context)
            .await?
        {
            None => {
                let shown = outlast_vocab::message::shown(&uri).into_owned();
                Err(ErrorData::resource_not_found(format!("there is no resource `{shown}` here"), None))
            }
            Some(ServerResult::ReadResourceResult(result)) => Ok(result.into()),
            Some(ServerResult::InputRequiredResult(result)) => Ok(result.into()),
            Some(_) => Err(unexpected_answer()),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let params = request.unwrap_or_default();
        let request = ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params));
        match self.ask_extension(request, context).await? {
            None => Ok(ListPromptsResult::default()),
            Some(ServerResult::ListPromptsResult(prompts)) => Ok(prompts),
            Some(_) => Err(unexpected_answer()),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match self
            .ask_extension(ClientRequest::GetPromptRequest(GetPromptRequest::new(request)), context)
            .await?
        {
            None => Err(ErrorData::invalid_params("there are no prompts here", None)),
            Some(ServerResult::GetPromptResult(prompt)) => Ok(prompt.into()),
            Some(ServerResult::InputRequiredResult(result)) => Ok(result.into()),
            Some(_) => Err(unexpected_answer()),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match self
            .ask_extension(ClientRequest::CompleteRequest(CompleteRequest::new(request)), context)
            .await?
        {
            None => Ok(CompleteResult::default()),
            Some(ServerResult::CompleteResult(result)) => Ok(result),
            Some(_) => Err(unexpected_answer()),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = ClientRequest::SetLevelRequest(SetLevelRequest::new(request));
        let answer = self.ask_extension(request, context).await?;
        answer.map(drop).ok_or_else(ErrorData::method_not_found::<SetLevelRequestMethod>)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = ClientRequest::SubscribeRequest(SubscribeRequest::new(request));
        let answer = self.ask_extension(request, context).await?;
        answer.map(drop).ok_or_else(ErrorData::method_not_found::<SubscribeRequestMethod>)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(request));
        let answer = self.ask_extension(request, context).await?;
        answer.map(drop).ok_or_else(ErrorData::method_not_found::<UnsubscribeRequestMethod>)
    }
}
