//! Plug-ins: one type that brings tools, hooks, triggers, capabilities, prompt parts, checkpoint messages and state (R15.1).
//!
//! [`Plugin`] is what others implement. At start it is given its options and says what it brings ([`Brings`]): what holds
//! for every session (tools, prompt text, capabilities), and what is worked out for one (hooks, prompt text, messages),
//! which sees the plug-in's own state in that session and what the turn's input carries for it ([`Own`]). A tool of a
//! plug-in reads and writes that state by [`Plugged`].
use crate::Answer;
use crate::hook::{AtCheckpoint, BeforeContext, Hook, HookAt, Point};
use crate::service::{CallScope, Needs, Services};
use crate::tool::{Tool, Toolbox};
use crate::trigger::{Source, Trigger};
use outlast_vocab::capability::Capability;
use outlast_vocab::hook::{
    CheckpointPatch, CheckpointSeen, ContextPatch, ContextSeen, HookCall, PluginFacts,
};
use outlast_vocab::message::PluginName;
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

/// Where a session keeps the state of plug-ins among its values. No tool reaches names that begin like this.
const RESERVED: &str = "\u{1}plugin/";

/// The name under which a session keeps the state of a plug-in.
pub fn state_name(plugin: &PluginName) -> String {
    format!("{RESERVED}{plugin}")
}

/// Whether a value of this name is none of the agent's.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

/// Something that others write, brought into a program as one.
pub trait Plugin: Send + Sync + Sized + 'static {
    /// What it is called: the place of its state, and the name under which inputs carry something for it.
    const NAME: &'static str;
    /// How it is set up.
    type Options: DeserializeOwned;
    /// What an input may carry for it.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What it keeps in each session.
    type State: Serialize + DeserializeOwned + Default + Send + 'static;

    /// Says what it brings, set up like this. Options that make no sense are refused here, before anything starts.
    fn start(self, options: Self::Options) -> Result<Brings<Self>, Error>;
}

/// A plug-in's own in one session, as its hooks see it.
#[derive(Clone, Debug)]
pub struct Own<P: Plugin> {
    /// The facts of this run.
    pub call: HookCall,
    /// What it keeps in this session, as it was last written.
    pub state: P::State,
    /// What the turn's input carries for it.
    pub input: Option<P::Input>,
}

type AddTool = Box<dyn FnOnce(&mut Toolbox) -> Result<(), Error> + Send>;

/// What a plug-in brings.
pub struct Brings<P: Plugin> {
    parts: Parts,
    plugin: PhantomData<P>,
}

/// What a plug-in brings, without its type.
#[derive(Default)]
struct Parts {
    tools: Vec<AddTool>,
    hooks: Vec<HookAt>,
    prompts: Vec<String>,
    capabilities: Vec<Capability>,
    triggers: Vec<Trigger>,
}

impl<P: Plugin> Default for Brings<P> {
    fn default() -> Self {
        Self { parts: Parts::default(), plugin: PhantomData }
    }
}

impl<P: Plugin> Brings<P> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tool. Every agent has it, unless a capability names it.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.parts.tools.push(Box::new(|toolbox| toolbox.add(tool)));
        self
    }

    /// Text that the model is told before the first message, in every session.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<String>) -> Self {
        self.parts.prompts.push(text.into());
        self
    }

    /// A bundle that an agent may switch on.
    #[must_use]
    pub fn capability(mut self, capability: Capability) -> Self {
        self.parts.capabilities.push(capability);
        self
    }

    /// Something outside that begins turns. It is listened to from the start of the runtime to its end, in every process.
    pub fn trigger(mut self, name: &str, source: impl Source + 'static) -> Result<Self, Error> {
        let trigger = Trigger { name: name.parse()?, source: Arc::new(source), agent: None };
        self.parts.triggers.push(trigger);
        Ok(self)
    }

    /// A hook that sees the plug-in's own. Every agent has it, unless a capability names it.
    pub fn on<Pt: Point, F, R>(self, name: &str, run: F) -> Result<Self, Error>
    where
        F: Fn(Own<P>, Pt::Seen) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<Pt::Patch>, Error>> + Send + 'static,
    {
        Ok(self.hook(HookAt::new::<Pt>(name, OfPlugin::<P, F>(run, PhantomData))?))
    }

    /// A hook with everything that is said of it. It is told the plug-in's own in its [`HookCall`].
    #[must_use]
    pub fn hook(mut self, hook: HookAt) -> Self {
        self.parts.hooks.push(hook);
        self
    }

    /// Text that the model is told before the first message, worked out for each call from the plug-in's own.
    pub fn session_prompt<F, R>(self, text: F) -> Result<Self, Error>
    where
        F: Fn(Own<P>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<String>, Error>> + Send + 'static,
    {
        self.on::<BeforeContext, _, _>(&format!("{}.prompt", P::NAME), move |own, _: ContextSeen| {
            let text = text(own);
            async move {
                let patch = |system| ContextPatch { system: Some(system), messages: Vec::new() };
                Ok(text.await?.map(patch))
            }
        })
    }

    /// Messages that join a turn at its checkpoints. What joined is recorded; it is not worked out again.
    pub fn checkpoint<F, R>(self, messages: F) -> Result<Self, Error>
    where
        F: Fn(Own<P>, CheckpointSeen) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<String>, Error>> + Send + 'static,
    {
        self.on::<AtCheckpoint, _, _>(&format!("{}.checkpoint", P::NAME), move |own, seen| {
            let messages = messages(own, seen);
            async move {
                let messages = messages.await?;
                Ok((!messages.is_empty()).then_some(CheckpointPatch { messages }))
            }
        })
    }
}

/// A closure of a plug-in as a hook.
struct OfPlugin<P, F>(F, PhantomData<fn() -> P>);

impl<P, Pt, F, R> Hook<Pt> for OfPlugin<P, F>
where
    P: Plugin,
    Pt: Point,
    F: Fn(Own<P>, Pt::Seen) -> R + Send + Sync,
    R: Future<Output = Result<Option<Pt::Patch>, Error>> + Send + 'static,
{
    fn run(&self, call: HookCall, seen: Pt::Seen) -> Answer<'_, Option<Pt::Patch>> {
        Box::pin(async move {
            let PluginFacts { state, input } = call.plugin.clone().unwrap_or_default();
            let state = state_of::<P>(state)?;
            let input = input.map(input_of::<P>).transpose()?;
            (self.0)(Own { call, state, input }, seen).await
        })
    }
}

fn state_of<P: Plugin>(state: Option<Value>) -> Result<P::State, Error> {
    let Some(state) = state else { return Ok(P::State::default()) };
    serde_json::from_value(state).map_err(|cause| {
        let detail =
            format!("the state of the plug-in `{}` in this session does not decode: {cause}", P::NAME);
        Error::new(Kind::PluginInvalid, detail)
    })
}

fn input_of<P: Plugin>(input: Value) -> Result<P::Input, Error> {
    serde_json::from_value(input).map_err(|cause| {
        let detail = format!("what the input carries for the plug-in `{}` does not fit it: {cause}", P::NAME);
        Error::new(Kind::PluginInvalid, detail)
    })
}

/// A plug-in that was set up.
pub struct Installed {
    /// What it is called.
    pub name: PluginName,
    /// Refuses what an input carries for it, if it does not fit.
    pub check_input: fn(Value) -> Result<(), Error>,
    parts: Parts,
}

impl Installed {
    /// Sets a plug-in up. Options may come as its own type or as anything that reads like it.
    pub fn new<P: Plugin>(plugin: P, options: impl Serialize) -> Result<Self, Error> {
        let name: PluginName = P::NAME.parse()?;
        let unfit = |cause: serde_json::Error| {
            let detail = format!("the options of the plug-in `{name}` do not fit it: {cause}");
            Error::new(Kind::PluginInvalid, detail)
        };
        let options = serde_json::to_value(options).and_then(serde_json::from_value).map_err(unfit)?;
        let Brings { mut parts, .. } = plugin.start(options)?;
        for hook in &mut parts.hooks {
            hook.usage.plugin = Some(name.clone());
        }
        for usage in parts.capabilities.iter_mut().flat_map(|capability| &mut capability.hooks) {
            usage.plugin = Some(name.clone());
        }
        Ok(Self { name, check_input: |input| input_of::<P>(input).map(drop), parts })
    }

    /// Adds its tools.
    pub fn add_tools(&mut self, toolbox: &mut Toolbox) -> Result<(), Error> {
        std::mem::take(&mut self.parts.tools).into_iter().try_for_each(|add| add(toolbox))
    }

    /// Its hooks.
    pub fn hooks(&self) -> &[HookAt] {
        &self.parts.hooks
    }

    /// What the model is told in every session.
    pub fn prompts(&self) -> &[String] {
        &self.parts.prompts
    }

    /// What begins turns.
    pub fn triggers(&self) -> &[Trigger] {
        &self.parts.triggers
    }

    /// The bundles that an agent may switch on.
    pub fn capabilities(&self) -> &[Capability] {
        &self.parts.capabilities
    }
}

/// The plug-in's own in the session of a call, for its tools.
pub struct Plugged<P: Plugin> {
    name: PluginName,
    scope: Arc<dyn CallScope>,
    plugin: PhantomData<fn() -> P>,
}

impl<P: Plugin> Needs for Plugged<P> {
    fn check(_: &Services) -> Result<(), Error> {
        P::NAME.parse::<PluginName>().map(drop)
    }

    fn gather(_: &Services, scope: &Arc<dyn CallScope>) -> Result<Self, Error> {
        Ok(Self { name: P::NAME.parse()?, scope: scope.clone(), plugin: PhantomData })
    }
}

impl<P: Plugin> Plugged<P> {
    /// What it keeps in this session, with what this call has written.
    pub async fn state(&self) -> Result<P::State, Error> {
        state_of::<P>(self.scope.plugin_state(&self.name).await?)
    }

    /// Keeps this in the session from now on; it commits with the call's answer.
    pub fn keep(&self, state: &P::State) -> Result<(), Error> {
        let state = serde_json::to_value(state).map_err(|cause| {
            let detail = format!("the state of the plug-in `{}` does not fit JSON: {cause}", P::NAME);
            Error::new(Kind::PluginInvalid, detail)
        })?;
        self.scope.keep_plugin_state(&self.name, state)
    }

    /// What the turn's input carries for it.
    pub fn input(&self) -> Result<Option<P::Input>, Error> {
        self.scope.plugin_input(&self.name).map(input_of::<P>).transpose()
    }
}
