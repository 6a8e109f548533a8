//! A connection to a server: its listings, calls to it, and its questions.
mod server_listing;

pub(crate) use server_listing::READ_RESOURCE;
pub use server_listing::{PromptLine, ServerListing};

use crate::elicitation::ElicitationForm;
use crate::in_flight::InFlightCall;
use crate::lock;
use crate::pins::{PinChange, PinnedDefinitions, ToolDefinition};
use crate::provider::{McpServerSpec, ServerTransport};
use crate::transport::{HttpTransport, ServerProcess};
use outlast_ports::environment::redact_variables;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, Implementation,
};
use rmcp::service::{
    NotificationContext, Peer, RequestContext, RoleClient, RunningService, ServiceError, ServiceExt,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use server_listing::all_tools;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// The timeout for a server to start and to list its tools.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a server's question waits for an answer before its call is aborted.
const QUESTION_TIMEOUT: Duration = Duration::from_hours(1);

/// An open connection to a server.
pub struct McpConnection {
    service: RunningService<RoleClient, ServerMessageHandler>,
    shared: Arc<ConnectionState>,
    process: Option<ServerProcess>,
    /// Environment variables whose values the server knows.
    variables: Vec<String>,
}

/// The state shared by the message handler and the callers.
struct ConnectionState {
    server: String,
    asks_questions: bool,
    accepted: Vec<ToolDefinition>,
    /// Tools that differ from their pinned definition, and how.
    disabled: Mutex<BTreeMap<String, &'static str>>,
    calls: Mutex<Vec<Weak<InFlightCall>>>,
}

impl McpConnection {
    /// Connects to a server and compares its definitions with the pins.
    pub async fn open(server: &McpServerSpec, pins: &PinnedDefinitions) -> Result<Self, Error> {
        let accepted = pins.of(&server.name).cloned().collect();
        let shared = Arc::new(ConnectionState::new(&server.name, server.settings.elicitation, accepted));
        let link = with_timeout(&server.name, Self::connect(server, shared)).await?;
        link.check_pins().await?;
        Ok(link)
    }

    /// Connects over two streams, without pins.
    pub async fn over<R, W>(name: &str, reader: R, writer: W) -> Result<Self, Error>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(ConnectionState::new(name, true, Vec::new()));
        let served = async {
            ServerMessageHandler(shared.clone())
                .serve((reader, writer))
                .await
                .map_err(|cause| unavailable(name, &cause.to_string()))
        };
        let service = with_timeout(name, served).await?;
        Ok(Self { service, shared, process: None, variables: Vec::new() })
    }

    async fn connect(server: &McpServerSpec, shared: Arc<ConnectionState>) -> Result<Self, Error> {
        let handler = ServerMessageHandler(shared.clone());
        let variables = server.transport.variables().to_vec();
        let (service, process) = match &server.transport {
            ServerTransport::Process(process) => {
                let (running, ends) = process.start()?;
                let Ok(service) = handler.serve(ends).await else {
                    let complained = running.drain_stderr().await;
                    let silent = "it ended before it answered, or does not speak MCP";
                    let why = if complained.is_empty() { silent } else { &complained };
                    return Err(unavailable(&server.name, why));
                };
                (service, Some(running))
            }
            ServerTransport::Http(HttpTransport { url, client, bearer, .. }) => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                if let Some(name) = bearer {
                    let token = std::env::var(name).map_err(|_| {
                        let why = format!(
                            "the environment variable `{name}`, which contains the credentials, is not set"
                        );
                        unavailable(&server.name, &why)
                    })?;
                    config = config.auth_header(token);
                }
                let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
                let service = handler.serve(transport).await;
                let service = service.map_err(|cause| {
                    unavailable(&server.name, &redact_variables(&innermost(&cause), &variables))
                })?;
                (service, None)
            }
            ServerTransport::Streams(streams) => {
                let service = handler.serve(tokio::io::split(streams.connect())).await;
                let service = service.map_err(|cause| unavailable(&server.name, &cause.to_string()))?;
                (service, None)
            }
        };
        Ok(Self { service, shared, process, variables })
    }

    async fn tools(&self) -> Result<Vec<ToolDefinition>, Error> {
        self.with_request_timeout(all_tools(self.service.peer())).await
    }

    async fn with_request_timeout<T>(
        &self,
        asked: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, Error> {
        with_timeout(&self.shared.server, async { asked.await.map_err(|cause| self.failed(&cause)) }).await
    }

    fn failed(&self, cause: &ServiceError) -> Error {
        let complained =
            self.process.as_ref().map(ServerProcess::stderr_tail).filter(|text| !text.is_empty());
        let why = complained.map_or_else(|| cause.to_string(), |text| format!("{cause}; it says: {text}"));
        unavailable(&self.shared.server, &self.redacted(&why))
    }

    /// Returns the server's text with the values of passed secrets redacted.
    fn redacted(&self, text: &str) -> String {
        redact_variables(text, &self.variables)
    }

    async fn check_pins(&self) -> Result<(), Error> {
        let now = self.tools().await?;
        self.shared.check_pins(&now);
        Ok(())
    }

    /// Returns whether the server is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Returns an error for a tool that differs from its pinned definition.
    pub(crate) fn check(&self, tool: &str) -> Result<(), Error> {
        let Some(how) = self.shared.disabled().get(tool).copied() else { return Ok(()) };
        let server = &self.shared.server;
        let detail = format!(
            "`{server}.{tool}` {how} since it was accepted; review it with `outlast mcp test {server}`, then \
             `outlast mcp accept {server}`"
        );
        Err(Error::new(Kind::McpChanged, detail))
    }

    /// Sends a call. The server's questions about it go to the flight.
    pub(crate) async fn call(
        &self,
        call: CallToolRequestParams,
        flight: &Arc<InFlightCall>,
    ) -> Result<CallToolResult, ServiceError> {
        self.shared.calls().push(Arc::downgrade(flight));
        let result = self.service.call_tool(call).await;
        self.shared.calls().retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(flight)));
        result
    }
}

impl ConnectionState {
    fn new(server: &str, asks_questions: bool, accepted: Vec<ToolDefinition>) -> Self {
        Self {
            server: server.to_owned(),
            asks_questions,
            accepted,
            disabled: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    fn disabled(&self) -> MutexGuard<'_, BTreeMap<String, &'static str>> {
        lock(&self.disabled)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Weak<InFlightCall>>> {
        lock(&self.calls)
    }

    fn check_pins(&self, now: &[ToolDefinition]) {
        let mut pins = PinnedDefinitions::default();
        // Pinned definitions were validated when they were accepted.
        let _same = pins.accept(&self.server, self.accepted.clone());
        let differs = pins.changes(&self.server, now).into_iter().filter_map(|change| match change {
            PinChange::New(_) => None,
            PinChange::Changed { now, .. } => Some((now.name, "has changed")),
            PinChange::Gone(gone) => Some((gone.name, "is gone")),
        });
        *self.disabled() = differs.collect();
    }

    /// Returns the call that the server is working on. A call with several open questions no longer holds the floor; it
    /// is then found only if it is the only call.
    fn active_call(&self) -> Option<Arc<InFlightCall>> {
        let mut flying = self.calls();
        flying.retain(|flight| flight.strong_count() > 0);
        let flights: Vec<Arc<InFlightCall>> = flying.iter().filter_map(Weak::upgrade).collect();
        match flights.as_slice() {
            [only] => Some(only.clone()),
            several => several.iter().find(|flight| flight.is_active()).cloned(),
        }
    }
}

/// Handles the messages that a server sends on its own initiative.
struct ServerMessageHandler(Arc<ConnectionState>);

impl ClientHandler for ServerMessageHandler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.0.asks_questions.then(ElicitationCapability::default);
        ClientConfig::new(capabilities, Implementation::new("outlast", env!("CARGO_PKG_VERSION")))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        let declined = ElicitResult::new(ElicitationAction::Decline);
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            return Ok(declined);
        };
        let schema = serde_json::to_value(requested_schema).unwrap_or_default();
        let (Some(form), Some(flight)) = (ElicitationForm::read(&message, &schema), self.0.active_call())
        else {
            return Ok(declined);
        };
        let answered = flight.add_question(form);
        let asking = Arc::downgrade(&flight);
        drop(flight);
        match tokio::time::timeout(QUESTION_TIMEOUT, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Ok(ElicitResult::new(ElicitationAction::Cancel)),
            Err(_) => {
                // Otherwise this call would run beside the one that holds the floor.
                if let Some(flight) = asking.upgrade() {
                    flight.abort_unanswered();
                }
                Ok(ElicitResult::new(ElicitationAction::Cancel))
            }
        }
    }

    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        let peer: Peer<RoleClient> = context.peer;
        let shared = self.0.clone();
        // Messages are handled in sequence, so a request from here would wait for itself.
        tokio::spawn(async move {
            let now = match tokio::time::timeout(START_TIMEOUT, all_tools(&peer)).await {
                Ok(Ok(tools)) => tools,
                // Definitions that cannot be listed cannot be compared with the pins, so all tools are disabled.
                Ok(Err(_)) | Err(_) => Vec::new(),
            };
            shared.check_pins(&now);
        });
    }
}

/// Awaits an answer of the server with a timeout.
async fn with_timeout<T>(server: &str, said: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    // Boxed because the client's future is large.
    let said = tokio::time::timeout(START_TIMEOUT, Box::pin(said)).await;
    said.unwrap_or_else(|_| Err(unavailable(server, "it did not answer in time")))
}

pub(crate) fn unavailable(server: &str, why: &str) -> Error {
    Error::new(Kind::McpUnavailable, format!("the MCP server `{server}` is not available: {}", shown(why)))
}

/// Returns the root cause of an error. The outer errors add no information.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
