//! A connection to a server: its listings, calls to it, and its questions.
mod offers;

pub(crate) use offers::READ;
pub use offers::{Line, Listing};

use crate::flight::Flight;
use crate::form::Form;
use crate::lock;
use crate::pins::{Change, Definition, Pins};
use crate::process::{Http, Running};
use crate::provider::{Server, Way};
use offers::all_tools;
use outlast_ports::environment::without_variables;
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
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// The timeout for a server to start and to list its tools.
const START: Duration = Duration::from_secs(20);

/// How long a server's question waits for an answer before its call is aborted.
const QUESTION: Duration = Duration::from_hours(1);

/// An open connection to a server.
pub struct Link {
    service: RunningService<RoleClient, Handler>,
    shared: Arc<Shared>,
    process: Option<Running>,
    /// Environment variables whose values the server knows.
    variables: Vec<String>,
}

/// The state shared by the message handler and the callers.
struct Shared {
    server: String,
    asks: bool,
    accepted: Vec<Definition>,
    /// Tools that differ from their pinned definition, and how.
    disabled: Mutex<BTreeMap<String, &'static str>>,
    flying: Mutex<Vec<Weak<Flight>>>,
}

impl Link {
    /// Connects to a server and compares its definitions with the pins.
    pub async fn open(server: &Server, pins: &Pins) -> Result<Self, Error> {
        let accepted = pins.of(&server.name).cloned().collect();
        let shared = Arc::new(Shared::new(&server.name, server.settings.elicitation, accepted));
        let link = in_time(&server.name, Self::connect(server, &shared)).await?;
        link.hold_to_pins().await?;
        Ok(link)
    }

    /// Connects over two streams, without pins.
    pub async fn over<R, W>(name: &str, streams: (R, W)) -> Result<Self, Error>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared::new(name, true, Vec::new()));
        let served = async {
            Handler(shared.clone())
                .serve(streams)
                .await
                .map_err(|cause| unavailable(name, &cause.to_string()))
        };
        let service = in_time(name, served).await?;
        Ok(Self { service, shared, process: None, variables: Vec::new() })
    }

    async fn connect(server: &Server, shared: &Arc<Shared>) -> Result<Self, Error> {
        let handler = Handler(shared.clone());
        let variables = server.way.variables().to_vec();
        match &server.way {
            Way::Process(process) => {
                let (running, ends) = process.start()?;
                let Ok(service) = handler.serve(ends).await else {
                    let complained = running.last_words().await;
                    let silent = "it ended before it answered, or does not speak MCP";
                    let why = if complained.is_empty() { silent } else { &complained };
                    return Err(unavailable(&server.name, why));
                };
                Ok(Self { service, shared: shared.clone(), process: Some(running), variables })
            }
            Way::Http(Http { url, client, bearer, .. }) => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                if let Some(name) = bearer {
                    let token = std::env::var(name).map_err(|_| {
                        let why =
                            format!("the environment has no variable `{name}`, which proves who we are");
                        unavailable(&server.name, &why)
                    })?;
                    config = config.auth_header(token);
                }
                let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
                let service = handler.serve(transport).await;
                let service = service.map_err(|cause| {
                    unavailable(&server.name, &without_variables(&innermost(&cause), &variables))
                })?;
                Ok(Self { service, shared: shared.clone(), process: None, variables })
            }
            Way::Streams(streams) => {
                let service = handler.serve(tokio::io::split(streams.connect())).await;
                let service = service.map_err(|cause| unavailable(&server.name, &cause.to_string()))?;
                Ok(Self { service, shared: shared.clone(), process: None, variables })
            }
        }
    }

    async fn tools(&self) -> Result<Vec<Definition>, Error> {
        self.bounded(all_tools(self.service.peer())).await
    }

    async fn bounded<T>(&self, asked: impl Future<Output = Result<T, ServiceError>>) -> Result<T, Error> {
        in_time(&self.shared.server, async { asked.await.map_err(|cause| self.failed(&cause)) }).await
    }

    fn failed(&self, cause: &ServiceError) -> Error {
        let complained = self.process.as_ref().map(Running::complained).filter(|text| !text.is_empty());
        let why = complained.map_or_else(|| cause.to_string(), |text| format!("{cause}; it says: {text}"));
        unavailable(&self.shared.server, &self.redacted(&why))
    }

    /// Returns the server's text with the values of passed secrets redacted.
    fn redacted(&self, text: &str) -> String {
        without_variables(text, &self.variables)
    }

    async fn hold_to_pins(&self) -> Result<(), Error> {
        let now = self.tools().await?;
        self.shared.hold_to_pins(&now);
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
            "`{server}.{tool}` {how} since it was accepted; look at it with `outlast mcp test {server}`, then \
             `outlast mcp accept {server}`"
        );
        Err(Error::new(Kind::McpChanged, detail))
    }

    /// Sends a call. The server's questions about it go to the flight.
    pub(crate) async fn call(
        &self,
        call: CallToolRequestParams,
        flight: &Arc<Flight>,
    ) -> Result<CallToolResult, ServiceError> {
        self.shared.flying().push(Arc::downgrade(flight));
        let result = self.service.call_tool(call).await;
        self.shared.flying().retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(flight)));
        result
    }
}

impl Shared {
    fn new(server: &str, asks: bool, accepted: Vec<Definition>) -> Self {
        Self {
            server: server.to_owned(),
            asks,
            accepted,
            disabled: Mutex::default(),
            flying: Mutex::default(),
        }
    }

    fn disabled(&self) -> MutexGuard<'_, BTreeMap<String, &'static str>> {
        lock(&self.disabled)
    }

    fn flying(&self) -> MutexGuard<'_, Vec<Weak<Flight>>> {
        lock(&self.flying)
    }

    fn hold_to_pins(&self, now: &[Definition]) {
        let mut pins = Pins::default();
        // Pinned definitions were validated when they were accepted.
        let _same = pins.accept(&self.server, self.accepted.clone());
        let differs = pins.changes(&self.server, now).into_iter().filter_map(|change| match change {
            Change::New(_) => None,
            Change::Changed { now, .. } => Some((now.name, "has changed")),
            Change::Gone(gone) => Some((gone.name, "is gone")),
        });
        *self.disabled() = differs.collect();
    }

    /// Returns the call that the server is working on. A call with several open questions no longer holds the floor; it
    /// is then found only if it is the only call.
    fn asking(&self) -> Option<Arc<Flight>> {
        let mut flying = self.flying();
        flying.retain(|flight| flight.strong_count() > 0);
        let flights: Vec<Arc<Flight>> = flying.iter().filter_map(Weak::upgrade).collect();
        match flights.as_slice() {
            [only] => Some(only.clone()),
            several => several.iter().find(|flight| flight.has_the_floor()).cloned(),
        }
    }
}

/// Handles the messages that a server sends on its own initiative.
struct Handler(Arc<Shared>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.0.asks.then(ElicitationCapability::default);
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
        let (Some(form), Some(flight)) = (Form::read(&message, &schema), self.0.asking()) else {
            return Ok(declined);
        };
        let answered = flight.ask(form);
        let asking = Arc::downgrade(&flight);
        drop(flight);
        match tokio::time::timeout(QUESTION, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Ok(ElicitResult::new(ElicitationAction::Cancel)),
            Err(_) => {
                // Otherwise this call would run beside the one that holds the floor.
                if let Some(flight) = asking.upgrade() {
                    flight.give_up();
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
            let now = match tokio::time::timeout(START, all_tools(&peer)).await {
                Ok(Ok(tools)) => tools,
                // Definitions that cannot be listed cannot be compared with the pins, so all tools are disabled.
                Ok(Err(_)) | Err(_) => Vec::new(),
            };
            shared.hold_to_pins(&now);
        });
    }
}

/// Awaits an answer of the server with a timeout.
async fn in_time<T>(server: &str, said: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    // Boxed because the client's future is large.
    let said = tokio::time::timeout(START, Box::pin(said)).await;
    said.unwrap_or_else(|_| Err(unavailable(server, "it did not answer in time")))
}

pub(crate) fn unavailable(server: &str, why: &str) -> Error {
    Error::new(Kind::McpUnavailable, format!("the MCP server `{server}` is not there: {}", shown(why)))
}

/// Returns the root cause of an error. The outer errors add no information.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
