//! The agents of this process by name, what sessions and turns make of them, and what turns were pinned to (R10.2).
//!
//! A fold is done and fingerprinted once per change: what was made is kept for the next turn that says the same.
use crate::catalogue::Catalogue;
use crate::hooks::Hooks;
use crate::outfit::{Outfit, Own, World, contracts};
use outlast_kernel::overlay::over;
use outlast_ports::hook::HookAt;
use outlast_ports::store::Store;
use outlast_ports::tool::ToolProvider;
use outlast_vocab::access::Reach;
use outlast_vocab::budget::Budgets;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::package::{Package, Pinned, StoredPackage};
use outlast_vocab::record::{Fact, Record};
use outlast_vocab::tool::ClientTool;
use outlast_vocab::{Error, Hash, Kind, OrgId, TurnId, canon, limits};
use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions that are looked at at once for a turn.
const SESSIONS_AT_ONCE: usize = 50;

/// An agent: its configuration, and where its tools come from. Tools of two agents may share a name.
pub struct Agent {
    /// The configuration.
    pub package: Package,
    /// Its tools.
    pub tools: Vec<Arc<dyn ToolProvider>>,
    /// Its hooks.
    pub hooks: Vec<HookAt>,
}

impl Agent {
    /// What a turn of this agent is pinned to. Whether its model is served is not asked.
    pub fn pinned(self) -> Result<Pinned, Error> {
        let contracts = contracts(&self.package, &Catalogue::new(self.tools)?)?;
        Ok(Pinned { package: self.package, contracts: Some(contracts) })
    }

    /// The same, if this world can run it: whatever a start would refuse of the agent is refused.
    pub fn fitted(self, world: &World) -> Result<Pinned, Error> {
        let Outfit { package, contracts, .. } = outfit(self, None, world)?;
        Ok(Pinned { package, contracts: Some(contracts) })
    }
}

/// An agent as people look at it.
#[derive(Clone, Debug)]
pub struct AgentView {
    /// What it is called.
    pub name: String,
    /// Whether it answers when an input names none.
    pub first: bool,
    /// The fingerprint of its package.
    pub fingerprint: Hash,
    /// What its turns are pinned to.
    pub pinned: Pinned,
}

/// What an input says over its agent.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    /// What the session and the turn say, in this order.
    pub(crate) overlays: &'a [Overlay],
    /// The tools that its sender runs.
    pub(crate) client_tools: &'a [ClientTool],
    /// Seconds that its turn waits for a provider that is down, where neither its agent nor a layer says so.
    pub(crate) provider_wait_s: Option<u32>,
}

/// The agents of a process.
pub(crate) struct Outfits {
    /// The agent that answers when an input names none.
    first: String,
    most: usize,
    known: Mutex<Known>,
}

struct Known {
    named: BTreeMap<String, Arc<Outfit>>,
    /// Made of overlays or read from the store, the oldest first.
    made: VecDeque<(Hash, Arc<Outfit>)>,
    /// Replaced by others, the oldest first: turns that began with them go on with their tools.
    past: VecDeque<Arc<Outfit>>,
}

impl Known {
    /// Keeps an agent that answers no more for the turns that began with it.
    fn retire(&mut self, name: &str, agent: Option<Arc<Outfit>>, most: usize) {
        // What was made of it has its tools: no input may be answered by that any more either.
        let of_it: VecDeque<_>;
        (of_it, self.made) =
            take(&mut self.made).into_iter().partition(|(_, made)| made.package.agent == name);
        self.past.extend(of_it.into_iter().map(|(_, outfit)| outfit));
        self.past.extend(agent);
        let too_many = self.past.len().saturating_sub(most);
        self.past.drain(..too_many);
    }
}

impl Outfits {
    /// These agents; the first one answers when an input names none.
    pub(crate) fn new(first: Package, others: Vec<Agent>, world: &World) -> Result<Self, Error> {
        let name = first.agent.clone();
        let mut named = BTreeMap::from([(name.clone(), Arc::new(Outfit::new(first, world)?))]);
        for agent in others {
            let outfit = outfit(agent, None, world)?;
            let name = outfit.package.agent.clone();
            if named.insert(name.clone(), Arc::new(outfit)).is_some() {
                let detail = format!("two agents are called `{name}`; names must be unique");
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        let known = Mutex::new(Known { named, made: VecDeque::new(), past: VecDeque::new() });
        Ok(Self { first: name, most: world.limits.packages_kept, known })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent that answers when an input names none.
    pub(crate) fn first(&self, reach: Reach) -> Result<Arc<Outfit>, Error> {
        let known = self.known();
        known.named.get(&self.first).filter(|first| first.is_within(reach)).cloned().ok_or_else(|| {
            let detail = format!(
                "no agent answers an input that names none here; there are: {}",
                names(&known, reach)
            );
            Error::new(Kind::AgentNotFound, detail)
        })
    }

    /// Every agent that answers those who are shown these rows, by name.
    pub(crate) fn views(&self, reach: Reach) -> Vec<AgentView> {
        let known = self.known();
        let view = |(name, outfit): (&String, &Arc<Outfit>)| AgentView {
            name: name.clone(),
            first: *name == self.first,
            fingerprint: outfit.fingerprint,
            pinned: Pinned { package: outfit.package.clone(), contracts: Some(outfit.contracts.clone()) },
        };
        known.named.iter().filter(|(_, outfit)| outfit.is_within(reach)).map(view).collect()
    }

    /// Lets an agent answer from now on, in place of the one of its name. Turns that were accepted before keep theirs.
    pub(crate) fn put(&self, agent: Agent, world: &World) -> Result<Hash, Error> {
        let outfit = Arc::new(outfit(agent, None, world)?);
        let fingerprint = outfit.fingerprint;
        self.wear(outfit);
        Ok(fingerprint)
    }

    /// The same with one that is made.
    pub(crate) fn wear(&self, outfit: Arc<Outfit>) {
        let mut known = self.known();
        let name = outfit.package.agent.clone();
        let replaced = known.named.insert(name.clone(), outfit);
        known.retire(&name, replaced, self.most);
    }

    /// Lets an agent that was made of rows answer no more. Turns that were accepted before keep it.
    pub(crate) fn shed(&self, name: &str) {
        let mut known = self.known();
        if known.named.get(name).is_some_and(|outfit| outfit.org.is_some()) {
            let gone = known.named.remove(name);
            known.retire(name, gone, self.most);
        }
    }

    /// What answers an input that names this agent and says this of itself.
    pub(crate) fn chosen(
        &self,
        agent: Option<&str>,
        layers: Layers<'_>,
        reach: Reach,
        world: &World,
    ) -> Result<Arc<Outfit>, Error> {
        let Layers { overlays, client_tools, provider_wait_s } = layers;
        let base = match agent {
            Some(agent) => self.named(agent, reach)?,
            None => self.first(reach)?,
        };
        let provider_wait_s = base.package.provider_wait_s.or(provider_wait_s);
        let waits_as_usual = provider_wait_s == base.package.provider_wait_s;
        if overlays.is_empty() && client_tools.is_empty() && waits_as_usual {
            return Ok(base);
        }
        let key = canon::fingerprint(&(base.fingerprint, overlays, client_tools, provider_wait_s));
        if let Some(made) = self.made(key) {
            return Ok(made);
        }
        limits::check("client_tools", client_tools.len(), world.limits.client_tools)?;
        let package = Package { provider_wait_s, ..base.package.clone() };
        let package = fold(package, overlays)?;
        let package = Package { client_tools: client_tools.to_vec(), ..package };
        let outfit = Arc::new(Outfit::with(package, world, base.own())?);
        self.keep(key, &outfit);
        Ok(outfit)
    }

    /// What a turn of somebody who is shown these rows was accepted or begun with.
    pub(crate) async fn pinned(
        &self,
        fingerprint: Hash,
        reach: Reach,
        store: &dyn Store,
        world: &World,
    ) -> Result<Arc<Outfit>, Error> {
        if let Some(outfit) = self.here(fingerprint, reach) {
            return Ok(outfit);
        }
        let pinned = read(store, fingerprint).await?;
        let own = self.own(&pinned.package.agent, reach)?;
        let outfit = Outfit::pinned(pinned, world, own).map(Arc::new).map_err(|error| {
            let detail = format!("the turn began under another configuration: {}", error.detail());
            Error::new(Kind::PackageUnavailable, detail).because(error)
        })?;
        self.keep(fingerprint, &outfit);
        Ok(outfit)
    }

    /// The budgets that count for a turn: its own and its session's as it began with them, and its agent's as the agent says now,
    /// because all turns of the agent share that one.
    pub(crate) fn budgets(&self, outfit: &Outfit, reach: Reach) -> Arc<Budgets> {
        match self.named(&outfit.package.agent, reach) {
            Ok(now) if now.budgets.agent != outfit.budgets.agent => {
                let agent = now.budgets.agent.clone();
                Arc::new(Budgets { agent, ..Budgets::clone(&outfit.budgets) })
            }
            _ => outfit.budgets.clone(),
        }
    }

    /// An agent. One of another organisation is none (R12.8).
    fn named(&self, name: &str, reach: Reach) -> Result<Arc<Outfit>, Error> {
        let known = self.known();
        known.named.get(name).filter(|outfit| outfit.is_within(reach)).cloned().ok_or_else(|| {
            let detail = format!("no agent is called `{name}` here; there are: {}", names(&known, reach));
            Error::new(Kind::AgentNotFound, detail)
        })
    }

    /// The tools and hooks of an agent. Another agent may have tools of the same names, which are not the same tools.
    fn own(&self, agent: &str, reach: Reach) -> Result<Own, Error> {
        self.named(agent, reach).map(|outfit| outfit.own()).map_err(|error| {
            let detail = format!("the turn began under another configuration: {}", error.detail());
            Error::new(Kind::PackageUnavailable, detail).because(error)
        })
    }

    /// What has this fingerprint in this process, for those who are shown these rows.
    pub(crate) fn here(&self, fingerprint: Hash, reach: Reach) -> Option<Arc<Outfit>> {
        let known = self.known();
        let is_it = |outfit: &Outfit| outfit.fingerprint == fingerprint && outfit.is_within(reach);
        let named = known.named.values().find(|outfit| is_it(outfit));
        // What was made for an input is kept under what the input says, what was read under the name it was read by.
        let is_made = |(key, outfit): &&(Hash, Arc<Outfit>)| {
            is_it(outfit) || (*key == fingerprint && outfit.is_within(reach))
        };
        let made = || known.made.iter().find(is_made).map(|(_, outfit)| outfit);
        let past = || known.past.iter().rev().find(|outfit| is_it(outfit));
        named.or_else(made).or_else(past).cloned()
    }

    fn made(&self, key: Hash) -> Option<Arc<Outfit>> {
        self.known().made.iter().find(|(made, _)| *made == key).map(|(_, outfit)| outfit.clone())
    }

    fn keep(&self, key: Hash, outfit: &Arc<Outfit>) {
        let mut known = self.known();
        known.made.push_back((key, outfit.clone()));
        if known.made.len() > self.most {
            known.made.pop_front();
        }
    }
}

/// The agents that answer those who are shown these rows, as they are told them.
fn names(known: &Known, reach: Reach) -> String {
    let shown = known.named.iter().filter(|(_, outfit)| outfit.is_within(reach));
    shown.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// An agent as this world can run it, made of the rows of this organisation if it is not one of the program.
pub(crate) fn outfit(agent: Agent, org: Option<OrgId>, world: &World) -> Result<Outfit, Error> {
    let Agent { package, tools, hooks } = agent;
    for model in package.models().filter(|model| world.model(model).is_err()) {
        if let Some(lacks) = world.models.iter().find_map(|provider| provider.why_not(model)) {
            return Err(lacks);
        }
    }
    let own = Own { tools: Arc::new(Catalogue::new(tools)?), hooks: Arc::new(Hooks::new(hooks)?), org };
    Outfit::with(package, world, own)
}

/// A package with these layers over it, in order.
pub fn fold(package: Package, overlays: &[Overlay]) -> Result<Package, Error> {
    overlays.iter().try_fold(package, |package, overlay| over(&package, overlay.clone()))
}

/// A stored package with its sidecars.
pub async fn read(store: &dyn Store, fingerprint: Hash) -> Result<Pinned, Error> {
    let stored = StoredPackage::read(fingerprint, &store.blob(fingerprint).await?)?;
    let mut sidecars = Vec::new();
    for (_, hash) in stored.sidecars() {
        sidecars.push(store.blob(hash).await?);
    }
    stored.whole(sidecars)
}

/// The newest turn that runs or ran under a package, of the newest sessions that are shown, as far as `most` turns reach.
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

/// The package that the records of a turn name last.
fn named(records: &[Record]) -> Option<Hash> {
    records.iter().rev().find_map(|record| match &record.fact {
        Fact::Started(started) => Some(started.package),
        Fact::Accepted(accepted) => accepted.package,
        _ => None,
    })
}

/// What a turn was accepted for or began under; nothing where it says neither.
pub async fn of_turn(store: &dyn Store, turn: TurnId) -> Result<Option<Pinned>, Error> {
    let package = match store.package(turn).await {
        Err(error) if error.kind() == Kind::BlobNotFound => return Ok(None),
        package => package?,
    };
    serde_json::from_slice(&package).map(Some).map_err(|cause| {
        Error::new(Kind::RecordCorrupt, format!("the package of {turn} does not decode")).because(cause)
    })
}
