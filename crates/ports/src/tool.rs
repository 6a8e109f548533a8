//! Tools as a port: typed ones that people write ([`Tool`]), and the set of them that the runtime sees ([`ToolProvider`]).
use crate::Answer;
use crate::service::{CallScope, Needs, Nowhere, Services};
use outlast_vocab::cost::Cost;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::tool::{
    Contract, EffectClass, Manifest, PreparedCall, RetryPolicy, Scheduling, Sinks, Undo,
};
use outlast_vocab::{CallId, Error, Kind, SessionId, TurnId, canon};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The facts of one call. Services do not belong here; name them in [`Tool::Needs`].
#[derive(Clone, Debug)]
pub struct Call {
    /// The call, and its idempotency key towards the outside: the same on every attempt.
    pub id: CallId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// Which attempt this is, counted from 1 over all processes.
    pub attempt: u32,
    /// How many attempts the tool's policy allows.
    pub attempts: u32,
    /// What `prepare` worked out.
    pub payload: Option<Value>,
}

/// What a tool gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// A result.
    Done(Value),
    /// Somebody outside will finish it with the call's completion key.
    Pending,
}

/// A result from anything that fits JSON.
pub fn done(value: impl Serialize) -> Result<Ran, Error> {
    serde_json::to_value(value)
        .map(Ran::Done)
        .map_err(|cause| Error::new(Kind::ToolFailed, format!("the result does not fit JSON: {cause}")))
}

/// A failure that repeating cannot help; the model is told.
pub fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::ToolFailed, why.to_string())
}

/// What a tool knows of an interrupted at-most-once call (R3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It happened, with this result.
    Happened(ToolResult),
    /// It did not happen, and will not: it is safe to say so to the model.
    DidNotHappen,
    /// The tool cannot tell.
    CannotTell,
}

/// A tool as people write it.
pub trait Tool: Send + Sync + 'static {
    /// What a model passes.
    type Args: DeserializeOwned + JsonSchema + Send + Sync;
    /// The services it needs: one, or a tuple.
    type Needs: Needs;

    /// What it is called, what it does and how it may be run.
    fn about(&self) -> About;

    /// Does the work.
    fn run(
        &self,
        needs: Self::Needs,
        call: Call,
        args: Self::Args,
    ) -> impl Future<Output = Result<Ran, Error>> + Send;

    /// Looks at a call before it is journaled: may reject it, may work out a payload. The payload is kept in the call's
    /// record and comes back in [`Call::payload`]; what was prepared is not prepared again on replay (R6.2).
    fn prepare(
        &self,
        _session: SessionId,
        _args: &Self::Args,
    ) -> impl Future<Output = Result<Option<Value>, Error>> + Send {
        std::future::ready(Ok(None))
    }

    /// Says what a call would do, without doing it (R6.16); nothing if the tool cannot tell. Services of the call refuse
    /// whatever they are asked for.
    fn preview(
        &self,
        _needs: Self::Needs,
        _args: Self::Args,
    ) -> impl Future<Output = Result<Option<String>, Error>> + Send {
        std::future::ready(Ok(None))
    }

    /// The call that takes this one back, built from what it gave (R6.15); nothing if there is nothing to take back. It is kept
    /// with the answer and made when the turn is aborted. A tool that names one with [`About::undone_by`] need not build it.
    fn undo(&self, _args: Self::Args, _result: &Value) -> Option<Undo> {
        None
    }

    /// Finds out whether an interrupted at-most-once call happened. Must not make it happen.
    fn probe(&self, _call: CallId, _args: Self::Args) -> impl Future<Output = Result<Probe, Error>> + Send {
        std::future::ready(Ok(Probe::CannotTell))
    }
}

/// What a tool says of itself.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a promise of its own, set by a method")]
pub struct About {
    name: String,
    description: String,
    class: EffectClass,
    scheduling: Scheduling,
    retry: RetryPolicy,
    deadline: Option<Duration>,
    durable: bool,
    approval: bool,
    output: Option<Value>,
    undo: Option<String>,
    price: Option<Cost>,
    trusted: bool,
    sinks: Option<Sinks>,
    egress: bool,
}

impl About {
    /// A tool of this name. It is at-most-once until it says otherwise.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            class: EffectClass::default(),
            scheduling: Scheduling::default(),
            retry: RetryPolicy::default(),
            deadline: None,
            durable: false,
            approval: false,
            output: None,
            undo: None,
            price: None,
            trusted: false,
            sinks: None,
            egress: false,
        }
    }

    /// It changes nothing.
    #[must_use]
    pub fn pure(mut self) -> Self {
        self.class = EffectClass::Pure;
        self
    }

    /// It may be performed again with the same idempotency key.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.class = EffectClass::Idempotent;
        self
    }

    /// It writes only to the session's own stores.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.class = EffectClass::Transactional;
        self
    }

    /// Its calls are ordered like this within a batch.
    #[must_use]
    pub fn scheduled(mut self, scheduling: Scheduling) -> Self {
        self.scheduling = scheduling;
        self
    }

    /// A failure that may pass is tried again, up to this many attempts in all.
    #[must_use]
    pub fn attempts(mut self, attempts: u32, backoff: Duration) -> Self {
        self.retry = RetryPolicy { attempts, backoff };
        self
    }

    /// One attempt may take this long.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// It uses durable steps, waits or a pending completion, so it is refused on a host that keeps nothing.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Somebody should be asked before it runs. A hint for policies.
    #[must_use]
    pub fn approval(mut self) -> Self {
        self.approval = true;
        self
    }

    /// A call is taken back by this tool of the same agent, which is passed the result as its arguments.
    #[must_use]
    pub fn undone_by(mut self, tool: impl Into<String>) -> Self {
        self.undo = Some(tool.into());
        self
    }

    /// What it gives may be trusted: nobody outside has a say in it.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.trusted = true;
        self
    }

    /// These arguments matter, as JSON pointers: who, what, how much, where. The others are free text. Arguments that the type
    /// does not have are refused then. Without a word on it the call itself matters, if it changes the world.
    #[must_use]
    pub fn sinks(mut self, sinks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.sinks = Some(Sinks::Arguments(sinks.into_iter().map(Into::into).collect()));
        self
    }

    /// Its mere execution matters, whatever its arguments are: it deletes, pays or publishes.
    #[must_use]
    pub fn call_is_sink(mut self) -> Self {
        self.sinks = Some(Sinks::Call);
        self
    }

    /// Its arguments leave this machine.
    #[must_use]
    pub fn egress(mut self) -> Self {
        self.egress = true;
        self
    }

    /// One call costs this, for budgets.
    #[must_use]
    pub fn price(mut self, price: Cost) -> Self {
        self.price = Some(price);
        self
    }

    /// Its results have the form of this type.
    #[must_use]
    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.output = Some(schema_of::<T>());
        self
    }

    fn contract<A: JsonSchema>(self) -> Result<Contract, Error> {
        let mut input = schema_of::<A>();
        // What the type is called in the program is not for the model.
        if let Some(root) = input.as_object_mut() {
            root.remove("description");
        }
        if matches!(&self.sinks, Some(Sinks::Arguments(pointers)) if !pointers.is_empty()) {
            close(&mut input);
        }
        Ok(Contract {
            name: ToolName::try_from(self.name)?,
            description: self.description,
            input,
            output: self.output,
            class: self.class,
            scheduling: self.scheduling,
            retry: self.retry,
            deadline: self.deadline,
            durable: self.durable,
            approval: self.approval,
            undo: self.undo.map(ToolName::try_from).transpose()?,
            price: self.price,
            trusted: self.trusted,
            sinks: self.sinks,
            egress: self.egress,
            server: None,
            made_of: None,
        })
    }
}

/// Refuses members that a schema does not name: the type ignores them, so nothing is lost, and a sink cannot stand under another
/// name.
fn close(schema: &mut Value) {
    let Value::Object(words) = schema else { return };
    if words.contains_key("properties") && !words.contains_key("additionalProperties") {
        words.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (word, value) in words.iter_mut() {
        match (word.as_str(), value) {
            ("properties", Value::Object(members)) => members.values_mut().for_each(close),
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => schemas.iter_mut().for_each(close),
            ("items" | "additionalProperties", value) => close(value),
            _ => {}
        }
    }
}

/// The JSON Schema of a type, as models are shown it.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("$schema");
        root.remove("title");
    }
    schema
}

/// A set of tools as the runtime sees it.
pub trait ToolProvider: Send + Sync {
    /// What there is, cheaply.
    fn manifests(&self) -> Vec<Manifest>;

    /// What a call of this tool needs.
    fn contract(&self, tool: &ToolName) -> Option<&Contract>;

    /// Looks at a call before it is journaled; gives the payload that its record keeps.
    fn prepare<'a>(
        &'a self,
        session: SessionId,
        tool: &'a ToolName,
        arguments: &'a Value,
    ) -> Answer<'a, Option<Value>>;

    /// Runs a prepared call.
    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> Answer<'a, Ran>;

    /// Finds out whether an interrupted at-most-once call happened.
    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> Answer<'a, Probe>;

    /// The call that takes back a call with this result; nothing if there is nothing to take back.
    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<Undo>;

    /// Says what a call would do, without doing it; nothing if that cannot be told.
    fn preview<'a>(&'a self, tool: &'a ToolName, arguments: &'a Value) -> Answer<'a, Option<String>>;
}

/// Typed tools, bound to the services they need.
#[derive(Default)]
pub struct Toolbox {
    services: Arc<Services>,
    tools: BTreeMap<ToolName, (Contract, Box<dyn AnyTool>)>,
}

impl Toolbox {
    /// An empty box whose tools will find these services.
    pub fn new(services: Services) -> Self {
        Self { services: Arc::new(services), tools: BTreeMap::new() }
    }

    /// Adds a tool. Its name must be new and everything it needs must be granted.
    pub fn add<T: Tool>(&mut self, tool: T) -> Result<(), Error> {
        let mut contract = tool.about().contract::<T::Args>()?;
        T::Needs::check(&self.services)?;
        let means = T::Needs::made_of(&self.services);
        contract.made_of = (!means.is_empty()).then(|| canon::fingerprint(&means));
        if self.tools.contains_key(&contract.name) {
            let detail = format!("two tools are called `{}`; names must be unique", contract.name);
            return Err(Error::new(Kind::ToolDuplicate, detail));
        }
        self.tools.insert(contract.name.clone(), (contract, Box::new(tool)));
        Ok(())
    }

    fn find(&self, tool: &ToolName) -> Result<&dyn AnyTool, Error> {
        let found = self.tools.get(tool).map(|(_, tool)| tool.as_ref());
        found.ok_or_else(|| {
            let names: Vec<&str> = self.tools.keys().map(ToolName::as_str).collect();
            let detail = format!("no tool is called `{tool}`; there are: {}", names.join(", "));
            Error::new(Kind::ToolUnknown, detail)
        })
    }
}

impl ToolProvider for Toolbox {
    fn manifests(&self) -> Vec<Manifest> {
        self.tools.values().map(|(contract, _)| contract.manifest()).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&Contract> {
        self.tools.get(tool).map(|(contract, _)| contract)
    }

    fn prepare<'a>(
        &'a self,
        session: SessionId,
        tool: &'a ToolName,
        arguments: &'a Value,
    ) -> Answer<'a, Option<Value>> {
        match self.find(tool) {
            Ok(tool) => tool.prepare(session, arguments),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> Answer<'a, Ran> {
        match self.find(&prepared.tool) {
            Ok(tool) => tool.run(&self.services, prepared, call, scope),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> Answer<'a, Probe> {
        match self.find(&prepared.tool) {
            Ok(tool) => tool.probe(prepared),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<Undo> {
        let (contract, tool) = self.tools.get(&prepared.tool)?;
        tool.undo(prepared, result).or_else(|| contract.undo(result))
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, arguments: &'a Value) -> Answer<'a, Option<String>> {
        match self.find(tool) {
            Ok(tool) => tool.preview(&self.services, arguments),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// Object-safe face of [`Tool`]; the only place where a tool's futures are boxed.
trait AnyTool: Send + Sync {
    fn prepare<'a>(&'a self, session: SessionId, arguments: &'a Value) -> Answer<'a, Option<Value>>;
    fn run<'a>(
        &'a self,
        services: &'a Services,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> Answer<'a, Ran>;
    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> Answer<'a, Probe>;
    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<Undo>;
    fn preview<'a>(&'a self, services: &'a Services, arguments: &'a Value) -> Answer<'a, Option<String>>;
}

impl<T: Tool> AnyTool for T {
    fn prepare<'a>(&'a self, session: SessionId, arguments: &'a Value) -> Answer<'a, Option<Value>> {
        Box::pin(async move {
            let args = arguments_of(arguments)?;
            Tool::prepare(self, session, &args).await
        })
    }

    fn run<'a>(
        &'a self,
        services: &'a Services,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> Answer<'a, Ran> {
        Box::pin(async move {
            let needs = T::Needs::gather(services, &scope)?;
            drop(scope);
            Tool::run(self, needs, call, arguments_of(&prepared.arguments)?).await
        })
    }

    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> Answer<'a, Probe> {
        Box::pin(async move { Tool::probe(self, prepared.id, arguments_of(&prepared.arguments)?).await })
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<Undo> {
        Tool::undo(self, arguments_of(&prepared.arguments).ok()?, result)
    }

    fn preview<'a>(&'a self, services: &'a Services, arguments: &'a Value) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let scope: Arc<dyn CallScope> = Arc::new(Nowhere);
            let needs = T::Needs::gather(services, &scope)?;
            Tool::preview(self, needs, arguments_of(arguments)?).await
        })
    }
}

fn arguments_of<A: DeserializeOwned>(arguments: &Value) -> Result<A, Error> {
    A::deserialize(arguments)
        .map_err(|cause| Error::new(Kind::ToolArgsInvalid, format!("the arguments do not fit: {cause}")))
}
