//! The port for tools: typed tools that users write ([`Tool`]), and the set of tools that the runtime calls
//! ([`ToolProvider`]).
//!
//! Services that a tool needs are defined in [`crate::service`].
use crate::ResultFuture;
use crate::service::{CallScope, Needs, Services, UnavailableScope};
use outlast_vocab::cost::Cost;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::tool::{
    CallScheduling, CallSinks, EffectClass, PreparedCall, RetryPolicy, ToolContract, ToolManifest, UndoCall,
};
use outlast_vocab::{CallId, Error, Kind, SessionId, TurnId, canonical_json};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

/// The facts about one call. It contains no services; name those in [`Tool::Needs`].
#[derive(Clone, Debug)]
pub struct Call {
    /// The id of the call, and its idempotency key for external systems. It is the same for every attempt.
    pub id: CallId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The number of this attempt, starting at 1 and counted across processes.
    pub attempt: u32,
    /// The number of attempts that the tool's retry policy allows.
    pub attempts: u32,
    /// The payload that `prepare` returned.
    pub payload: Option<Value>,
}

/// The outcome of a tool run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolRunOutcome {
    /// The tool returned a result.
    Completed(Value),
    /// An external system completes the call later, with the call's completion key.
    Pending,
}

/// Converts a serialisable value to a result.
pub fn done(value: impl Serialize) -> Result<ToolRunOutcome, Error> {
    serde_json::to_value(value).map(ToolRunOutcome::Completed).map_err(|cause| {
        Error::new(Kind::ToolFailed, format!("the result cannot be written as JSON: {cause}"))
    })
}

/// Creates a permanent failure that is reported to the model. It is not retried.
pub fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::ToolFailed, why.to_string())
}

/// What a tool knows about an interrupted at-most-once call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The call happened, with this result.
    Happened(ToolResult),
    /// The call did not happen and never will. The model can be told so.
    DidNotHappen,
    /// The tool cannot find out.
    CannotTell,
}

/// A tool, as users write it.
///
/// Most tools are functions with `#[tool]`, which implements this trait. Implement it yourself for a tool that has its
/// own state, or that can prepare, preview, undo or probe a call.
///
/// # Example
///
/// ```
/// # mod outlast { pub use {outlast_ports::tool, outlast_vocab as vocab, outlast_vocab::Error}; }
/// use outlast::Error;
/// use outlast::tool::{Call, ProbeResult, Tool, ToolRunOutcome, ToolSpec, done};
/// use outlast::vocab::CallId;
/// use outlast::vocab::message::ToolResult;
/// use std::collections::BTreeSet;
/// use std::sync::Mutex;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Parcel {
///     /// What the customer bought.
///     item: String,
/// }
///
/// /// Sends parcels, at most once each, and remembers the calls that sent one.
/// #[derive(Default)]
/// struct Ship(Mutex<BTreeSet<CallId>>);
///
/// impl Tool for Ship {
///     type Args = Parcel;
///     type Needs = ();
///
///     fn spec(&self) -> ToolSpec {
///         ToolSpec::new("ship", "Sends a parcel to the customer.")
///     }
///
///     async fn run(&self, (): (), call: Call, args: Parcel) -> Result<ToolRunOutcome, Error> {
///         self.0.lock().unwrap().insert(call.id);
///         done(format!("a parcel with {}", args.item))
///     }
///
///     // After a crash, Outlast asks whether the interrupted call happened.
///     async fn probe(&self, call: CallId, args: Parcel) -> Result<ProbeResult, Error> {
///         Ok(if self.0.lock().unwrap().contains(&call) {
///             ProbeResult::Happened(ToolResult::Ok(format!("a parcel with {}", args.item).into()))
///         } else {
///             ProbeResult::DidNotHappen
///         })
///     }
/// }
///
/// let ship = Ship::default(); // for `Builder::tool`
/// # let mut toolbox = outlast::tool::Toolbox::new(outlast_ports::service::Services::default());
/// # toolbox.add(ship).unwrap();
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The arguments from the model.
    type Args: DeserializeOwned + JsonSchema + Send + Sync;
    /// The services that it needs: one, or a tuple.
    type Needs: Needs;

    /// Returns its name, its description, and how it may run.
    fn spec(&self) -> ToolSpec;

    /// Runs the tool.
    fn run(
        &self,
        needs: Self::Needs,
        call: Call,
        args: Self::Args,
    ) -> impl Future<Output = Result<ToolRunOutcome, Error>> + Send;

    /// Inspects a call before it is journaled. It may reject the call, or compute a payload.
    ///
    /// The payload is stored in the record of the call and passed in [`Call::payload`]. Replay does not prepare a call
    /// again.
    fn prepare(
        &self,
        _session: SessionId,
        _args: &Self::Args,
    ) -> impl Future<Output = Result<Option<Value>, Error>> + Send {
        ready(Ok(None))
    }

    /// Describes what a call would do, without doing it. Returns `None` if the tool cannot tell. The per-call services
    /// fail on every use.
    fn preview(
        &self,
        _needs: Self::Needs,
        _args: Self::Args,
    ) -> impl Future<Output = Result<Option<String>, Error>> + Send {
        ready(Ok(None))
    }

    /// Returns the compensating call, built from the result of this one, or `None` if there is nothing to undo.
    ///
    /// It is stored with the result and runs if the turn is aborted. A tool that uses [`ToolSpec::undone_by`] need not
    /// implement this.
    fn undo(&self, _args: Self::Args, _result: &Value) -> Option<UndoCall> {
        None
    }

    /// Finds out whether an interrupted at-most-once call happened. It must not perform the call.
    fn probe(
        &self,
        _call: CallId,
        _args: Self::Args,
    ) -> impl Future<Output = Result<ProbeResult, Error>> + Send {
        ready(Ok(ProbeResult::CannotTell))
    }
}

/// The properties of a tool.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a promise of its own, set by a method")]
pub struct ToolSpec {
    name: String,
    description: String,
    class: EffectClass,
    scheduling: CallScheduling,
    retry: RetryPolicy,
    deadline: Option<Duration>,
    durable: bool,
    approval: bool,
    output: Option<Value>,
    undo: Option<String>,
    price: Option<Cost>,
    trusted: bool,
    sinks: Option<CallSinks>,
    egress: bool,
}

impl ToolSpec {
    /// Describes a tool with this name. It is at-most-once by default.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            class: EffectClass::default(),
            scheduling: CallScheduling::default(),
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

    /// The tool has no side effects.
    #[must_use]
    pub fn pure(mut self) -> Self {
        self.class = EffectClass::Pure;
        self
    }

    /// The tool may run again with the same idempotency key.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.class = EffectClass::Idempotent;
        self
    }

    /// The tool writes only to the stores of the session.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.class = EffectClass::Transactional;
        self
    }

    /// Sets how its calls are ordered within a batch.
    #[must_use]
    pub fn scheduled(mut self, scheduling: CallScheduling) -> Self {
        self.scheduling = scheduling;
        self
    }

    /// Retries temporary failures, up to this many attempts in total.
    #[must_use]
    pub fn attempts(mut self, attempts: u32, backoff: Duration) -> Self {
        self.retry = RetryPolicy { attempts, backoff };
        self
    }

    /// Sets the timeout of one attempt.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The tool uses durable steps, waits or a pending completion. A host without durability refuses it.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// The tool should be approved before it runs. Policies can use this hint.
    #[must_use]
    pub fn approval(mut self) -> Self {
        self.approval = true;
        self
    }

    /// Sets the tool of the same agent that undoes a call. It gets the result as its arguments.
    #[must_use]
    pub fn undone_by(mut self, tool: impl Into<String>) -> Self {
        self.undo = Some(tool.into());
        self
    }

    /// Marks the results as trusted. Use it only if outsiders cannot influence them.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.trusted = true;
        self
    }

    /// Marks these arguments as sensitive (sinks), as JSON pointers: who, what, how much, where. The others are free
    /// text.
    ///
    /// Arguments that the type does not declare are refused then. By default, the whole call is sensitive if it has
    /// side effects.
    #[must_use]
    pub fn sinks(mut self, sinks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.sinks = Some(CallSinks::Arguments(sinks.into_iter().map(Into::into).collect()));
        self
    }

    /// Marks the whole call as sensitive (a sink), whatever its arguments are: it deletes, pays or publishes.
    #[must_use]
    pub fn call_is_sink(mut self) -> Self {
        self.sinks = Some(CallSinks::Call);
        self
    }

    /// The arguments leave this machine.
    #[must_use]
    pub fn egress(mut self) -> Self {
        self.egress = true;
        self
    }

    /// Sets the cost of one call, for budgets.
    #[must_use]
    pub fn price(mut self, price: Cost) -> Self {
        self.price = Some(price);
        self
    }

    /// Sets the type of the results.
    #[must_use]
    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.output = Some(schema_of::<T>());
        self
    }

    fn contract<A: JsonSchema>(self) -> Result<ToolContract, Error> {
        let mut input = schema_of::<A>();
        // The doc comment of the argument type is not meant for the model.
        if let Some(root) = input.as_object_mut() {
            root.remove("description");
        }
        if matches!(&self.sinks, Some(CallSinks::Arguments(pointers)) if !pointers.is_empty()) {
            close_schema(&mut input);
        }
        Ok(ToolContract {
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

/// Refuses properties that a schema does not name. The type ignores them, so nothing is lost. A sensitive argument
/// cannot be passed under another name then.
fn close_schema(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    if keywords.contains_key("properties") && !keywords.contains_key("additionalProperties") {
        keywords.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(members)) => members.values_mut().for_each(close_schema),
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(close_schema);
            }
            ("items" | "additionalProperties", value) => close_schema(value),
            _ => {}
        }
    }
}

/// Returns the JSON Schema of a type, in the form that models see.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("$schema");
        root.remove("title");
    }
    schema
}

/// A set of tools, as the runtime sees it.
pub trait ToolProvider: Send + Sync {
    /// Returns short descriptions of all tools.
    fn manifests(&self) -> Vec<ToolManifest>;

    /// Returns the contract of a tool.
    fn contract(&self, tool: &ToolName) -> Option<&ToolContract>;

    /// Inspects a call before it is journaled. Returns the payload to store in its record.
    fn prepare<'a>(
        &'a self,
        _session: SessionId,
        _tool: &'a ToolName,
        _arguments: &'a Value,
    ) -> ResultFuture<'a, Option<Value>> {
        Box::pin(ready(Ok(None)))
    }

    /// Runs a prepared call.
    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome>;

    /// Finds out whether an interrupted at-most-once call happened.
    fn probe<'a>(&'a self, _prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        Box::pin(ready(Ok(ProbeResult::CannotTell)))
    }

    /// Returns the compensating call for a call with this result, or `None` if there is nothing to undo.
    fn undo(&self, _prepared: &PreparedCall, _result: &Value) -> Option<UndoCall> {
        None
    }

    /// Describes what a call would do, without doing it. Returns `None` if the tool cannot tell.
    fn preview<'a>(&'a self, _tool: &'a ToolName, _arguments: &'a Value) -> ResultFuture<'a, Option<String>> {
        Box::pin(ready(Ok(None)))
    }
}

/// Changes how the calls of other tools run, for example to observe them or to answer some itself.
pub trait ToolDecorator: Send + Sync {
    /// Runs a prepared call of one of these tools.
    fn execute<'a>(
        &'a self,
        tools: &'a dyn ToolProvider,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome>;
}

impl<D: ToolDecorator + ?Sized> ToolDecorator for Arc<D> {
    fn execute<'a>(
        &'a self,
        tools: &'a dyn ToolProvider,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        (**self).execute(tools, prepared, call, scope)
    }
}

/// Tools whose calls run through a decorator. Everything else is passed on to the tools.
pub struct DecoratedTools<D> {
    tools: Arc<dyn ToolProvider>,
    decorator: D,
}

impl<D: ToolDecorator> DecoratedTools<D> {
    /// Decorates these tools.
    pub fn new(tools: Arc<dyn ToolProvider>, decorator: D) -> Self {
        Self { tools, decorator }
    }
}

impl<D: ToolDecorator> ToolProvider for DecoratedTools<D> {
    fn manifests(&self) -> Vec<ToolManifest> {
        self.tools.manifests()
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.tools.contract(tool)
    }

    fn prepare<'a>(
        &'a self,
        session: SessionId,
        tool: &'a ToolName,
        arguments: &'a Value,
    ) -> ResultFuture<'a, Option<Value>> {
        self.tools.prepare(session, tool, arguments)
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        self.decorator.execute(self.tools.as_ref(), prepared, call, scope)
    }

    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        self.tools.probe(prepared)
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<UndoCall> {
        self.tools.undo(prepared, result)
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, arguments: &'a Value) -> ResultFuture<'a, Option<String>> {
        self.tools.preview(tool, arguments)
    }
}

/// Typed tools, bound to the services that they need.
#[derive(Default)]
pub struct Toolbox {
    services: Arc<Services>,
    tools: BTreeMap<ToolName, (ToolContract, Box<dyn DynTool>)>,
}

impl Toolbox {
    /// Creates an empty toolbox with these services.
    pub fn new(services: Services) -> Self {
        Self { services: Arc::new(services), tools: BTreeMap::new() }
    }

    /// Adds a tool. Fails if the name is taken or a needed service is not granted.
    pub fn add<T: Tool>(&mut self, tool: T) -> Result<(), Error> {
        let mut contract = tool.spec().contract::<T::Args>()?;
        T::Needs::check(&self.services)?;
        let means = T::Needs::fingerprints(&self.services);
        contract.made_of = (!means.is_empty()).then(|| canonical_json::fingerprint(&means));
        if self.tools.contains_key(&contract.name) {
            let detail = format!("two tools are called `{}`; names must be unique", contract.name);
            return Err(Error::new(Kind::ToolDuplicate, detail));
        }
        self.tools.insert(contract.name.clone(), (contract, Box::new(tool)));
        Ok(())
    }

    fn find(&self, tool: &ToolName) -> Result<&dyn DynTool, Error> {
        let found = self.tools.get(tool).map(|(_, tool)| tool.as_ref());
        found.ok_or_else(|| {
            let names: Vec<&str> = self.tools.keys().map(ToolName::as_str).collect();
            let detail = format!("no tool is called `{tool}`; there are: {}", names.join(", "));
            Error::new(Kind::ToolUnknown, detail)
        })
    }
}

impl ToolProvider for Toolbox {
    fn manifests(&self) -> Vec<ToolManifest> {
        self.tools.values().map(|(contract, _)| contract.manifest()).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.tools.get(tool).map(|(contract, _)| contract)
    }

    fn prepare<'a>(
        &'a self,
        session: SessionId,
        tool: &'a ToolName,
        arguments: &'a Value,
    ) -> ResultFuture<'a, Option<Value>> {
        match self.find(tool) {
            Ok(tool) => tool.prepare(session, arguments),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        match self.find(&prepared.tool) {
            Ok(tool) => tool.run(&self.services, prepared, call, scope),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        match self.find(&prepared.tool) {
            Ok(tool) => tool.probe(prepared),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<UndoCall> {
        let (contract, tool) = self.tools.get(&prepared.tool)?;
        tool.undo(prepared, result).or_else(|| contract.undo(result))
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, arguments: &'a Value) -> ResultFuture<'a, Option<String>> {
        match self.find(tool) {
            Ok(tool) => tool.preview(&self.services, arguments),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

/// The object-safe form of [`Tool`]. Only here are the futures of a tool boxed.
trait DynTool: Send + Sync {
    fn prepare<'a>(&'a self, session: SessionId, arguments: &'a Value) -> ResultFuture<'a, Option<Value>>;
    fn run<'a>(
        &'a self,
        services: &'a Services,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome>;
    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult>;
    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<UndoCall>;
    fn preview<'a>(
        &'a self,
        services: &'a Services,
        arguments: &'a Value,
    ) -> ResultFuture<'a, Option<String>>;
}

impl<T: Tool> DynTool for T {
    fn prepare<'a>(&'a self, session: SessionId, arguments: &'a Value) -> ResultFuture<'a, Option<Value>> {
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
    ) -> ResultFuture<'a, ToolRunOutcome> {
        Box::pin(async move {
            let needs = T::Needs::gather(services, &scope)?;
            drop(scope);
            Tool::run(self, needs, call, arguments_of(&prepared.arguments)?).await
        })
    }

    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        Box::pin(async move { Tool::probe(self, prepared.id, arguments_of(&prepared.arguments)?).await })
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<UndoCall> {
        Tool::undo(self, arguments_of(&prepared.arguments).ok()?, result)
    }

    fn preview<'a>(
        &'a self,
        services: &'a Services,
        arguments: &'a Value,
    ) -> ResultFuture<'a, Option<String>> {
        Box::pin(async move {
            let scope: Arc<dyn CallScope> = Arc::new(UnavailableScope);
            let needs = T::Needs::gather(services, &scope)?;
            Tool::preview(self, needs, arguments_of(arguments)?).await
        })
    }
}

fn arguments_of<A: DeserializeOwned>(arguments: &Value) -> Result<A, Error> {
    A::deserialize(arguments)
        .map_err(|cause| Error::new(Kind::ToolArgsInvalid, format!("the arguments do not fit: {cause}")))
}
