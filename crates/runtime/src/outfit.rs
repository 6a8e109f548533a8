//! What a turn works with: the ports of this process, and what its package resolves to among them.
use crate::attachments::Attachments;
use crate::catalogue::Catalogue;
use crate::files::RecentFiles;
use crate::gate::Gate;
use crate::governor::Governor;
use crate::hooks::Hooks;
use crate::live::Hub;
use crate::metrics::Metrics;
use crate::plugins::Plugins;
use crate::provider_health::ProviderHealth;
use outlast_kernel::policy::forbids;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::contents::Contents;
use outlast_ports::model::{ModelInfo, ModelProvider, told_most};
use outlast_ports::payment::PaymentAuthority;
use outlast_ports::policy::PolicyEngine;
use outlast_ports::rate::Limiter;
use outlast_ports::store::Store;
use outlast_vocab::access::Reach;
use outlast_vocab::budget::Budgets;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::hook::HookPoint;
use outlast_vocab::message::{ModelName, ToolName, ToolResult};
use outlast_vocab::package::{Package, Pinned};
use outlast_vocab::policy::{Decision, Rule, approved_form};
use outlast_vocab::rate::Rate;
use outlast_vocab::tool::{ClientTool, Contract, PreparedCall};
use outlast_vocab::{Error, Hash, Kind, Limits, OrgId, canon, limits};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The outside world as this process reaches it. Built once at start-up.
pub struct World {
    /// Who speaks to models.
    pub models: Vec<Arc<dyn ModelProvider>>,
    /// The tools of the agent that answers when an input names none.
    pub tools: Arc<Catalogue>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where random bits come from.
    pub entropy: Arc<dyn Entropy>,
    /// The bounds.
    pub limits: Limits,
    /// The line to those who watch.
    pub hub: Hub,
    /// Attachments that were shown to a model a moment ago.
    pub files: RecentFiles,
    /// Who may ask a provider, and when.
    pub governor: Governor,
    /// Which providers are down.
    pub health: ProviderHealth,
    /// Where the contents of attachments lie, unless that is the database.
    pub contents: Option<Arc<dyn Contents>>,
    /// Whether an operator has set a budget, so that turns of agents without one are counted too.
    pub(crate) budgets_set: AtomicBool,
    /// What runs at points of turns.
    pub hooks: Arc<Hooks>,
    /// What inputs may carry something for.
    pub plugins: Plugins,
    /// What is counted.
    pub metrics: Metrics,
    /// Who pays, where somebody does.
    pub payments: Option<Arc<dyn PaymentAuthority>>,
    /// Who decides beside the rules of agents, where somebody does.
    pub policy_engine: Option<Arc<dyn PolicyEngine>>,
    /// Who keeps rates, unless that is the database.
    pub limiter: Option<Arc<dyn Limiter>>,
}

impl World {
    /// These ports, within these bounds. Contents of attachments lie in the database.
    pub fn new(
        models: Vec<Arc<dyn ModelProvider>>,
        tools: Catalogue,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        limits: Limits,
    ) -> Self {
        let (hub, files) = (Hub::new(limits.live_frames), RecentFiles::new(limits.recent_file_bytes));
        let governor = Governor::default();
        let tools = Arc::new(tools);
        let (budgets_set, metrics) = (AtomicBool::new(false), Metrics::since(clock.now()));
        Self {
            models,
            tools,
            clock,
            entropy,
            limits,
            hub,
            files,
            governor,
            health: ProviderHealth::default(),
            contents: None,
            hooks: Arc::default(),
            budgets_set,
            plugins: Plugins::default(),
            metrics,
            payments: None,
            policy_engine: None,
            limiter: None,
        }
    }

    /// Whether an operator has set a budget.
    pub(crate) fn budgets_are_set(&self) -> bool {
        self.budgets_set.load(Ordering::Relaxed)
    }

    /// Looks whether an operator has set a budget.
    pub(crate) async fn look_at_budgets(&self, store: &dyn Store) -> Result<(), Error> {
        let set = store.budgets_are_set().await?;
        self.budgets_set.store(set, Ordering::Relaxed);
        Ok(())
    }

    /// The attachments of a database.
    pub fn attachments(&self, store: &Arc<dyn Store>) -> Attachments {
        Attachments::new(store.clone(), self.contents.clone(), self.limits.clone())
    }

    /// Who serves a model, and what is known of it.
    pub fn model(&self, name: &ModelName) -> Result<(&dyn ModelProvider, ModelInfo), Error> {
        let serves = |provider: &'_ Arc<dyn ModelProvider>| provider.info(name);
        let found = self.models.iter().find_map(|provider| Some((provider.as_ref(), serves(provider)?)));
        found.ok_or_else(|| Error::new(Kind::ModelUnknown, format!("no provider serves the model `{name}`")))
    }
}

/// What an agent brings: names in it are its own.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its tools.
    pub tools: Arc<Catalogue>,
    /// Its hooks.
    pub hooks: Arc<Hooks>,
    /// The organisation of whose rows it was made; one of the program is everybody's.
    pub org: Option<OrgId>,
}

/// A package as this process can run it.
#[derive(Debug)]
pub struct Outfit {
    /// The configuration.
    pub package: Package,
    /// The name under which it is stored, with the contracts.
    pub fingerprint: Hash,
    /// The tools of its agent.
    pub catalogue: Arc<Catalogue>,
    /// The hooks of its agent.
    pub hooks: Arc<Hooks>,
    /// The organisation of whose rows its agent was made; one of the program is everybody's.
    pub(crate) org: Option<OrgId>,
    /// The contracts of its tools, in its order.
    pub contracts: Vec<Contract>,
    /// Those of them that the model is shown: no tool that a rule forbids altogether (R6.12).
    pub(crate) shown: Vec<Contract>,
    /// The fingerprint of all.
    pub tools: Hash,
    /// The version of its policy.
    pub policy: Hash,
    /// Who decides, besides its rules.
    pub(crate) gate: Gate,
    /// What its turns may use.
    pub budgets: Arc<Budgets>,
    /// What is stored: what a turn is pinned to, and its sidecars.
    blobs: Vec<Vec<u8>>,
    /// Whether this process has stored it.
    stored: AtomicBool,
}

impl Outfit {
    /// Resolves a package with the tools of the first agent.
    pub fn new(package: Package, world: &World) -> Result<Self, Error> {
        let own = Own { tools: world.tools.clone(), hooks: world.hooks.clone(), org: None };
        Self::with(package, world, own)
    }

    /// Resolves a package with what its agent brings. A model, a tool or a hook that is not here is an error now, not in the
    /// middle of a turn (R1.5).
    pub fn with(package: Package, world: &World, own: Own) -> Result<Self, Error> {
        for model in package.models() {
            let (_, info) = world.model(model)?;
            if !package.budgets.bounds_money() || info.prices.is_some() {
                continue;
            }
            let agent = &package.agent;
            let detail = format!(
                "the agent `{agent}` has a budget in money, but nobody knows what the model `{model}` costs; give it a \
                 price in `outlast.toml`, or bound tokens"
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        own.hooks.check(&package, &world.limits)?;
        let gate = Gate::new(&package, world)?;
        check_rates(&package.rates, &world.limits)?;
        check_questions(&package)?;
        let own = Own { tools: own.tools.with_client(&package.client_tools)?, ..own };
        let contracts = contracts(&package, &own.tools)?;
        Ok(Self::of(package, contracts, own, gate))
    }

    /// Resolves what a turn was pinned to (R10.2). The model goes on being told what it was told, and calls go on being
    /// ordered, bounded and tried again as they were; only what may happen to an interrupted call must not have changed,
    /// because that is a promise the tool itself has to keep, nor the program that performs it: it is not what was approved.
    pub fn pinned(pinned: Pinned, world: &World, own: Own) -> Result<Self, Error> {
        let here = Self::with(pinned.package, world, own)?;
        let Some(contracts) = pinned.contracts else { return Ok(here) };
        for then in &contracts {
            let Some(now) = here.contracts.iter().find(|now| now.name == then.name) else { continue };
            let name = &then.name;
            let detail = if now.class != then.class {
                let (then, now) = (then.class.name(), now.class.name());
                format!("the tool `{name}` was {then} when the turn began, and is {now} here")
            } else if then.made_of.is_some() && now.made_of != then.made_of {
                format!("the tool `{name}` was another program or address when the turn began")
            } else {
                continue;
            };
            return Err(Error::new(Kind::PackageUnavailable, detail));
        }
        let own = here.own();
        let own = Own { tools: own.tools.as_told(&contracts)?, ..own };
        Ok(Self::of(here.package, contracts, own, here.gate))
    }

    /// What a recording is replayed under: nothing of it is performed, so nothing of it has to be here. Hooks that would run
    /// where nothing is recorded are left out.
    pub(crate) fn offline(pinned: &Pinned, world: &World) -> Result<Self, Error> {
        let Pinned { mut package, contracts } = pinned.clone();
        package
            .hooks
            .retain(|usage| !matches!(usage.point, HookPoint::BeforeCompletion | HookPoint::AtCheckpoint));
        let own = Own { tools: world.tools.clone(), hooks: world.hooks.clone(), org: None };
        let gate = Gate::new(&package, world)?;
        Ok(Self::of(package, contracts.unwrap_or_default(), own, gate))
    }

    /// How long its turns wait for a provider that is down.
    pub(crate) fn provider_wait(&self, limits: &Limits) -> Duration {
        let seconds = self.package.provider_wait_s.map(u64::from);
        seconds.map_or(limits.provider_wait, Duration::from_secs)
    }

    /// Whether whoever sent the input runs this tool.
    pub(crate) fn is_client_tool(&self, tool: &ToolName) -> bool {
        self.package.client_tools.iter().any(|client| client.name == *tool)
    }

    /// What a call of this tool costs, if it has a price.
    pub(crate) fn price(&self, tool: &ToolName) -> Option<Cost> {
        self.contracts.iter().find(|contract| contract.name == *tool)?.price
    }

    /// What a call with this outcome cost: one that failed costs nothing, and of one that may have happened nobody knows better.
    pub(crate) fn charged(&self, tool: &ToolName, outcome: &ToolOutcome) -> Option<Cost> {
        let counts = matches!(outcome, ToolOutcome::Done(ToolResult::Ok(_)) | ToolOutcome::Unknown);
        self.price(tool).filter(|_| counts)
    }

    /// What its agent brings.
    pub(crate) fn own(&self) -> Own {
        Own { tools: self.catalogue.clone(), hooks: self.hooks.clone(), org: self.org }
    }

    /// Whether it answers those who are shown these rows (R12.8).
    pub(crate) fn is_within(&self, reach: Reach) -> bool {
        self.org.is_none_or(|org| reach.covers(org))
    }

    fn of(package: Package, contracts: Vec<Contract>, own: Own, gate: Gate) -> Self {
        let tools = canon::fingerprint(&told(&contracts));
        let may_run = |contract: &&Contract| !forbids(&package.policy, &package.agent, &contract.name);
        let shown = contracts.iter().filter(may_run).cloned().collect();
        let pinned = Pinned { package: package.clone(), contracts: Some(contracts.clone()) };
        let blobs = pinned.to_blobs();
        let (fingerprint, policy) = (Hash::of(&blobs[0]), gate.version(&package.policy));
        let (budgets, stored) = (Arc::new(package.budgets.clone()), AtomicBool::new(false));
        let Own { tools: catalogue, hooks, org } = own;
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
            gate,
            budgets,
            blobs,
            stored,
        }
    }

    /// Whether what a tool gives may be trusted.
    pub(crate) fn trusts(&self, tool: &ToolName) -> bool {
        self.contracts.iter().any(|contract| contract.name == *tool && contract.trusted)
    }

    /// The form in which somebody approves a call: what runs later must have it too.
    pub(crate) fn form(&self, call: &PreparedCall, definition: &Contract) -> Hash {
        approved_form(call, canon::fingerprint(definition), self.policy)
    }

    /// Bytes that the model is told besides the conversation.
    pub(crate) fn told_bytes(&self) -> usize {
        told_most(&self.package.system, &self.shown)
    }

    /// Tokens that one reply may have, where what turns use is counted.
    pub(crate) fn reply_tokens(&self, world: &World) -> u32 {
        self.budgets.reply_tokens.unwrap_or(world.limits.reply_tokens)
    }

    /// What is to be stored, unless this process has stored it before.
    pub(crate) fn to_store(&self) -> Vec<Vec<u8>> {
        if self.stored.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.blobs.clone()
    }

    /// Notes that it is stored.
    pub(crate) fn was_stored(&self) {
        self.stored.store(true, Ordering::Relaxed);
    }
}

/// The contracts as far as they say what a model is told and what becomes of its calls: a recording may be replayed where programs
/// lie elsewhere.
fn told(contracts: &[Contract]) -> Cow<'_, [Contract]> {
    if contracts.iter().all(|contract| contract.made_of.is_none()) {
        return Cow::Borrowed(contracts);
    }
    contracts.iter().map(|contract| Contract { made_of: None, ..contract.clone() }).collect()
}

/// Two rates of one name would take from one another.
fn check_rates(rates: &[Rate], limits: &Limits) -> Result<(), Error> {
    limits::check("rates_per_agent", rates.len(), limits.rates_per_agent)?;
    for (index, rate) in rates.iter().enumerate() {
        if rates[..index].iter().any(|other| other.name == rate.name) {
            let detail = format!("two rates are called `{}`; names must be unique", rate.name);
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
    }
    Ok(())
}

/// Refuses an agent with a rule that asks what nobody can answer.
fn check_questions(package: &Package) -> Result<(), Error> {
    for Rule { id, then, .. } in &package.policy.rules {
        if let Decision::Ask(ask) = then {
            ask.check().map_err(|what| {
                let detail = format!("rule `{id}` of the agent `{}`: {what}", package.agent);
                Error::new(Kind::ConfigInvalid, detail)
            })?;
        }
    }
    Ok(())
}

/// The contracts of a package's tools, in its order. A tool that is not here, or that is taken back by one that its agent does
/// not have, is an error.
pub(crate) fn contracts(package: &Package, catalogue: &Catalogue) -> Result<Vec<Contract>, Error> {
    let contract = |name| {
        catalogue.contract(name).cloned().ok_or_else(|| {
            let detail = format!("the agent `{}` uses the tool `{name}`, which is not here", package.agent);
            Error::new(Kind::ToolUnknown, detail)
        })
    };
    let mut contracts: Vec<Contract> = package.tools.iter().map(contract).collect::<Result<_, Error>>()?;
    contracts.extend(package.client_tools.iter().map(ClientTool::contract));
    for contract in &contracts {
        if let Some(undo) = contract.undo.as_ref().filter(|undo| !package.tools.contains(undo)) {
            let detail = format!(
                "the tool `{}` is taken back by `{undo}`, which the agent `{}` does not have",
                contract.name, package.agent
            );
            return Err(Error::new(Kind::ToolUnknown, detail));
        }
    }
    Ok(contracts)
}
