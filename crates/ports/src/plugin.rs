//! Plug-ins: one type that brings tools, hooks, triggers, capabilities, prompt text, checkpoint messages and state.
//!
//! Implement [`Plugin`]. At start-up it gets its options and returns its parts ([`PluginParts`]). Some parts are the same in
//! every session: tools, prompt text, capabilities. Others are computed per session: hooks, prompt text, messages. They
//! see the state of the plug-in in that session and the data that the input carries for it ([`PluginHookCall`]). A tool of a
//! plug-in reads and writes the state with [`PluginAccess`].
use crate::ResultFuture;
use crate::hook::{AtCheckpoint, BeforeContext, Hook, HookAt, HookStage};
use crate::service::{CallScope, CallValues, Needs, Services};
use crate::tool::{Tool, Toolbox};
use crate::trigger::{Trigger, TriggerSource};
use outlast_vocab::capability::CapabilityBundle;
use outlast_vocab::hook::{
    CheckpointHookInput, CheckpointPatch, ContextHookInput, ContextPatch, HookCall, PluginHookFacts,
};
use outlast_vocab::message::PluginName;
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

/// The prefix of session values that hold the state of plug-ins. Tools cannot access names with this prefix.
const RESERVED_PREFIX: &str = "\u{1}plugin/";

/// Returns the name of the session value that holds the state of a plug-in.
pub fn state_name(plugin: &PluginName) -> String {
    format!("{RESERVED_PREFIX}{plugin}")
}

/// Returns whether a value with this name is inaccessible to the agent.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// An extension of a program, installed as one unit.
pub trait Plugin: Send + Sync + Sized + 'static {
    /// Its name. It identifies the state in a session and the data that an input carries for the plug-in.
    const NAME: &'static str;
    /// The options for its set-up.
    type Options: DeserializeOwned;
    /// The data that an input may carry for it.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// The state that it keeps in each session.
    type State: Serialize + DeserializeOwned + Default + Send + 'static;

    /// Returns its parts for these options. Invalid options are refused here, before anything starts.
    fn start(self, options: Self::Options) -> Result<PluginParts<Self>, Error>;
}

/// The data of a plug-in in one session, as its hooks see it.
#[derive(Clone, Debug)]
pub struct PluginHookCall<P: Plugin> {
    /// The facts about this hook run.
    pub call: HookCall,
    /// The state in this session, as last written.
    pub state: P::State,
    /// The data that the turn's input carries for the plug-in.
    pub input: Option<P::Input>,
}

type ToolInstaller = Box<dyn FnOnce(&mut Toolbox) -> Result<(), Error> + Send>;

/// The parts of a plug-in.
pub struct PluginParts<P: Plugin> {
    parts: UntypedParts,
    plugin: PhantomData<P>,
}

/// The parts of a plug-in, without its type.
#[derive(Default)]
struct UntypedParts {
    tools: Vec<ToolInstaller>,
    hooks: Vec<HookAt>,
    prompts: Vec<String>,
    capabilities: Vec<CapabilityBundle>,
    triggers: Vec<Trigger>,
}

impl<P: Plugin> Default for PluginParts<P> {
    fn default() -> Self {
        Self { parts: UntypedParts::default(), plugin: PhantomData }
    }
}

impl<P: Plugin> PluginParts<P> {
    /// Creates an empty set of parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. Every agent has it, unless a capability names it.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.parts.tools.push(Box::new(|toolbox| toolbox.add(tool)));
        self
    }

    /// Adds text to the system prompt of every session.
    #[must_use]
    pub fn prompt(mut self, text: impl Into<String>) -> Self {
        self.parts.prompts.push(text.into());
        self
    }

    /// Adds a capability that an agent may enable.
    #[must_use]
    pub fn capability(mut self, capability: CapabilityBundle) -> Self {
        self.parts.capabilities.push(capability);
        self
    }

    /// Adds a source of external events that start turns. Every process listens to it while the runtime runs.
    pub fn trigger(mut self, name: &str, source: impl TriggerSource + 'static) -> Result<Self, Error> {
        let trigger = Trigger { name: name.parse()?, source: Arc::new(source), agent: None };
        self.parts.triggers.push(trigger);
        Ok(self)
    }

    /// Adds a hook that sees the plug-in's data. Every agent has it, unless a capability names it.
    pub fn on<Pt: HookStage, F, R>(self, name: &str, run: F) -> Result<Self, Error>
    where
        F: Fn(PluginHookCall<P>, Pt::Seen) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<Pt::Patch>, Error>> + Send + 'static,
    {
        Ok(self.hook(HookAt::new::<Pt>(name, PluginHook::<P, F>(run, PhantomData))?))
    }

    /// Adds a hook with all its options. It gets the plug-in's data in its [`HookCall`].
    #[must_use]
    pub fn hook(mut self, hook: HookAt) -> Self {
        self.parts.hooks.push(hook);
        self
    }

    /// Adds text to the system prompt, computed for each model call from the plug-in's data.
    pub fn session_prompt<F, R>(self, text: F) -> Result<Self, Error>
    where
        F: Fn(PluginHookCall<P>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<String>, Error>> + Send + 'static,
    {
        self.on::<BeforeContext, _, _>(&format!("{}.prompt", P::NAME), move |own, _: ContextHookInput| {
            let text = text(own);
            async move {
                let patch = |system| ContextPatch { system: Some(system), messages: Vec::new() };
                Ok(text.await?.map(patch))
            }
        })
    }

    /// Adds messages that join a turn at its checkpoints. The messages are recorded, so replay does not compute them
    /// again.
    pub fn checkpoint<F, R>(self, messages: F) -> Result<Self, Error>
    where
        F: Fn(PluginHookCall<P>, CheckpointHookInput) -> R + Send + Sync + 'static,
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

/// Adapts a closure of a plug-in to a hook.
struct PluginHook<P, F>(F, PhantomData<fn() -> P>);

impl<P, Pt, F, R> Hook<Pt> for PluginHook<P, F>
where
    P: Plugin,
    Pt: HookStage,
    F: Fn(PluginHookCall<P>, Pt::Seen) -> R + Send + Sync,
    R: Future<Output = Result<Option<Pt::Patch>, Error>> + Send + 'static,
{
    fn run(&self, call: HookCall, seen: Pt::Seen) -> ResultFuture<'_, Option<Pt::Patch>> {
        Box::pin(async move {
            let PluginHookFacts { state, input } = call.plugin.clone().unwrap_or_default();
            let state = state_of::<P>(state)?;
            let input = input.map(input_of::<P>).transpose()?;
            (self.0)(PluginHookCall { call, state, input }, seen).await
        })
    }
}

fn state_of<P: Plugin>(state: Option<Value>) -> Result<P::State, Error> {
    let Some(state) = state else { return Ok(P::State::default()) };
    serde_json::from_value(state).map_err(|cause| {
        let detail =
            format!("the state of the plug-in `{}` in this session cannot be decoded: {cause}", P::NAME);
        Error::new(Kind::PluginInvalid, detail)
    })
}

fn input_of<P: Plugin>(input: Value) -> Result<P::Input, Error> {
    serde_json::from_value(input).map_err(|cause| {
        let detail = format!("the input's data for the plug-in `{}` is invalid: {cause}", P::NAME);
        Error::new(Kind::PluginInvalid, detail)
    })
}

/// A plug-in that was set up.
pub struct InstalledPlugin {
    /// Its name.
    pub name: PluginName,
    /// Validates the data that an input carries for it.
    pub check_input: fn(Value) -> Result<(), Error>,
    parts: UntypedParts,
}

impl InstalledPlugin {
    /// Sets up a plug-in. The options may have type [`Plugin::Options`], or any type with the same JSON form.
    pub fn new<P: Plugin>(plugin: P, options: impl Serialize) -> Result<Self, Error> {
        let name: PluginName = P::NAME.parse()?;
        let unfit = |cause: serde_json::Error| {
            let detail = format!("the options of the plug-in `{name}` are invalid: {cause}");
            Error::new(Kind::PluginInvalid, detail)
        };
        let options = serde_json::to_value(options).and_then(serde_json::from_value).map_err(unfit)?;
        let PluginParts { mut parts, .. } = plugin.start(options)?;
        for hook in &mut parts.hooks {
            hook.usage.plugin = Some(name.clone());
        }
        for usage in parts.capabilities.iter_mut().flat_map(|capability| &mut capability.hooks) {
            usage.plugin = Some(name.clone());
        }
        Ok(Self { name, check_input: |input| input_of::<P>(input).map(drop), parts })
    }

    /// Adds its tools to a toolbox.
    pub fn add_tools(&mut self, toolbox: &mut Toolbox) -> Result<(), Error> {
        std::mem::take(&mut self.parts.tools).into_iter().try_for_each(|add| add(toolbox))
    }

    /// Returns its hooks.
    pub fn hooks(&self) -> &[HookAt] {
        &self.parts.hooks
    }

    /// Returns its text for the system prompt of every session.
    pub fn prompts(&self) -> &[String] {
        &self.parts.prompts
    }

    /// Returns its triggers.
    pub fn triggers(&self) -> &[Trigger] {
        &self.parts.triggers
    }

    /// Returns its capabilities, which an agent may enable.
    pub fn capabilities(&self) -> &[CapabilityBundle] {
        &self.parts.capabilities
    }
}

/// Gives a tool access to its plug-in's data in the session of the call.
pub struct PluginAccess<P: Plugin> {
    name: PluginName,
    scope: Arc<dyn CallValues>,
    plugin: PhantomData<fn() -> P>,
}

impl<P: Plugin> Needs for PluginAccess<P> {
    fn check(_: &Services) -> Result<(), Error> {
        P::NAME.parse::<PluginName>().map(drop)
    }

    fn gather(_: &Services, scope: &Arc<dyn CallScope>) -> Result<Self, Error> {
        Ok(Self { name: P::NAME.parse()?, scope: scope.clone(), plugin: PhantomData })
    }
}

impl<P: Plugin> PluginAccess<P> {
    /// Returns the state in this session, including the writes of this call.
    pub async fn state(&self) -> Result<P::State, Error> {
        state_of::<P>(self.scope.plugin_state(&self.name).await?)
    }

    /// Replaces the state in this session. The change commits with the result of the call.
    pub fn keep(&self, state: &P::State) -> Result<(), Error> {
        let state = serde_json::to_value(state).map_err(|cause| {
            let detail = format!("the state of the plug-in `{}` cannot be written as JSON: {cause}", P::NAME);
            Error::new(Kind::PluginInvalid, detail)
        })?;
        self.scope.set_plugin_state(&self.name, state)
    }

    /// Returns the data that the turn's input carries for the plug-in.
    pub fn input(&self) -> Result<Option<P::Input>, Error> {
        self.scope.plugin_input(&self.name).map(input_of::<P>).transpose()
    }
}
