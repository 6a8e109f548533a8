//! Runs hooks at the points of a turn: in order, each within its deadline.
//!
//! The change of a hook is recorded in the same write as the effect it belongs to. A hook with a recorded
//! change does not run again; the change is read from the journal. The `hook_changes` module applies changes to
//! effects.
mod hook_changes;

pub(crate) use hook_changes::{
    HookedModelRequest, after_model, after_tool, at_checkpoint, before_model, before_tool,
    completed_as_recorded, reworded,
};

use crate::agents::agent_resolver::AgentResolver;
use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::catalogue::CallingTurn;
use crate::turn::turn_run::TurnRun;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use outlast_kernel::replay::TurnHistory;
use outlast_ports::clock::Clock;
use outlast_ports::hook::{AfterEnd, Hook, HookAt, HookStage, OnError};
use outlast_ports::plugin::state_name;
use outlast_ports::store::Store;
use outlast_vocab::hook::{
    EndHookInput, ErrorHookInput, HookCall, HookPoint, HookUse, OnFailure, PluginHookFacts,
};
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::message::{HookName, json_size};
use outlast_vocab::package::Package;
use outlast_vocab::record::{Fact, HookApplied, TurnEnd};
use outlast_vocab::{Error, Failure, Kind, Limits, OrgId, ReplayKey, limits};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

/// The hooks of this process, by name and point.
#[derive(Default)]
pub struct Hooks(BTreeMap<HookPoint, BTreeMap<HookName, HookAt>>);

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|(point, hooks)| (point, hooks.keys().collect::<Vec<_>>()));
        f.debug_map().entries(names).finish()
    }
}

impl Hooks {
    /// Collects these hooks. Two hooks with the same name and point are an error.
    pub fn new(hooks: Vec<HookAt>) -> Result<Self, Error> {
        let mut found: BTreeMap<HookPoint, BTreeMap<HookName, HookAt>> = BTreeMap::new();
        for hook in hooks {
            let point = hook.usage.point;
            let others = found.entry(point).or_default();
            if let Some(other) = others.insert(hook.usage.name.clone(), hook) {
                let name = &other.usage.name;
                let detail = format!("two hooks at {point} are called `{name}`; names must be unique there");
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        Ok(Self(found))
    }

    /// Rejects an agent whose hooks are contradictory or missing.
    pub(crate) fn check(&self, package: &Package, limits: &Limits) -> Result<(), Error> {
        limits::check("hooks_per_agent", package.hooks.len(), limits.hooks_per_agent)?;
        for usage in &package.hooks {
            usage.check()?;
            let (HookUse { name, point, made_of, .. }, agent) = (usage, &package.agent);
            let detail = match self.at(*point, name) {
                None => {
                    format!("the agent `{agent}` uses the hook `{name}` at {point}, which is not registered")
                }
                Some(here) if made_of.is_some() && here.usage.made_of != *made_of => format!(
                    "the agent `{agent}` uses the hook `{name}` at {point}, which is another program here"
                ),
                Some(_) => continue,
            };
            return Err(Error::new(Kind::HookMissing, detail));
        }
        Ok(())
    }

    fn at(&self, point: HookPoint, name: &HookName) -> Option<&HookAt> {
        self.0.get(&point)?.get(name)
    }

    fn find<P: HookStage>(&self, name: &HookName) -> Result<&Arc<dyn Hook<P>>, Error> {
        let found = self.at(P::POINT, name).and_then(HookAt::hook);
        found.ok_or_else(|| {
            Error::new(Kind::HookMissing, format!("the hook `{name}` is not registered at {}", P::POINT))
        })
    }
}

/// The hooks of an agent, and what running them takes.
pub(crate) struct HookRunner {
    pub(crate) hooks: Arc<Hooks>,
    clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
}

impl std::fmt::Debug for HookRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hooks.fmt(f)
    }
}

impl HookRunner {
    /// Runs these hooks with the clock and the limits of a resolver.
    pub(crate) fn new(resolver: &AgentResolver, hooks: Arc<Hooks>) -> Self {
        Self { hooks, clock: resolver.clock.clone(), limits: resolver.limits.clone() }
    }
}

/// The untrusted hooks that have sent text to the model in this drive.
#[derive(Clone, Debug, Default)]
pub struct HookLabels(Arc<Mutex<Labels>>);

impl HookLabels {
    /// Returns the labels of these hooks.
    pub(crate) fn labels(&self) -> Labels {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, hook: &HookName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(UntrustedSource::Hook(hook.clone()));
    }
}

/// The hooks of one effect.
#[derive(Clone, Copy)]
pub(crate) struct EffectHooks<'a> {
    pub(crate) resolved_agent: &'a ResolvedAgent,
    pub(crate) caller: CallingTurn,
    /// The organisation of the session.
    pub(crate) org: Option<OrgId>,
    /// The history of the turn.
    pub(crate) history: &'a TurnHistory,
    /// The effect.
    pub(crate) key: &'a ReplayKey,
    /// The store that holds the state of plug-ins.
    pub(crate) store: Option<&'a Arc<dyn Store>>,
    /// Collects untrusted hooks that send text to the model.
    pub(crate) hook_labels: &'a HookLabels,
}

/// The result of running the hooks of a point.
pub(crate) struct HookResults<'a, P: HookStage> {
    /// The effect as the hooks left it.
    pub(crate) seen: P::Seen,
    /// The changes, each with its hook.
    pub(crate) patches: Vec<(&'a HookName, P::Patch)>,
}

/// A hook that failed and whose failure is not ignored.
pub(crate) struct HookFailure<'a> {
    pub(crate) hook: &'a HookName,
    pub(crate) error: Error,
}

impl From<HookFailure<'_>> for Error {
    fn from(failed: HookFailure<'_>) -> Self {
        failed.error
    }
}

impl<'a> EffectHooks<'a> {
    /// The hooks of an effect of this turn.
    pub(crate) fn of(
        run: &TurnRun<'a>,
        hook_labels: &'a HookLabels,
        history: &'a TurnHistory,
        store: Option<&'a Arc<dyn Store>>,
        key: &'a ReplayKey,
    ) -> Self {
        let (caller, org) = (run.caller, run.org);
        Self { resolved_agent: run.agent, caller, org, history, key, store, hook_labels }
    }

    /// Returns the limits that the agent was resolved with.
    pub(crate) fn limits(&self) -> &'a Limits {
        &self.resolved_agent.hooks.limits
    }

    /// Whether the agent has hooks at this point.
    pub(crate) fn any<P: HookStage>(&self) -> bool {
        self.uses::<P>().next().is_some()
    }

    /// Returns the recorded changes of hooks at this point.
    pub(crate) fn recorded<P: HookStage>(&self) -> impl Iterator<Item = P::Patch> {
        self.uses::<P>().filter_map(|usage| self.recorded_of::<P>(usage))
    }

    /// Runs the hooks of a point in order. Each sees the changes of those before it. Changes are added to
    /// `facts`.
    pub(crate) async fn run<P: HookStage>(
        &self,
        mut seen: P::Seen,
        facts: &mut Vec<Fact>,
    ) -> Result<HookResults<'a, P>, HookFailure<'a>> {
        let mut patches = Vec::new();
        for usage in self.uses::<P>() {
            let patch = match self.recorded_of::<P>(usage) {
                Some(patch) => patch,
                None => match self.ask::<P>(usage, seen.clone()).await {
                    Ok(Some(patch)) => {
                        facts.extend(self.fact::<P>(usage, &seen, &patch));
                        patch
                    }
                    Ok(None) => continue,
                    Err(error) if usage.on_failure == OnFailure::Ignore => {
                        tracing::warn!(%error, "an observing hook failed");
                        continue;
                    }
                    Err(error) => return Err(HookFailure { hook: &usage.name, error }),
                },
            };
            // A change without its own record is a message to the model.
            if !usage.trusted && P::to_journal(patch.clone()).is_none_or(|patch| patch.reaches_model()) {
                self.hook_labels.add(&usage.name);
            }
            P::apply(&mut seen, &patch);
            let is_final = P::is_final(&patch);
            patches.push((&usage.name, patch));
            if is_final {
                break;
            }
        }
        Ok(HookResults { seen, patches })
    }

    /// Notifies the error hooks.
    pub(crate) async fn on_error(&self, failure: &Failure) {
        self.tell::<OnError>(|| ErrorHookInput { failure: failure.clone() }).await;
    }

    /// Notifies the hooks that run after the turn has ended.
    pub(crate) async fn after_end(&self, end: &TurnEnd) {
        self.tell::<AfterEnd>(|| EndHookInput { end: end.clone() }).await;
    }

    /// Runs hooks that only observe.
    async fn tell<P: HookStage>(&self, seen: impl FnOnce() -> P::Seen) {
        if self.any::<P>()
            && let Err(HookFailure { error, .. }) = self.run::<P>(seen(), &mut Vec::new()).await
        {
            tracing::warn!(%error, "an observing hook failed");
        }
    }

    fn uses<P: HookStage>(&self) -> impl Iterator<Item = &'a HookUse> + use<'a, P> {
        self.resolved_agent.package.hooks.iter().filter(|usage| usage.point == P::POINT)
    }

    fn recorded_of<P: HookStage>(&self, usage: &HookUse) -> Option<P::Patch> {
        P::from_journal(self.history.hook_patch(self.key, &usage.name, P::POINT)?)
    }

    fn fact<P: HookStage>(&self, usage: &HookUse, seen: &P::Seen, patch: &P::Patch) -> Option<Fact> {
        let patch = P::to_journal(patch.clone())?;
        let (key, hook) = (self.key.clone(), usage.name.clone());
        Some(Fact::Hooked(HookApplied { key, hook, patch, was: P::lost(seen) }))
    }

    /// Runs one hook. Every error names the hook.
    async fn ask<P: HookStage>(&self, usage: &HookUse, seen: P::Seen) -> Result<Option<P::Patch>, Error> {
        self.once::<P>(usage, seen).await.map_err(|error| {
            let detail = format!("the hook `{}` at {} {}", usage.name, P::POINT, error.detail());
            Error::new(Kind::HookFailed, detail).because(error)
        })
    }

    async fn once<P: HookStage>(&self, usage: &HookUse, seen: P::Seen) -> Result<Option<P::Patch>, Error> {
        let HookRunner { hooks, clock, limits } = &self.resolved_agent.hooks;
        let hook = hooks.find::<P>(&usage.name)?.clone();
        let call = HookCall {
            hook: usage.name.clone(),
            point: P::POINT,
            agent: self.resolved_agent.package.agent.clone(),
            session: self.caller.session,
            turn: self.caller.turn,
            key: self.key.clone(),
            plugin: self.facts_of(usage).await?,
        };
        let deadline = usage.deadline.unwrap_or(limits.hook_deadline);
        let run = Box::pin(AssertUnwindSafe(async move { hook.run(call, seen).await }).catch_unwind());
        let answered = match select(run, clock.sleep(deadline)).await {
            Either::Left((answered, _)) => answered,
            Either::Right(_) => {
                let detail = format!("did not answer within {} ms", deadline.as_millis());
                return Err(Error::new(Kind::HookFailed, detail));
            }
        };
        let patch = answered.map_err(|_| Error::new(Kind::HookFailed, "panicked"))?.map_err(|error| {
            Error::new(error.kind(), format!("failed: {}", error.detail())).because(error)
        })?;
        if let Some(patch) = &patch {
            self.check::<P>(usage, patch)?;
        }
        Ok(patch)
    }

    /// Returns the state of the hook's plug-in in this session, and the data that the input carries for it.
    async fn facts_of(&self, usage: &HookUse) -> Result<Option<PluginHookFacts>, Error> {
        let Some(plugin) = &usage.plugin else { return Ok(None) };
        let carried = self.history.accepted().and_then(|accepted| accepted.plugins.get(plugin));
        let state = match self.store {
            Some(store) => store.value(self.caller.session, state_name(plugin)).await?,
            None => None,
        };
        Ok(Some(PluginHookFacts { state, input: carried.cloned() }))
    }

    fn check<P: HookStage>(&self, usage: &HookUse, patch: &P::Patch) -> Result<(), Error> {
        if usage.observes {
            return Err(Error::new(Kind::HookFailed, "only observes, but returned a change"));
        }
        let limits = &self.resolved_agent.hooks.limits;
        let value = serde_json::to_value(patch)
            .map_err(|cause| Error::new(Kind::HookFailed, format!("returned invalid JSON: {cause}")))?;
        let too_large = |error: Error| {
            Error::new(error.kind(), format!("returned a change that is too large: {}", error.detail()))
        };
        limits::check("hook_patch_bytes", json_size(&value), limits.hook_patch_bytes).map_err(too_large)?;
        limits::check_depth("json_depth", &value, limits.json_depth).map_err(too_large)
    }
}
