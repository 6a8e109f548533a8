//! Agents that are made of what a database keeps: at the start, when something is kept, and when another process kept something.
//!
//! A change that would break an agent is refused before it is written. What another process wrote cannot be refused any more: an
//! agent that cannot be made of it stays as it was, and is listed ([`LeftOut`]). Who makes agents is the program's business
//! ([`Tailor`]); which of them answer is that of [`outfits`](crate::outfits).
use crate::outfit::{Outfit, World};
use crate::outfits::{Agent, Outfits, outfit};
use outlast_ports::configs::{ConfigKind, StoredConfig};
use outlast_ports::store::Store;
use outlast_vocab::access::Access;
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, OrgId, canon};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Plans agents from what a database keeps.
pub trait Tailor: Send + Sync {
    /// The agents that come of the last versions of everything. An agent that the program has anyway is not among them.
    fn plans(&self, kept: &[StoredConfig]) -> Result<Vec<Plan>, Error>;

    /// Whether something that is to be kept beside everything else can be read, be an agent made of it or not.
    fn check(&self, new: &StoredConfig, kept: &[StoredConfig]) -> Result<(), Error>;
}

/// An agent before it is made.
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// Whether the database has the agent itself: it is its organisation's then. One of the program that only stands on something
    /// there is everybody's.
    pub is_kept: bool,
    /// The fingerprint of all that it is made of. While that stays, the agent is not made again.
    pub layers: Hash,
    /// Makes it.
    pub make: Make,
}

/// Makes an agent, or says why that cannot be.
pub type Make = Box<dyn FnOnce() -> Result<Agent, Error> + Send>;

/// Whose agents are made, and by whom.
pub struct Tailored {
    /// The organisation: only what it keeps becomes agents.
    pub org: OrgId,
    /// Who plans them.
    pub by: Arc<dyn Tailor>,
}

/// An agent that cannot be made of what the database has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What it is called.
    pub name: String,
    /// What is wrong.
    pub failure: Failure,
    /// Whether it answers as it was made before.
    pub answers: bool,
}

/// What became of something that was to be kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The version that is the last one now.
    pub config: StoredConfig,
    /// Where it counts.
    pub counts: Counts,
}

/// Where something that is kept counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// In this process, from the next input on.
    Here,
    /// Nowhere in this process: the program has an agent of that name of its own.
    Hidden,
    /// In processes that make agents of what this organisation keeps; this one does not.
    Elsewhere,
}

/// What is to be kept, or to be kept no more.
pub(crate) struct Change {
    pub(crate) kind: ConfigKind,
    pub(crate) name: String,
    /// What it says; nothing where it is deleted.
    pub(crate) body: Option<Value>,
    /// The version that must be the last one, where it matters; 0 is none.
    pub(crate) last: Option<u32>,
}

impl Change {
    /// Writes it, as somebody who has this store.
    pub(crate) async fn write(self, store: &dyn Store, now: Millis) -> Result<StoredConfig, Error> {
        let Self { kind, name, body, last } = self;
        match (body, last) {
            (Some(body), Some(last)) => store.replace_config(kind, name, body, last, now).await,
            (Some(body), None) => store.put_config(kind, name, body, now).await,
            (None, last) => store.delete_config(kind, name, last, now).await,
        }
    }
}

/// Keeps the agents of a process with what its database keeps.
pub(crate) struct Fitting {
    tailored: Tailored,
    /// As the organisation has it.
    store: Arc<dyn Store>,
    outfits: Arc<Outfits>,
    world: Arc<World>,
    /// Held while agents are made: one change after the other.
    made: tokio::sync::Mutex<Made>,
    left_out: Mutex<Vec<LeftOut>>,
}

/// What the agents that answer were made of.
#[derive(Default)]
struct Made {
    /// The versions that were looked at; none before the first look.
    seen: Option<BTreeMap<(ConfigKind, String), u32>>,
    /// The layers of each agent.
    layers: BTreeMap<String, Hash>,
}

/// Agents that are made and do not answer yet.
struct Cut {
    names: BTreeSet<String>,
    ready: Vec<(Hash, Arc<Outfit>)>,
    failed: Vec<(String, Error)>,
}

impl Fitting {
    pub(crate) fn new(
        tailored: Tailored,
        store: Arc<dyn Store>,
        outfits: Arc<Outfits>,
        world: Arc<World>,
    ) -> Self {
        let store = store.serving(Access::to(tailored.org));
        let (made, left_out) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { tailored, store, outfits, world, made, left_out }
    }

    /// The organisation whose agents they are.
    pub(crate) fn org(&self) -> OrgId {
        self.tailored.org
    }

    /// The agents that cannot be made, by name.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeftOut>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something was kept here that nobody has looked at since.
    pub(crate) async fn is_behind(&self) -> bool {
        self.made.lock().await.seen.is_none()
    }

    /// Looks at what is kept and lets agents that are made of something else by now answer.
    pub(crate) async fn look(&self) -> Result<(), Error> {
        let mut made = self.made.lock().await;
        let kept = self.kept().await?;
        self.catch_up(&mut made, &kept)
    }

    /// Changes something, if every agent that is made of it can still be made. From then on those answer.
    pub(crate) async fn change(
        &self,
        change: Change,
        as_whom: &dyn Store,
        now: Millis,
    ) -> Result<Kept, Error> {
        let Change { kind, name, body, .. } = &change;
        if let Some(body) = body {
            kind.check(name, body)?;
        }
        let (kind, name, deletes) = (*kind, name.clone(), body.is_none());
        let mut made = self.made.lock().await;
        let mut kept = self.kept().await?;
        // What others broke before is not this change's fault.
        self.catch_up(&mut made, &kept)?;
        change_in(&mut kept, &change, now);
        if let Some(new) = kept.iter().find(|config| config.kind == kind && config.name == name) {
            self.tailored.by.check(new, &kept)?;
        }
        let cut = self.cut(&made, &kept)?;
        let was_left_out: BTreeSet<String> = self.left_out().into_iter().map(|left| left.name).collect();
        for (agent, error) in &cut.failed {
            let is_it = kind == ConfigKind::Agent && *agent == name;
            if deletes && !was_left_out.contains(agent) {
                let detail = format!("the agent `{agent}` could not be made any more: {}", error.detail());
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            if is_it || !was_left_out.contains(agent) {
                return Err(refused(agent, error, is_it));
            }
        }
        // Whoever asked may not wait until it is written; then the next look finds it.
        let seen = made.seen.take();
        let config = change.write(as_whom, now).await?;
        let seen = made.seen.insert(seen.unwrap_or_default());
        if deletes {
            seen.remove(&(kind, name.clone()));
        } else {
            seen.insert((kind, name.clone()), config.version);
        }
        let is_hidden = kind == ConfigKind::Agent && !cut.names.contains(&name);
        self.wear(&mut made, cut);
        Ok(Kept { config, counts: if is_hidden { Counts::Hidden } else { Counts::Here } })
    }

    /// The last versions of everything.
    async fn kept(&self) -> Result<Vec<StoredConfig>, Error> {
        let mut kept = Vec::new();
        for kind in ConfigKind::ALL {
            kept.extend(self.store.configs(kind, usize::MAX).await?);
        }
        Ok(kept)
    }

    fn catch_up(&self, made: &mut Made, kept: &[StoredConfig]) -> Result<(), Error> {
        let seen = kept.iter().map(|config| ((config.kind, config.name.clone()), config.version));
        let seen = Some(seen.collect());
        if made.seen == seen {
            return Ok(());
        }
        let cut = self.cut(made, kept)?;
        for (agent, error) in &cut.failed {
            tracing::warn!(agent, %error, "an agent cannot be made of what the database has; if it answered before, it goes on so");
        }
        made.seen = seen;
        self.wear(made, cut);
        Ok(())
    }

    /// Makes every agent whose layers have changed, and those that could not be made before.
    fn cut(&self, made: &Made, kept: &[StoredConfig]) -> Result<Cut, Error> {
        let mut cut = Cut { names: BTreeSet::new(), ready: Vec::new(), failed: Vec::new() };
        for Plan { name, is_kept, layers, make } in self.tailored.by.plans(kept)? {
            cut.names.insert(name.clone());
            if made.layers.get(&name) == Some(&layers) {
                continue;
            }
            let org = is_kept.then_some(self.tailored.org);
            match make().and_then(|agent| outfit(agent, org, &self.world)) {
                Ok(outfit) => cut.ready.push((layers, Arc::new(outfit))),
                Err(error) => cut.failed.push((name, error)),
            }
        }
        Ok(cut)
    }

    /// Lets agents answer, and those no more that are gone.
    fn wear(&self, made: &mut Made, cut: Cut) {
        made.layers.retain(|agent, _| {
            let stays = cut.names.contains(agent);
            if !stays {
                tracing::info!(agent, "an agent of the database was deleted and answers no more");
                self.outfits.shed(agent);
            }
            stays
        });
        for (layers, outfit) in cut.ready {
            let (agent, package) = (&outfit.package.agent, outfit.fingerprint);
            tracing::info!(agent, %package, "an agent of the database answers from now on");
            made.layers.insert(agent.clone(), layers);
            self.outfits.wear(outfit);
        }
        let left_out = |(name, error): (String, Error)| {
            let answers = made.layers.contains_key(&name);
            LeftOut { name, failure: Failure::from(&error), answers }
        };
        *self.lock() = cut.failed.into_iter().map(left_out).collect();
    }
}

/// Puts what is to be kept in the place of its last version, or takes that away.
fn change_in(kept: &mut Vec<StoredConfig>, change: &Change, at: Millis) {
    let Change { kind, name, body, .. } = change;
    let Some(body) = body else {
        kept.retain(|config| config.kind != *kind || config.name != *name);
        return;
    };
    let next = |version| StoredConfig {
        kind: *kind,
        name: name.clone(),
        version,
        fingerprint: canon::fingerprint(body),
        body: body.clone(),
        at,
    };
    match kept.iter_mut().find(|config| config.kind == *kind && config.name == *name) {
        Some(config) => *config = next(config.version + 1),
        None => kept.push(next(1)),
    }
}

/// Why something is not kept. What would be a mistake of the machine at a start is one of the request here.
fn refused(agent: &str, error: &Error, is_it: bool) -> Error {
    let (kind, detail) = match error.kind().status() {
        400 | 404 => (error.kind(), error.detail().to_owned()),
        _ => (Kind::ConfigInvalid, error.to_string()),
    };
    if is_it {
        return Error::new(kind, detail);
    }
    Error::new(kind, format!("the agent `{agent}` could not be made any more: {detail}"))
}
