//! The tool provider for the accepted tools of MCP servers.
use crate::connection::{McpConnection, READ_RESOURCE};
use crate::content;
use crate::elicitation::{ElicitationForm, InvalidAnswer};
use crate::in_flight::{InFlightCall, InFlightCalls, InFlightEvent};
use crate::pins::{PinnedDefinitions, ToolDefinition, lookalike_key};
use crate::transport::{HttpTransport, ProcessTransport, StreamTransport};
use outlast_ports::ResultFuture;
use outlast_ports::environment::redact_variables;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, ProbeResult, ToolProvider, ToolRunOutcome, failed};
use outlast_vocab::message::ToolName;
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::tool::{
    CallScheduling, CallSinks, EffectClass, PreparedCall, ToolContract, ToolManifest, UndoCall,
};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{CallId, Error, Hash, Kind, SessionId};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ElicitResult, ElicitationAction, RequestMetaObject,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// How often to ask the user again after an answer that does not match.
const INVALID_ANSWERS_MAX: usize = 3;

/// The metadata key under which a server receives the id of a call.
const CALL_META_KEY: &str = "outlast/call";

/// The maximum length of a server's name in bytes.
const NAME_BYTES: usize = 24;

/// An MCP server: its name, its connection and the operator's settings.
#[derive(Clone, Debug)]
pub struct McpServerSpec {
    /// The first part of its tools' names.
    pub name: String,
    /// How to reach it.
    pub transport: ServerTransport,
    /// The operator's settings.
    pub settings: McpServerSettings,
}

/// How to reach a server.
#[derive(Clone, Debug)]
pub enum ServerTransport {
    /// As a child process.
    Process(ProcessTransport),
    /// Over HTTP.
    Http(HttpTransport),
    /// Over streams within this program.
    Streams(StreamTransport),
}

impl ServerTransport {
    /// Returns the policy actions that a call to this server involves.
    fn policy_actions(&self) -> Vec<PolicyAction> {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let secret = |name: &String| PolicyAction::Secret { name: name.clone() };
        match self {
            Self::Process(ProcessTransport { program, args, passed_env: passed_on, launcher, .. }) => {
                let (program, args) = (text(program), args.iter().map(text).collect());
                let starts = PolicyAction::Process { program, args, sandboxed: launcher.is_some() };
                std::iter::once(starts).chain(passed_on.iter().map(secret)).collect()
            }
            Self::Http(HttpTransport { url, bearer, .. }) => {
                request(url).into_iter().chain(bearer.iter().map(secret)).collect()
            }
            Self::Streams(_) => Vec::new(),
        }
    }

    /// Returns the environment variables whose values the server knows.
    pub(crate) fn variables(&self) -> &[String] {
        match self {
            Self::Process(process) => &process.passed_env,
            Self::Http(http) => http.bearer.as_slice(),
            Self::Streams(_) => &[],
        }
    }
}

/// Describes a request to a server for the policy. An invalid URL reaches nothing.
fn request(url: &str) -> Option<PolicyAction> {
    let url: reqwest::Url = url.parse().ok()?;
    Some(PolicyAction::Egress {
        scheme: url.scheme().to_owned(),
        host: url.host_str().unwrap_or_default().to_owned(),
        port: url.port_or_known_default().unwrap_or_default(),
        method: "POST".to_owned(),
        path: url.path().to_owned(),
    })
}

impl fmt::Display for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => {
                write!(f, "{}", process.program.display())?;
                process.args.iter().try_for_each(|word| write!(f, " {}", word.display()))
            }
            Self::Http(http) => f.write_str(&http.url),
            Self::Streams(_) => f.write_str("in this program"),
        }
    }
}

/// The operator's settings for a server.
#[derive(Clone, Debug)]
pub struct McpServerSettings {
    /// The tools to use; all accepted tools if absent.
    pub only: Option<Vec<String>>,
    /// The effect class of each tool, which controls how interrupted calls recover. The default is at most once.
    pub classes: BTreeMap<String, EffectClass>,
    /// Whether to believe the server's claims about its tools.
    pub trust_annotations: bool,
    /// Whether the accepted definitions are trusted, because a person has read them. Otherwise they are untrusted text
    /// that every model with these tools has read.
    pub trust_definitions: bool,
    /// The data flow settings of each tool: sensitive arguments and trusted results.
    pub flows: BTreeMap<String, ToolFlow>,
    /// Whether the server may ask the user a question during a call.
    pub elicitation: bool,
    /// The timeout of a call.
    pub deadline: Option<Duration>,
    /// The fingerprint of the connection. A server at another place is not the one for which a call was approved.
    pub fingerprint: Option<Hash>,
}

/// The operator's settings for the data flow through a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFlow {
    /// The sensitive parts of a call after untrusted text was read. By default, the call itself if it changes anything.
    pub sinks: Option<CallSinks>,
    /// Whether its results and its definition are trusted.
    pub trusted: bool,
    /// Whether its arguments leave this machine.
    pub egress: bool,
}

impl Default for McpServerSettings {
    fn default() -> Self {
        Self {
            only: None,
            classes: BTreeMap::new(),
            trust_annotations: false,
            trust_definitions: false,
            flows: BTreeMap::new(),
            elicitation: true,
            deadline: None,
            fingerprint: None,
        }
    }
}

impl McpServerSettings {
    fn class(&self, definition: &ToolDefinition) -> EffectClass {
        if let Some(class) = self.classes.get(&definition.name) {
            return *class;
        }
        if definition.is_ours() {
            return EffectClass::Pure;
        }
        match self.trust_annotations {
            true if definition.claims("readOnlyHint") => EffectClass::Pure,
            true if definition.claims("idempotentHint") => EffectClass::Idempotent,
            _ => EffectClass::AtMostOnce,
        }
    }

    fn contract(&self, server: &str, definition: &ToolDefinition) -> Result<ToolContract, Error> {
        let class = self.class(definition);
        let asks = self.elicitation && !definition.is_ours();
        let flow = self.flows.get(&definition.name).cloned().unwrap_or_default();
        let is_server_text = !self.trust_definitions && !definition.is_ours();
        let said = definition.description.as_ref().or(definition.title.as_ref());
        Ok(ToolContract {
            output: definition.output.clone().map(Value::Object),
            class,
            deadline: self.deadline,
            scheduling: if asks {
                CallScheduling::Keyed(format!("mcp/{server}"))
            } else {
                CallScheduling::Parallel
            },
            durable: asks,
            approval: class != EffectClass::Pure,
            sinks: flow.sinks,
            trusted: flow.trusted,
            egress: flow.egress,
            server: is_server_text.then(|| server.to_owned()),
            made_of: self.fingerprint,
            ..ToolContract::new(
                definition.tool_name(server)?,
                said.unwrap_or(&definition.name).clone(),
                Value::Object(definition.input.clone()),
            )
        })
    }
}

/// The accepted tools of some servers. Connects to a server only when one of its tools is called.
pub struct McpTools {
    servers: Vec<ServerEntry>,
    tools: BTreeMap<ToolName, AcceptedTool>,
}

/// An accepted tool.
struct AcceptedTool {
    contract: ToolContract,
    /// The index of its server.
    server: usize,
    definition: ToolDefinition,
}

struct ServerEntry {
    server: McpServerSpec,
    pins: PinnedDefinitions,
    connection: Mutex<Option<Arc<McpConnection>>>,
    calls_in_flight: Arc<InFlightCalls>,
    /// Held by the current call of a server that may ask questions.
    exclusive: Arc<Semaphore>,
    /// Unique among all processes that ever ran.
    process_name: String,
}

impl McpTools {
    /// Creates a provider for the accepted tools of these servers. Returns an error for a server without accepted tools
    /// and for names that look alike.
    pub fn new(servers: Vec<McpServerSpec>, pins: &PinnedDefinitions) -> Result<Self, Error> {
        let (mut served, mut tools, mut looks) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for server in servers {
            let name = &server.name;
            if name.is_empty()
                || name.len() > NAME_BYTES
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
            {
                let detail = format!(
                    "expected a name of a server (letters, digits, `_`, `-`) of 1 to {NAME_BYTES} bytes, got `{name}`"
                );
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            if let Some(other) = looks.insert(lookalike_key(name), name.clone()) {
                return Err(Error::new(
                    Kind::ConfigInvalid,
                    format!("the names of the servers `{name}` and `{other}` are too similar"),
                ));
            }
            let wanted = |definition: &&ToolDefinition| {
                server.settings.only.as_ref().is_none_or(|only| only.contains(&definition.name))
            };
            let has = |tool: &str| pins.of(name).any(|definition| definition.name == tool);
            if let Some(tool) = server.settings.flows.keys().find(|tool| !has(tool)) {
                let detail = format!(
                    "`tools.{tool}` of the MCP server `{name}` names a tool that was not accepted; `outlast mcp accept {name}`"
                );
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            let before = tools.len();
            for definition in pins.of(name).filter(wanted) {
                let contract = server.settings.contract(name, definition)?;
                let known = AcceptedTool { contract, server: served.len(), definition: definition.clone() };
                tools.insert(known.contract.name.clone(), known);
            }
            if tools.len() == before {
                let detail =
                    format!("no tool of the MCP server `{name}` was accepted; `outlast mcp accept {name}`");
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            let life = format!("{}-{:?}", std::process::id(), std::time::SystemTime::now());
            served.push(ServerEntry {
                server,
                pins: pins.clone(),
                connection: Mutex::default(),
                calls_in_flight: Arc::default(),
                exclusive: Arc::new(Semaphore::new(1)),
                process_name: life,
            });
        }
        Ok(Self { servers: served, tools })
    }

    /// Sets the process name under which calls are recorded as sent. It must be unique among all processes that ever
    /// ran. The default is the process id and its start time.
    #[must_use]
    pub fn with_process_name(mut self, life: &str) -> Self {
        self.servers.iter_mut().for_each(|served| life.clone_into(&mut served.process_name));
        self
    }

    fn find(&self, tool: &ToolName) -> Result<(&ServerEntry, &ToolDefinition), Error> {
        let known = self.tools.get(tool).ok_or_else(|| {
            Error::new(Kind::ToolUnknown, format!("no tool of an MCP server is called `{tool}`"))
        })?;
        Ok((&self.servers[known.server], &known.definition))
    }
}

impl ToolProvider for McpTools {
    fn manifests(&self) -> Vec<ToolManifest> {
        self.tools.values().map(|known| known.contract.manifest()).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.tools.get(tool).map(|known| &known.contract)
    }

    fn prepare<'a>(
        &'a self,
        _: SessionId,
        tool: &'a ToolName,
        _: &'a Value,
    ) -> ResultFuture<'a, Option<Value>> {
        Box::pin(ready(self.find(tool).map(|_| None)))
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        Box::pin(async move {
            let (served, definition) = self.find(&prepared.tool)?;
            let scope = scope.as_ref();
            let result = if definition.is_ours() {
                served.read(&prepared.arguments, scope).await
            } else {
                served.run(&definition.name, prepared, &call, scope).await
            };
            result.map(ToolRunOutcome::Completed)
        })
    }

    /// MCP has no way to ask a server about an earlier call.
    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        Box::pin(ready(self.find(&prepared.tool).map(|_| ProbeResult::CannotTell)))
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<UndoCall> {
        self.contract(&prepared.tool)?.undo(result)
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, _: &'a Value) -> ResultFuture<'a, Option<String>> {
        Box::pin(ready(self.find(tool).map(|_| None)))
    }
}

impl ServerEntry {
    async fn run(
        &self,
        tool: &str,
        prepared: &PreparedCall,
        call: &Call,
        scope: &dyn CallScope,
    ) -> Result<Value, Error> {
        let flight = match self.calls_in_flight.find(call.id) {
            Some(flight) => flight,
            None => self.send(tool, prepared, call, scope).await?,
        };
        let _held = self.calls_in_flight.guard(call.id);
        let mut questions = 0;
        loop {
            match flight.next(questions).await {
                InFlightEvent::Finished(result) => return self.tool_result(result, scope),
                InFlightEvent::Question(form) => {
                    let answer = self.ask(questions, &form, scope).await?;
                    if flight.is_question_open(questions) {
                        flight.answer(questions, answer, self.acquire_exclusive().await?);
                    }
                    questions += 1;
                }
            }
        }
    }

    /// Sends a call, unless a dead process already sent it and it must not be repeated.
    async fn send(
        &self,
        tool: &str,
        prepared: &PreparedCall,
        call: &Call,
        scope: &dyn CallScope,
    ) -> Result<Arc<InFlightCall>, Error> {
        self.check_policy(scope).await?;
        let link = self.connection().await?;
        link.check(tool)?;
        let Value::Object(arguments) = prepared.arguments.clone() else {
            return Err(Error::new(Kind::ToolArgsInvalid, "expected an object as arguments"));
        };
        let mut floor = None;
        if self.server.settings.elicitation {
            floor = Some(self.acquire_exclusive().await?);
            // A question parks the turn, and the call runs again from here. It must know whether it was already sent.
            let life = self.process_name.as_str();
            let sent = scope.step("sent", Value::Null, Box::pin(ready(Ok(Value::from(life))))).await?;
            let lost = sent.as_str() != Some(life) || self.calls_in_flight.was_started(call.id);
            if lost && !prepared.class.may_repeat() {
                let name = &self.server.name;
                return Err(failed(format!(
                    "the MCP server `{name}` was waiting for an answer when the program ended, or for too long; the outcome of the call is unknown"
                )));
            }
        }
        let flight = Arc::new(InFlightCall::with(floor));
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        params.meta = Some(call_metadata(call.id));
        let landing = flight.clone();
        let work = tokio::spawn(async move {
            let result = link.call(params, &landing).await;
            landing.finish(result);
        });
        self.calls_in_flight.begin(call.id, flight.clone(), work.abort_handle());
        Ok(flight)
    }

    /// Waits until the server works on no other call.
    async fn acquire_exclusive(&self) -> Result<OwnedSemaphorePermit, Error> {
        let floor = self.exclusive.clone().acquire_owned().await;
        floor.map_err(|_| Error::new(Kind::Internal, "the floor of a server is never closed"))
    }

    /// Reads a resource, or lists the available ones.
    async fn read(&self, arguments: &Value, scope: &dyn CallScope) -> Result<Value, Error> {
        self.check_policy(scope).await?;
        let link = self.connection().await?;
        link.check(READ_RESOURCE)?;
        match arguments.get("uri").and_then(Value::as_str) {
            Some(uri) => {
                let contents = link.bounded_by_caller(link.contents(uri)).await?;
                content::resource(&self.server.name, &contents, scope)
            }
            None => link.bounded_by_caller(link.resource_directory()).await.map(Value::from),
        }
    }

    /// Asks the policy about the actions of a call: running the server's program or sending a request, and using its
    /// credentials. A server that runs for one agent is still closed to another agent, or to a turn with less network
    /// access.
    async fn check_policy(&self, scope: &dyn CallScope) -> Result<(), Error> {
        if let ServerTransport::Http(HttpTransport { network_check: within, .. }) = &self.server.transport {
            within.check(&scope.network()?)?;
        }
        for action in self.server.transport.policy_actions() {
            scope.check_action(action).await?;
        }
        Ok(())
    }

    /// Returns the connection, and reconnects if the server is gone.
    async fn connection(&self) -> Result<Arc<McpConnection>, Error> {
        let mut link = self.connection.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_gone()) {
            return Ok(link.clone());
        }
        // Nothing has happened yet, so this error allows a retry.
        let new = McpConnection::open(&self.server, &self.pins).await;
        let new = Arc::new(new.map_err(|error| Error::new(Kind::ToolUnavailable, error.detail()))?);
        *link = Some(new.clone());
        Ok(new)
    }

    /// Asks the user the server's questions. Each question is recorded before the turn parks on it.
    async fn ask(
        &self,
        number: usize,
        form: &ElicitationForm,
        scope: &dyn CallScope,
    ) -> Result<ElicitResult, Error> {
        let mut content = Map::new();
        for index in 0..form.questions() {
            let mut unfit: Option<InvalidAnswer> = None;
            for again in 0..=INVALID_ANSWERS_MAX {
                if again == INVALID_ANSWERS_MAX {
                    return Ok(ElicitResult::new(ElicitationAction::Decline));
                }
                let name = format!("ask-{number}-{index}-{again}");
                let question = form.question(&self.server.name, index, unfit.as_ref());
                scope.step(&name, Value::Null, Box::pin(ready(Ok(question)))).await?;
                let answer = match scope.event(&name, None).await? {
                    // A client that knows the form may fill in all fields at once.
                    Resolution::Ok(Value::Object(whole)) => {
                        return Ok(
                            ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(whole))
                        );
                    }
                    Resolution::Ok(answer) => answer,
                    Resolution::Err(_) => return Ok(ElicitResult::new(ElicitationAction::Decline)),
                    Resolution::Timeout | Resolution::Cancelled => {
                        return Ok(ElicitResult::new(ElicitationAction::Cancel));
                    }
                };
                match form.value(index, &answer) {
                    Ok(field) => {
                        content.extend(field);
                        break;
                    }
                    Err(why) => unfit = Some(why),
                }
            }
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content)))
    }

    fn tool_result(
        &self,
        result: Result<CallToolResult, ServiceError>,
        scope: &dyn CallScope,
    ) -> Result<Value, Error> {
        let name = &self.server.name;
        // The server may echo a secret that it was given.
        let redacted = |text: &str| redact_variables(text, self.server.transport.variables());
        match result {
            Ok(result) => content::result(name, result, scope)
                .map_err(|error| Error::new(error.kind(), redacted(error.detail()))),
            Err(ServiceError::McpError(error)) => {
                Err(failed(format!("the MCP server `{name}` refuses: {}", redacted(&error.message))))
            }
            // The call was sent and its outcome is unknown, so it is not retried.
            Err(cause) => {
                let cause = redacted(&cause.to_string());
                Err(failed(format!("the MCP server `{name}` disconnected during the call: {cause}")))
            }
        }
    }
}

/// Returns the metadata of a call: an id that is the same on every attempt.
fn call_metadata(call: CallId) -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    meta.0.insert(CALL_META_KEY.to_owned(), Value::from(call.to_string()));
    meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition() -> ToolDefinition {
        let input = json!({ "type": "object", "additionalProperties": false, "properties": { "to": {} } });
        serde_json::from_value(json!({ "name": "send", "description": "Sends.", "input": input })).unwrap()
    }

    #[test]
    fn operator_settings_define_tool_data_flow() {
        let said = McpServerSettings::default().contract("crm", &definition()).unwrap();
        assert_eq!((said.sinks, said.trusted, said.egress), (None, false, false));
        assert_eq!(said.server.as_deref(), Some("crm"));
        let sinks = Some(CallSinks::Arguments(vec!["/to".to_owned()]));
        let flow = ToolFlow { sinks: sinks.clone(), trusted: true, egress: true };
        let flows = [("send".to_owned(), flow)].into();
        let settings = McpServerSettings { flows, trust_definitions: true, ..McpServerSettings::default() };
        let said = settings.contract("crm", &definition()).unwrap();
        assert_eq!((said.sinks, said.trusted, said.egress, said.server), (sinks, true, true, None));
    }
}
