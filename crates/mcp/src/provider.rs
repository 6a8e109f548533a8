//! Accepted tools of servers as the runtime sees them.
use crate::content;
use crate::flight::{Flight, Flights, Next};
use crate::form::{Form, Unfit};
use crate::link::{Link, READ};
use crate::pins::{Definition, Pins, look};
use crate::process::{Http, Process, Streams};
use outlast_ports::Answer;
use outlast_ports::environment::without_variables;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, Probe, Ran, ToolProvider, failed};
use outlast_vocab::message::ToolName;
use outlast_vocab::policy::Deed;
use outlast_vocab::tool::{Contract, EffectClass, Manifest, PreparedCall, Scheduling, Sinks, Undo};
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

/// How often a user is asked the same again when the answer does not fit.
const ASKED_AGAIN: usize = 3;

/// Under which name a server finds the id of a call.
const CALL: &str = "outlast/call";

/// The longest name of a server in bytes.
const NAME_BYTES: usize = 24;

/// A server: what it is called here, how it is reached, what its operator says of it.
#[derive(Clone, Debug)]
pub struct Server {
    /// The first part of its tools' names.
    pub name: String,
    /// How it is reached.
    pub way: Way,
    /// What its operator says of it.
    pub settings: Settings,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// As a process of our own.
    Process(Process),
    /// Over HTTP.
    Http(Http),
    /// Over streams within this program.
    Streams(Streams),
}

impl Way {
    /// What a call over it means to a policy.
    fn deeds(&self) -> Vec<Deed> {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let secret = |name: &String| Deed::Secret { name: name.clone() };
        match self {
            Self::Process(Process { program, args, passed_on, launcher, .. }) => {
                let (program, args) = (text(program), args.iter().map(text).collect());
                let starts = Deed::Process { program, args, sandboxed: launcher.is_some() };
                std::iter::once(starts).chain(passed_on.iter().map(secret)).collect()
            }
            Self::Http(Http { url, bearer, .. }) => {
                request(url).into_iter().chain(bearer.iter().map(secret)).collect()
            }
            Self::Streams(_) => Vec::new(),
        }
    }

    /// Variables of our environment whose values the server knows.
    pub(crate) fn variables(&self) -> &[String] {
        match self {
            Self::Process(process) => &process.passed_on,
            Self::Http(http) => http.bearer.as_slice(),
            Self::Streams(_) => &[],
        }
    }
}

/// A request to a server as a policy sees it. A URL that is none reaches nothing.
fn request(url: &str) -> Option<Deed> {
    let url: reqwest::Url = url.parse().ok()?;
    Some(Deed::Egress {
        scheme: url.scheme().to_owned(),
        host: url.host_str().unwrap_or_default().to_owned(),
        port: url.port_or_known_default().unwrap_or_default(),
        method: "POST".to_owned(),
        path: url.path().to_owned(),
    })
}

impl fmt::Display for Way {
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

/// What an operator says of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Only these tools; all that were accepted when absent.
    pub only: Option<Vec<String>>,
    /// What may happen to interrupted calls of a tool. At most once when nobody says.
    pub classes: BTreeMap<String, EffectClass>,
    /// Whether what the server claims of its tools is believed.
    pub trust_annotations: bool,
    /// Whether the definitions that were accepted can be trusted: somebody has read them. Otherwise they are untrusted text that
    /// every model with these tools has read.
    pub trust_definitions: bool,
    /// What matters of calls of a tool, and what of its results can be trusted, by tool.
    pub flows: BTreeMap<String, ToolFlow>,
    /// Whether the server may ask the user in the middle of a call.
    pub elicitation: bool,
    /// How long a call may take.
    pub deadline: Option<Duration>,
    /// The fingerprint of how it is reached, so that a server elsewhere is not the one that somebody approved a call of.
    pub made_of: Option<Hash>,
}

/// What an operator says of how data flows through a tool of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFlow {
    /// What matters of a call after untrusted text was read. The call itself if it changes the world, when nobody says.
    pub sinks: Option<Sinks>,
    /// Whether its results and its definition can be trusted.
    pub trusted: bool,
    /// Whether its arguments leave this machine.
    pub egress: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            only: None,
            classes: BTreeMap::new(),
            trust_annotations: false,
            trust_definitions: false,
            flows: BTreeMap::new(),
            elicitation: true,
            deadline: None,
            made_of: None,
        }
    }
}

impl Settings {
    fn class(&self, definition: &Definition) -> EffectClass {
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

    fn contract(&self, server: &str, definition: &Definition) -> Result<Contract, Error> {
        let class = self.class(definition);
        let asks = self.elicitation && !definition.is_ours();
        let flow = self.flows.get(&definition.name).cloned().unwrap_or_default();
        let is_server_text = !self.trust_definitions && !definition.is_ours();
        let said = definition.description.as_ref().or(definition.title.as_ref());
        Ok(Contract {
            output: definition.output.clone().map(Value::Object),
            class,
            deadline: self.deadline,
            scheduling: if asks { Scheduling::Keyed(format!("mcp/{server}")) } else { Scheduling::Parallel },
            durable: asks,
            approval: class != EffectClass::Pure,
            sinks: flow.sinks,
            trusted: flow.trusted,
            egress: flow.egress,
            server: is_server_text.then(|| server.to_owned()),
            made_of: self.made_of,
            ..Contract::new(
                definition.tool_name(server)?,
                said.unwrap_or(&definition.name).clone(),
                Value::Object(definition.input.clone()),
            )
        })
    }
}

/// The accepted tools of some servers. Nothing is connected until a tool is called.
pub struct McpTools {
    servers: Vec<Served>,
    tools: BTreeMap<ToolName, Known>,
}

/// A tool that was accepted.
struct Known {
    contract: Contract,
    /// The place of its server.
    server: usize,
    definition: Definition,
}

struct Served {
    server: Server,
    pins: Pins,
    link: Mutex<Option<Arc<Link>>>,
    flights: Arc<Flights>,
    /// For the one call that a server which may ask works on.
    floor: Arc<Semaphore>,
    /// Another in every process that ever was.
    life: String,
}

impl McpTools {
    /// The tools of these servers that were accepted. A server of which nothing was accepted is refused, and so are names
    /// that look alike.
    pub fn new(servers: Vec<Server>, pins: &Pins) -> Result<Self, Error> {
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
            if let Some(other) = looks.insert(look(name), name.clone()) {
                return Err(Error::new(
                    Kind::ConfigInvalid,
                    format!("the servers `{name}` and `{other}` look alike"),
                ));
            }
            let wanted = |definition: &&Definition| {
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
                let known = Known { contract, server: served.len(), definition: definition.clone() };
                tools.insert(known.contract.name.clone(), known);
            }
            if tools.len() == before {
                let detail =
                    format!("no tool of the MCP server `{name}` was accepted; `outlast mcp accept {name}`");
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            let life = format!("{}-{:?}", std::process::id(), std::time::SystemTime::now());
            served.push(Served {
                server,
                pins: pins.clone(),
                link: Mutex::default(),
                flights: Arc::default(),
                floor: Arc::new(Semaphore::new(1)),
                life,
            });
        }
        Ok(Self { servers: served, tools })
    }

    /// Calls are recorded as sent by a process of this name, which no other may ever have had. Without it, it is the
    /// process's number and when it began.
    #[must_use]
    pub fn of_process(mut self, life: &str) -> Self {
        self.servers.iter_mut().for_each(|served| life.clone_into(&mut served.life));
        self
    }

    fn find(&self, tool: &ToolName) -> Result<(&Served, &Definition), Error> {
        let known = self.tools.get(tool).ok_or_else(|| {
            Error::new(Kind::ToolUnknown, format!("no tool of an MCP server is called `{tool}`"))
        })?;
        Ok((&self.servers[known.server], &known.definition))
    }
}

impl ToolProvider for McpTools {
    fn manifests(&self) -> Vec<Manifest> {
        self.tools.values().map(|known| known.contract.manifest()).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&Contract> {
        self.tools.get(tool).map(|known| &known.contract)
    }

    fn prepare<'a>(&'a self, _: SessionId, tool: &'a ToolName, _: &'a Value) -> Answer<'a, Option<Value>> {
        Box::pin(ready(self.find(tool).map(|_| None)))
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> Answer<'a, Ran> {
        Box::pin(async move {
            let (served, definition) = self.find(&prepared.tool)?;
            let scope = scope.as_ref();
            let result = if definition.is_ours() {
                served.read(&prepared.arguments, scope).await
            } else {
                served.run(&definition.name, prepared, &call, scope).await
            };
            result.map(Ran::Done)
        })
    }

    /// A server cannot be asked what became of a call.
    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> Answer<'a, Probe> {
        Box::pin(ready(self.find(&prepared.tool).map(|_| Probe::CannotTell)))
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<Undo> {
        self.contract(&prepared.tool)?.undo(result)
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, _: &'a Value) -> Answer<'a, Option<String>> {
        Box::pin(ready(self.find(tool).map(|_| None)))
    }
}

impl Served {
    async fn run(
        &self,
        tool: &str,
        prepared: &PreparedCall,
        call: &Call,
        scope: &dyn CallScope,
    ) -> Result<Value, Error> {
        let flight = match self.flights.find(call.id) {
            Some(flight) => flight,
            None => self.send(tool, prepared, call, scope).await?,
        };
        let _held = self.flights.held(call.id);
        let mut questions = 0;
        loop {
            match flight.next(questions).await {
                Next::Landed(result) => return self.landed(result, scope),
                Next::Asks(form) => {
                    let answer = self.ask(questions, &form, scope).await?;
                    if flight.waits_for(questions) {
                        flight.answer(questions, answer, self.take_the_floor().await?);
                    }
                    questions += 1;
                }
            }
        }
    }

    /// Sends a call off, unless it was sent by a process that is gone and must not be sent again.
    async fn send(
        &self,
        tool: &str,
        prepared: &PreparedCall,
        call: &Call,
        scope: &dyn CallScope,
    ) -> Result<Arc<Flight>, Error> {
        self.permitted(scope).await?;
        let link = self.link().await?;
        link.check(tool)?;
        let Value::Object(arguments) = prepared.arguments.clone() else {
            return Err(Error::new(Kind::ToolArgsInvalid, "expected an object as arguments"));
        };
        let mut floor = None;
        if self.server.settings.elicitation {
            floor = Some(self.take_the_floor().await?);
            // A question parks the turn, and the call runs again from here: it must know whether it was sent before.
            let life = Value::from(self.life.as_str());
            let sent = scope.step("sent", Value::Null, Box::pin(ready(Ok(life.clone())))).await?;
            let lost = sent != life || self.flights.was_begun(call.id);
            if lost && !prepared.class.may_repeat() {
                let name = &self.server.name;
                return Err(failed(format!(
                    "the MCP server `{name}` waited for an answer when the program ended, or for too long; nobody knows \
                     what became of the call"
                )));
            }
        }
        let flight = Arc::new(Flight::with(floor));
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        params.meta = Some(named(call.id));
        let landing = flight.clone();
        let work = tokio::spawn(async move {
            let result = link.call(params, &landing).await;
            landing.land(result);
        });
        self.flights.begin(call.id, flight.clone(), work.abort_handle());
        Ok(flight)
    }

    /// Waits until the server works on no other call.
    async fn take_the_floor(&self) -> Result<OwnedSemaphorePermit, Error> {
        let floor = self.floor.clone().acquire_owned().await;
        floor.map_err(|_| Error::new(Kind::Internal, "the floor of a server is never closed"))
    }

    /// Reads a resource, or lists what there is to read.
    async fn read(&self, arguments: &Value, scope: &dyn CallScope) -> Result<Value, Error> {
        self.permitted(scope).await?;
        let link = self.link().await?;
        link.check(READ)?;
        match arguments.get("uri").and_then(Value::as_str) {
            Some(uri) => {
                let contents = link.bounded_by_caller(link.contents(uri)).await?;
                content::resource(&self.server.name, &contents, scope)
            }
            None => link.bounded_by_caller(link.directory()).await.map(Value::from),
        }
    }

    /// Asks the policy about what a call needs: the server's program or a request to it, and what proves who we are. A server that
    /// runs for one agent is not open to another, nor to a turn that lets less be reached.
    async fn permitted(&self, scope: &dyn CallScope) -> Result<(), Error> {
        if let Way::Http(Http { within, .. }) = &self.server.way {
            within.check(&scope.network()?)?;
        }
        for deed in self.server.way.deeds() {
            scope.permit(deed).await?;
        }
        Ok(())
    }

    /// The connection, made anew if the server is gone.
    async fn link(&self) -> Result<Arc<Link>, Error> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_gone()) {
            return Ok(link.clone());
        }
        // Nothing happened yet, so this may be tried again.
        let new = Link::open(&self.server, &self.pins).await;
        let new = Arc::new(new.map_err(|error| Error::new(Kind::ToolUnavailable, error.detail()))?);
        *link = Some(new.clone());
        Ok(new)
    }

    /// Asks the user what the server wants to know. Each question is recorded, then waited for: the turn parks.
    async fn ask(&self, number: usize, form: &Form, scope: &dyn CallScope) -> Result<ElicitResult, Error> {
        let mut content = Map::new();
        for index in 0..form.questions() {
            let mut unfit: Option<Unfit> = None;
            for again in 0..=ASKED_AGAIN {
                if again == ASKED_AGAIN {
                    return Ok(ElicitResult::new(ElicitationAction::Decline));
                }
                let name = format!("ask-{number}-{index}-{again}");
                let question = form.question(&self.server.name, index, unfit.as_ref());
                scope.step(&name, Value::Null, Box::pin(ready(Ok(question)))).await?;
                let answer = match scope.event(&name, None).await? {
                    // Whoever knows the form may fill in all of it at once.
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

    fn landed(
        &self,
        result: Result<CallToolResult, ServiceError>,
        scope: &dyn CallScope,
    ) -> Result<Value, Error> {
        let name = &self.server.name;
        // The server may echo a secret that it was given.
        let redacted = |text: &str| without_variables(text, self.server.way.variables());
        match result {
            Ok(result) => content::result(name, result, scope)
                .map_err(|error| Error::new(error.kind(), redacted(error.detail()))),
            Err(ServiceError::McpError(error)) => {
                Err(failed(format!("the MCP server `{name}` refuses: {}", redacted(&error.message))))
            }
            // It was sent: nobody knows how far it came, so it is not tried again.
            Err(cause) => {
                let cause = redacted(&cause.to_string());
                Err(failed(format!("the MCP server `{name}` broke off in the middle of the call: {cause}")))
            }
        }
    }
}

/// What a server is told of a call beside its arguments: a name that is the same whenever the call is made.
fn named(call: CallId) -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    meta.0.insert(CALL.to_owned(), Value::from(call.to_string()));
    meta
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition() -> Definition {
        let input = json!({ "type": "object", "additionalProperties": false, "properties": { "to": {} } });
        serde_json::from_value(json!({ "name": "send", "description": "Sends.", "input": input })).unwrap()
    }

    #[test]
    fn operator_says_how_data_flows_through_a_tool() {
        let said = Settings::default().contract("crm", &definition()).unwrap();
        assert_eq!((said.sinks, said.trusted, said.egress), (None, false, false));
        assert_eq!(said.server.as_deref(), Some("crm"));
        let sinks = Some(Sinks::Arguments(vec!["/to".to_owned()]));
        let flow = ToolFlow { sinks: sinks.clone(), trusted: true, egress: true };
        let flows = [("send".to_owned(), flow)].into();
        let settings = Settings { flows, trust_definitions: true, ..Settings::default() };
        let said = settings.contract("crm", &definition()).unwrap();
        assert_eq!((said.sinks, said.trusted, said.egress, said.server), (sinks, true, true, None));
    }
}
