//! A package resolved against this process: its tools, hooks, policy and budgets looked up, ready to run turns.
//!
//! This module resolves one package at a time, against an [`AgentResolver`]. The registry of all agents of a process is in
//! [`crate::agents::agent_registry`].
use crate::agents::agent_resolver::AgentResolver;
use crate::calls::catalogue::ToolCatalogue;
use crate::policy::hooks::{HookRunner, Hooks};
use crate::policy::policy_evaluator::PolicyEvaluator;
use outlast_kernel::label::of_definitions;
use outlast_kernel::policy::always_denies;
use outlast_ports::model::overhead_bytes_max;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::budget::Budgets;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::hook::HookPoint;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::package::{Package, PinnedPackage};
use outlast_vocab::policy::{PolicyDecision, Rule, approved_call_fingerprint};
use outlast_vocab::rate::RateLimit;
use outlast_vocab::tool::{ClientTool, PreparedCall, ToolContract};
use outlast_vocab::{Error, Hash, Kind, Limits, OrgId, canonical_json, limits};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The parts of an agent that are not in its package. Tool and hook names are local to the agent.
#[derive(Clone, Debug)]
pub struct AgentParts {
    /// Its tools.
    pub tools: Arc<ToolCatalogue>,
    /// Its hooks.
    pub hooks: Arc<Hooks>,
    /// The organisation whose stored configuration it was built from. `None` for an agent of the program, which every
    /// organisation can use.
    pub org: Option<OrgId>,
}

/// A package resolved against this process.
#[derive(Debug)]
pub struct ResolvedAgent {
    /// The configuration.
    pub package: Package,
    /// The hash under which the package is stored, together with its tool contracts.
    pub fingerprint: Hash,
    /// The tools of its agent.
    pub catalogue: Arc<ToolCatalogue>,
    /// The hooks of its agent.
    pub(crate) hooks: HookRunner,
    /// The organisation whose stored configuration its agent was built from. `None` for an agent of the program, which
    /// every organisation can use.
    pub(crate) org: Option<OrgId>,
    /// The contracts of its tools, in the order of the package.
    pub contracts: Vec<ToolContract>,
    /// The contracts that the model sees. Tools that a rule always forbids are left out.
    pub(crate) shown: Vec<ToolContract>,
    /// The fingerprint of all its contracts.
    pub tools: Hash,
    /// The version of its policy.
    pub policy: Hash,
    /// Evaluates its policy: the rules and the external policy engine.
    pub(crate) evaluator: PolicyEvaluator,
    /// The budgets of its turns.
    pub budgets: Budgets,
    /// The blobs to store: the pinned package and its sidecars.
    blobs: Vec<Vec<u8>>,
    /// Whether this process has stored the blobs.
    stored: AtomicBool,
}

impl ResolvedAgent {
    /// Resolves a package with the tools and hooks of the default agent.
    pub fn new(package: Package, resolver: &AgentResolver) -> Result<Self, Error> {
        Self::with(package, resolver, resolver.default_parts())
    }

    /// Resolves a package with the tools and hooks of its agent. A missing model, tool or hook is an error here, before
    /// any turn runs.
    pub fn with(package: Package, resolver: &AgentResolver, parts: AgentParts) -> Result<Self, Error> {
        for model in package.models() {
            let (_, info) = resolver.models.find(model)?;
            if !package.budgets.bounds_money() || info.prices.is_some() {
                continue;
            }
            let agent = &package.agent;
            let detail = format!(
                "the agent `{agent}` has a budget in money, but the model `{model}` has no known price; set its price in `outlast.toml`, or limit tokens instead"
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        parts.hooks.check(&package, &resolver.limits)?;
        let evaluator = PolicyEvaluator::new(&package, resolver)?;
        check_rates(&package.rates, &resolver.limits)?;
        check_questions(&package)?;
        let parts = AgentParts { tools: parts.tools.with_client(&package.client_tools)?, ..parts };
        let contracts = contracts(&package, &parts.tools)?;
        let hooks = HookRunner::new(resolver, parts.hooks.clone());
        Ok(Self::of(package, contracts, parts, hooks, evaluator))
    }

    /// Resolves the package that a turn was pinned to.
    ///
    /// The model sees the contracts that were recorded, and calls keep their recorded order, limits and retries. Two
    /// things must not have changed since: the effect class of a tool, because the tool itself has to keep that
    /// promise, and the program behind a tool, because that is what was approved.
    pub fn pinned(pinned: PinnedPackage, resolver: &AgentResolver, parts: AgentParts) -> Result<Self, Error> {
        let here = Self::with(pinned.package, resolver, parts)?;
        let Some(contracts) = pinned.contracts else { return Ok(here) };
        for then in &contracts {
            let Some(now) = here.contracts.iter().find(|now| now.name == then.name) else { continue };
            let name = &then.name;
            let detail = if now.class != then.class {
                let (then, now) = (then.class.name(), now.class.name());
                format!("the tool `{name}` was {then} when the turn began, but is {now} here")
            } else if then.made_of.is_some() && now.made_of != then.made_of {
                format!("the tool `{name}` was another program or address when the turn began")
            } else {
                continue;
            };
            return Err(Error::new(Kind::PackageUnavailable, detail));
        }
        let parts = here.parts();
        let parts = AgentParts { tools: parts.tools.with_pinned_schemas(&contracts)?, ..parts };
        Ok(Self::of(here.package, contracts, parts, here.hooks, here.evaluator))
    }

    /// Resolves a package for replaying a recording. Nothing is performed, so models and tools need not exist here.
    /// Hooks at points that record nothing are left out.
    pub(crate) fn offline(pinned: &PinnedPackage, resolver: &AgentResolver) -> Result<Self, Error> {
        let PinnedPackage { mut package, contracts } = pinned.clone();
        package
            .hooks
            .retain(|usage| !matches!(usage.point, HookPoint::BeforeCompletion | HookPoint::AtCheckpoint));
        let evaluator = PolicyEvaluator::new(&package, resolver)?;
        let (parts, hooks) = (resolver.default_parts(), HookRunner::new(resolver, resolver.hooks.clone()));
        Ok(Self::of(package, contracts.unwrap_or_default(), parts, hooks, evaluator))
    }

    /// Returns how long its turns wait for a provider that is down.
    pub(crate) fn provider_wait(&self, limits: &Limits) -> Duration {
        let seconds = self.package.provider_wait_s.map(u64::from);
        seconds.map_or(limits.provider_wait, Duration::from_secs)
    }

    /// Returns whether a turn fails if a provider refuses its key or account, instead of waiting for a person.
    pub(crate) fn fails_if_refused(&self, limits: &Limits) -> bool {
        self.package.sender_waits && self.provider_wait(limits) < limits.refusal_wait
    }

    /// Returns whether the sender of the input runs this tool.
    pub(crate) fn is_client_tool(&self, tool: &ToolName) -> bool {
        self.package.client_tools.iter().any(|client| client.name == *tool)
    }

    /// Returns the contract of a tool.
    pub(crate) fn contract_of(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.contracts.iter().find(|contract| contract.name == *tool)
    }

    /// Returns the labels of the tool definitions that the model is shown.
    pub(crate) fn definition_labels(&self) -> Labels {
        of_definitions(&self.shown)
    }

    /// Returns the price of a call of this tool, if it has one.
    pub(crate) fn price(&self, tool: &ToolName) -> Option<Cost> {
        self.contract_of(tool)?.price
    }

    /// Returns the cost of a call with this outcome. A failed call costs nothing. A call of unknown outcome costs its
    /// price.
    pub(crate) fn charged(&self, tool: &ToolName, outcome: &ToolOutcome) -> Option<Cost> {
        let counts = matches!(outcome, ToolOutcome::Done(ToolResult::Ok(_)) | ToolOutcome::Unknown);
        self.price(tool).filter(|_| counts)
    }

    /// Returns the tools, hooks and organisation of its agent.
    pub(crate) fn parts(&self) -> AgentParts {
        AgentParts { tools: self.catalogue.clone(), hooks: self.hooks.hooks.clone(), org: self.org }
    }

    /// Returns whether callers with this visibility may use it.
    pub(crate) fn is_within(&self, visibility: OrgVisibility) -> bool {
        self.org.is_none_or(|org| visibility.covers(org))
    }

    fn of(
        package: Package,
        contracts: Vec<ToolContract>,
        parts: AgentParts,
        hooks: HookRunner,
        evaluator: PolicyEvaluator,
    ) -> Self {
        let tools = canonical_json::fingerprint(&without_programs(&contracts));
        let may_run =
            |contract: &&ToolContract| !always_denies(&package.policy, &package.agent, &contract.name);
        let shown = contracts.iter().filter(may_run).cloned().collect();
        let pinned = PinnedPackage { package, contracts: Some(contracts) };
        let blobs = pinned.to_blobs();
        let PinnedPackage { package, contracts } = pinned;
        let contracts = contracts.unwrap_or_default();
        let (fingerprint, policy) = (Hash::of(&blobs[0]), evaluator.version(&package.policy));
        let (budgets, stored) = (package.budgets, AtomicBool::new(false));
        let AgentParts { tools: catalogue, org, .. } = parts;
        Self {
            package,
            fingerprint,
            catalogue,
            hooks,
            org,
            contracts,
            shown,
            tools,
            policy,
            evaluator,
            budgets,
            blobs,
            stored,
        }
    }

    /// Returns whether the results of a tool are trusted.
    pub(crate) fn trusts(&self, tool: &ToolName) -> bool {
        self.contract_of(tool).is_some_and(|contract| contract.trusted)
    }

    /// Returns the hash that an approval is bound to. A call runs only if its hash is the approved one.
    pub(crate) fn form(&self, call: &PreparedCall, definition: &ToolContract) -> Hash {
        approved_call_fingerprint(call, canonical_json::fingerprint(definition), self.policy)
    }

    /// Returns the most bytes that the model is sent in addition to the conversation.
    pub(crate) fn prompt_bytes_most(&self) -> usize {
        overhead_bytes_max(&self.package.system, &self.shown)
    }

    /// Returns the most tokens of one reply, for metered turns.
    pub(crate) fn reply_tokens(&self, limits: &Limits) -> u32 {
        self.budgets.reply_tokens.unwrap_or(limits.reply_tokens)
    }

    /// Returns the blobs to store, or nothing if this process has stored them.
    pub(crate) fn to_store(&self) -> Vec<Vec<u8>> {
        if self.stored.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.blobs.clone()
    }

    /// Marks the blobs as stored.
    pub(crate) fn was_stored(&self) {
        self.stored.store(true, Ordering::Relaxed);
    }
}

/// Returns the contracts without the programs and addresses behind the tools. A recording may be replayed on a machine
/// where those differ.
fn without_programs(contracts: &[ToolContract]) -> Cow<'_, [ToolContract]> {
    if contracts.iter().all(|contract| contract.made_of.is_none()) {
        return Cow::Borrowed(contracts);
    }
    contracts.iter().map(|contract| ToolContract { made_of: None, ..contract.clone() }).collect()
}

/// Rejects duplicate rate names, because two rates with one name would share a counter.
fn check_rates(rates: &[RateLimit], limits: &Limits) -> Result<(), Error> {
    limits::check("rates_per_agent", rates.len(), limits.rates_per_agent)?;
    for (index, rate) in rates.iter().enumerate() {
        if rates[..index].iter().any(|other| other.name == rate.name) {
            let detail = format!("two rates are called `{}`; names must be unique", rate.name);
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
    }
    Ok(())
}

/// Rejects a rule that asks for an approval that cannot be given.
fn check_questions(package: &Package) -> Result<(), Error> {
    for Rule { id, then, .. } in &package.policy.rules {
        if let PolicyDecision::Ask(ask) = then {
            ask.check().map_err(|what| {
                let detail = format!("rule `{id}` of the agent `{}`: {what}", package.agent);
                Error::new(Kind::ConfigInvalid, detail)
            })?;
        }
    }
    Ok(())
}

/// Returns the contracts of a package's tools, in its order. It is an error if a tool is missing here, or if a tool
/// names an undo tool that its agent does not have.
pub(crate) fn contracts(package: &Package, catalogue: &ToolCatalogue) -> Result<Vec<ToolContract>, Error> {
    let contract = |name| {
        catalogue.contract(name).cloned().ok_or_else(|| {
            let detail =
                format!("the agent `{}` uses the tool `{name}`, which does not exist here", package.agent);
            Error::new(Kind::ToolUnknown, detail)
        })
    };
    let mut contracts: Vec<ToolContract> =
        package.tools.iter().map(contract).collect::<Result<_, Error>>()?;
    contracts.extend(package.client_tools.iter().map(ClientTool::contract));
    for contract in &contracts {
        if let Some(undo) = contract.undo.as_ref().filter(|undo| !package.tools.contains(undo)) {
            let detail = format!(
                "the tool `{}` is undone by `{undo}`, which the agent `{}` does not have",
                contract.name, package.agent
            );
            return Err(Error::new(Kind::ToolUnknown, detail));
        }
    }
    Ok(contracts)
}
