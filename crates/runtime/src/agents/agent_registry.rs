//! The registry of agents of this process: named agents, variants with overlays, and packages that turns are pinned to.
//!
//! Variants are cached by their fingerprint, so turns with the same overlays share one [`ResolvedAgent`]. Loading agents from
//! the database is in [`crate::agents::agent_factory`].
use crate::agents::agent_resolver::AgentResolver;
use crate::agents::resolved_agent::{AgentParts, ResolvedAgent, contracts};
use crate::calls::catalogue::ToolCatalogue;
use crate::policy::hooks::Hooks;
use outlast_kernel::overlay::over;
use outlast_ports::hook::HookAt;
use outlast_ports::store::Store;
use outlast_ports::tool::ToolProvider;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::budget::Budgets;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::package::{Package, PinnedPackage, StoredPackage};
use outlast_vocab::record::{Fact, Record};
use outlast_vocab::tool::ClientTool;
use outlast_vocab::{Error, Hash, Kind, OrgId, TurnId, canonical_json, limits};
use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The page size for reading sessions in [`turn_under`].
const SESSIONS_AT_ONCE: usize = 50;

/// An agent: its configuration, tools and hooks. Two agents may have different tools with the same name.
pub struct AgentBundle {
    /// The configuration.
    pub package: Package,
    /// Its tools.
    pub tools: Vec<Arc<dyn ToolProvider>>,
    /// Its hooks.
    pub hooks: Vec<HookAt>,
}

impl AgentBundle {
    /// Resolves the package and contracts that a turn of this agent is pinned to. Does not check that its model is
    /// served.
    pub fn pinned(self) -> Result<PinnedPackage, Error> {
        let contracts = contracts(&self.package, &ToolCatalogue::new(self.tools)?)?;
        Ok(PinnedPackage { package: self.package, contracts: Some(contracts) })
    }

    /// Like [`pinned`](Self::pinned), but returns an error if this process cannot run the agent, as at start-up.
    pub fn fitted(self, resolver: &AgentResolver) -> Result<PinnedPackage, Error> {
        let ResolvedAgent { package, contracts, .. } = resolve_agent(self, None, resolver)?;
        Ok(PinnedPackage { package, contracts: Some(contracts) })
    }
}

/// A summary of an agent, for display.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// The name.
    pub name: String,
    /// Whether it is the default agent, which answers inputs that name no agent.
    pub first: bool,
    /// The fingerprint of its package.
    pub fingerprint: Hash,
    /// The package and contracts that its turns are pinned to.
    pub pinned: PinnedPackage,
}

/// The settings of an input that override its agent.
#[derive(Clone, Copy)]
pub(crate) struct InputLayers<'a> {
    /// The overlays of the session and of the turn, in this order.
    pub(crate) overlays: &'a [Overlay],
    /// The tools that the sender of the input runs.
    pub(crate) client_tools: &'a [ClientTool],
    /// Seconds that its turn waits for a provider that is down, if the sender waits on an open connection. Applies only
    /// if neither the agent nor an overlay sets it.
    pub(crate) provider_wait_s: Option<u32>,
}

/// The agents of a process.
pub(crate) struct AgentRegistry {
    /// The default agent, which answers inputs that name no agent.
    first: String,
    resolver: AgentResolver,
    /// How many variants and how many replaced agents are kept.
    kept_max: usize,
    known: Mutex<RegistryState>,
}

struct RegistryState {
    named: BTreeMap<String, Arc<ResolvedAgent>>,
    /// Variants with overlays and packages read from the store, oldest first.
    made: VecDeque<(Hash, Arc<ResolvedAgent>)>,
    /// Replaced agents, oldest first. Turns that began with them keep using their tools.
    past: VecDeque<Arc<ResolvedAgent>>,
}

impl RegistryState {
    /// Keeps an agent that was replaced or removed, for the turns that began with it.
    fn retire(&mut self, name: &str, agent: Option<Arc<ResolvedAgent>>, most: usize) {
        // Variants share the tools of their agent, so they must not answer new inputs either.
        let of_it: VecDeque<_>;
        (of_it, self.made) =
            take(&mut self.made).into_iter().partition(|(_, made)| made.package.agent == name);
        self.past.extend(of_it.into_iter().map(|(_, resolved_agent)| resolved_agent));
        self.past.extend(agent);
        let too_many = self.past.len().saturating_sub(most);
        self.past.drain(..too_many);
    }
}

impl AgentRegistry {
    /// Creates a registry of these agents. The first one is the default agent.
    pub(crate) fn new(
        first: Package,
        others: Vec<AgentBundle>,
        resolver: AgentResolver,
    ) -> Result<Self, Error> {
        let name = first.agent.clone();
        let mut named = BTreeMap::from([(name.clone(), Arc::new(ResolvedAgent::new(first, &resolver)?))]);
        for agent in others {
            let resolved_agent = Arc::new(resolve_agent(agent, None, &resolver)?);
            if let Some(other) = named.insert(resolved_agent.package.agent.clone(), resolved_agent) {
                let detail = format!("two agents are called `{}`; names must be unique", other.package.agent);
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        let known = Mutex::new(RegistryState { named, made: VecDeque::new(), past: VecDeque::new() });
        let kept_max = resolver.limits.packages_kept;
        Ok(Self { first: name, resolver, kept_max, known })
    }

    fn known(&self) -> MutexGuard<'_, RegistryState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tools of the default agent.
    pub(crate) fn default_tools(&self) -> &ToolCatalogue {
        &self.resolver.tools
    }

    /// Returns the default agent, which answers inputs that name no agent.
    pub(crate) fn first(&self, visibility: OrgVisibility) -> Result<Arc<ResolvedAgent>, Error> {
        let known = self.known();
        known.named.get(&self.first).filter(|first| first.is_within(visibility)).cloned().ok_or_else(|| {
            let detail =
                format!("there is no default agent here; name one of: {}", names(&known, visibility));
            Error::new(Kind::AgentNotFound, detail)
        })
    }

    /// Returns all agents that callers with this visibility may use, by name.
    pub(crate) fn views(&self, visibility: OrgVisibility) -> Vec<AgentView> {
        let known = self.known();
        let view = |(name, resolved_agent): (&String, &Arc<ResolvedAgent>)| AgentView {
            name: name.clone(),
            first: *name == self.first,
            fingerprint: resolved_agent.fingerprint,
            pinned: PinnedPackage {
                package: resolved_agent.package.clone(),
                contracts: Some(resolved_agent.contracts.clone()),
            },
        };
        known
            .named
            .iter()
            .filter(|(_, resolved_agent)| resolved_agent.is_within(visibility))
            .map(view)
            .collect()
    }

    /// Resolves an agent and installs it in place of the one with its name. Turns that were accepted before keep
    /// theirs.
    pub(crate) fn put(&self, agent: AgentBundle) -> Result<Hash, Error> {
        let resolved_agent = Arc::new(self.resolve(agent, None)?);
        let fingerprint = resolved_agent.fingerprint;
        self.install(resolved_agent);
        Ok(fingerprint)
    }

    /// Resolves an agent without installing it. `org` is the organisation whose database configuration it was built
    /// from, or `None` for an agent of the program.
    pub(crate) fn resolve(&self, agent: AgentBundle, org: Option<OrgId>) -> Result<ResolvedAgent, Error> {
        resolve_agent(agent, org, &self.resolver)
    }

    /// Installs a resolved agent in place of the one with its name.
    pub(crate) fn install(&self, resolved_agent: Arc<ResolvedAgent>) {
        let mut known = self.known();
        let name = resolved_agent.package.agent.clone();
        let replaced = known.named.insert(name.clone(), resolved_agent);
        known.retire(&name, replaced, self.kept_max);
    }

    /// Removes an agent that was loaded from the database. Turns that were accepted before keep it.
    pub(crate) fn remove(&self, name: &str) {
        let mut known = self.known();
        if known.named.get(name).is_some_and(|resolved_agent| resolved_agent.org.is_some()) {
            let gone = known.named.remove(name);
            known.retire(name, gone, self.kept_max);
        }
    }

    /// Returns the agent for an input: the named or the default one, with the settings of the input applied.
    pub(crate) fn chosen(
        &self,
        agent: Option<&str>,
        layers: InputLayers<'_>,
        visibility: OrgVisibility,
    ) -> Result<Arc<ResolvedAgent>, Error> {
        let InputLayers { overlays, client_tools, provider_wait_s } = layers;
        let base = match agent {
            Some(agent) => self.named(agent, visibility)?,
            None => self.first(visibility)?,
        };
        let sender_waits = provider_wait_s.is_some();
        let provider_wait_s = base.package.provider_wait_s.or(provider_wait_s);
        if overlays.is_empty() && client_tools.is_empty() && !sender_waits {
            return Ok(base);
        }
        let key = canonical_json::fingerprint(&(
            base.fingerprint,
            overlays,
            client_tools,
            (provider_wait_s, sender_waits),
        ));
        if let Some(made) = self.made(key) {
            return Ok(made);
        }
        limits::check("client_tools", client_tools.len(), self.resolver.limits.client_tools)?;
        let package = Package { provider_wait_s, sender_waits, ..base.package.clone() };
        let package = fold(package, overlays)?;
        let package = Package { client_tools: client_tools.to_vec(), ..package };
        let resolved_agent = Arc::new(ResolvedAgent::with(package, &self.resolver, base.parts())?);
        self.keep(key, &resolved_agent);
        Ok(resolved_agent)
    }

    /// Returns the package that a turn was accepted or started with, from memory or from the store.
    pub(crate) async fn pinned(
        &self,
        fingerprint: Hash,
        visibility: OrgVisibility,
        store: &dyn Store,
    ) -> Result<Arc<ResolvedAgent>, Error> {
        if let Some(resolved_agent) = self.here(fingerprint, visibility) {
            return Ok(resolved_agent);
        }
        let pinned = read(store, fingerprint).await?;
        let parts = self.parts_of(&pinned.package.agent, visibility)?;
        let resolved_agent =
            ResolvedAgent::pinned(pinned, &self.resolver, parts).map(Arc::new).map_err(|error| {
                let detail = format!("the turn began under another configuration: {}", error.detail());
                Error::new(Kind::PackageUnavailable, detail).because(error)
            })?;
        self.keep(fingerprint, &resolved_agent);
        Ok(resolved_agent)
    }

    /// Returns the budgets of a turn. The turn and session budgets are those it started with. The agent budget is the
    /// current one, because all turns of the agent share it.
    pub(crate) fn budgets(&self, resolved_agent: &ResolvedAgent, visibility: OrgVisibility) -> Budgets {
        match self.named(&resolved_agent.package.agent, visibility) {
            Ok(now) => Budgets { agent: now.budgets.agent, ..resolved_agent.budgets },
            Err(_) => resolved_agent.budgets,
        }
    }

    /// Returns an agent by name. Agents of other organisations are reported as not found.
    fn named(&self, name: &str, visibility: OrgVisibility) -> Result<Arc<ResolvedAgent>, Error> {
        let known = self.known();
        known
            .named
            .get(name)
            .filter(|resolved_agent| resolved_agent.is_within(visibility))
            .cloned()
            .ok_or_else(|| {
                let detail =
                    format!("no agent is called `{name}` here; there are: {}", names(&known, visibility));
                Error::new(Kind::AgentNotFound, detail)
            })
    }

    /// Returns the tools and hooks of an agent. Another agent may have different tools with the same names.
    fn parts_of(&self, agent: &str, visibility: OrgVisibility) -> Result<AgentParts, Error> {
        self.named(agent, visibility).map(|resolved_agent| resolved_agent.parts()).map_err(|error| {
            let detail = format!("the turn began under another configuration: {}", error.detail());
            Error::new(Kind::PackageUnavailable, detail).because(error)
        })
    }

    /// Returns the agent with this fingerprint, if it is in memory and callers with this visibility may use it.
    pub(crate) fn here(&self, fingerprint: Hash, visibility: OrgVisibility) -> Option<Arc<ResolvedAgent>> {
        let known = self.known();
        let is_it = |resolved_agent: &ResolvedAgent| {
            resolved_agent.fingerprint == fingerprint && resolved_agent.is_within(visibility)
        };
        let named = known.named.values().find(|resolved_agent| is_it(resolved_agent));
        // A variant is cached under the hash of the input's settings, a stored package under its own fingerprint.
        let is_made = |(key, resolved_agent): &&(Hash, Arc<ResolvedAgent>)| {
            is_it(resolved_agent) || (*key == fingerprint && resolved_agent.is_within(visibility))
        };
        let made = || known.made.iter().find(is_made).map(|(_, resolved_agent)| resolved_agent);
        let past = || known.past.iter().rev().find(|resolved_agent| is_it(resolved_agent));
        named.or_else(made).or_else(past).cloned()
    }

    fn made(&self, key: Hash) -> Option<Arc<ResolvedAgent>> {
        self.known()
            .made
            .iter()
            .find(|(made, _)| *made == key)
            .map(|(_, resolved_agent)| resolved_agent.clone())
    }

    fn keep(&self, key: Hash, resolved_agent: &Arc<ResolvedAgent>) {
        let mut known = self.known();
        known.made.push_back((key, resolved_agent.clone()));
        if known.made.len() > self.kept_max {
            known.made.pop_front();
        }
    }
}

/// Returns the names of the agents that callers with this visibility may use, for error messages.
fn names(known: &RegistryState, visibility: OrgVisibility) -> String {
    let shown = known.named.iter().filter(|(_, resolved_agent)| resolved_agent.is_within(visibility));
    shown.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

fn resolve_agent(
    agent: AgentBundle,
    org: Option<OrgId>,
    resolver: &AgentResolver,
) -> Result<ResolvedAgent, Error> {
    let AgentBundle { package, tools, hooks } = agent;
    for model in package.models() {
        if let Some(reason) = resolver.models.unavailable_reason(model) {
            return Err(reason);
        }
    }
    let (tools, hooks) = (Arc::new(ToolCatalogue::new(tools)?), Arc::new(Hooks::new(hooks)?));
    ResolvedAgent::with(package, resolver, AgentParts { tools, hooks, org })
}

/// Applies overlays to a package, in order.
pub fn fold(package: Package, overlays: &[Overlay]) -> Result<Package, Error> {
    overlays.iter().try_fold(package, |package, overlay| over(&package, overlay.clone()))
}

/// Reads a stored package with its sidecars.
pub async fn read(store: &dyn Store, fingerprint: Hash) -> Result<PinnedPackage, Error> {
    let stored = StoredPackage::read(fingerprint, &store.blob(fingerprint).await?)?;
    let mut sidecars = Vec::new();
    for (_, hash) in stored.sidecars() {
        sidecars.push(store.blob(hash).await?);
    }
    stored.with_sidecars(sidecars)
}

/// Returns the newest turn that runs or ran under a package. Searches the visible sessions, newest first, and at most
/// `most` turns.
pub async fn turn_under(store: &dyn Store, fingerprint: Hash, most: usize) -> Result<Option<TurnId>, Error> {
    let (mut before, mut looked_at) = (None, 0);
    loop {
        let sessions = store.sessions(before, SESSIONS_AT_ONCE).await?;
        let Some(last) = sessions.last() else { return Ok(None) };
        before = Some(last.id);
        for session in &sessions {
            let left = u32::try_from(most - looked_at).unwrap_or(u32::MAX);
            let newest = store.turns(session.id, session.turns.saturating_sub(left), left as usize).await?;
            looked_at += newest.len();
            for turn in newest.iter().rev() {
                if named(&store.turn_records(turn.id).await?) == Some(fingerprint) {
                    return Ok(Some(turn.id));
                }
            }
            if looked_at >= most {
                return Ok(None);
            }
        }
    }
}

/// Returns the package that the records of a turn name last.
fn named(records: &[Record]) -> Option<Hash> {
    records.iter().rev().find_map(|record| match &record.fact {
        Fact::Started(started) => Some(started.package),
        Fact::Accepted(accepted) => accepted.package,
        _ => None,
    })
}

/// Reads the package that a turn was accepted or started with. Returns `None` if its records name none.
pub async fn of_turn(store: &dyn Store, turn: TurnId) -> Result<Option<PinnedPackage>, Error> {
    let package = match store.package(turn).await {
        Err(error) if error.kind() == Kind::BlobNotFound => return Ok(None),
        package => package?,
    };
    serde_json::from_slice(&package).map(Some).map_err(|cause| {
        Error::new(Kind::RecordCorrupt, format!("the package of {turn} does not decode")).because(cause)
    })
}
