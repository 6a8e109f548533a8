//! The handle to a running worker: [`Outlast`].
use crate::builder::StorageLocation;
use crate::{Builder, MemoryStore, Session, Turn};
use outlast_ports::inbox::SessionTarget;
use outlast_ports::metrics::MetricsSnapshot;
use outlast_ports::store::Store;
use outlast_runtime::Runtime;
use outlast_runtime::attachments::Attachments;
use outlast_vocab::access::{Access, OrgVisibility, Principal};
use outlast_vocab::{Error, Hash, SessionId, TurnId};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long [`Outlast::shut_down`] waits for running turns to finish their current step.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle to a running worker, scoped to one organisation (by default the one called `default`).
///
/// Cloning is cheap.
///
/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().builtin_tools().start().await?;
/// let ann = outlast.session("ann"); // always the same session
/// ann.send("remember my name is Ann").await?.answer().await?;
/// let turn = ann.send("what is my name?").await?;
/// assert_eq!(turn.answer().await?, "Your name is Ann.");
///
/// // Another process can find the turn by its id.
/// let found = outlast.turn(turn.id()).await?;
/// assert_eq!(found.session(), turn.session());
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Outlast {
    pub(crate) runtime: Runtime,
}

impl Outlast {
    /// Returns a builder that stores everything in one SQLite file. The file is created if it does not exist.
    pub fn at(path: impl AsRef<Path>) -> Builder {
        Builder::new(StorageLocation::File(path.as_ref().to_owned()))
    }

    /// Returns a builder for a further agent, to pass to [`Builder::add_agent`]. The agent's sessions are stored with those
    /// of the first agent.
    ///
    /// # Example
    ///
    /// ```
    /// use outlast::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let clerk = Outlast::agent("clerk").system("Sell cakes.").builtin_tools();
    /// let outlast = Outlast::ephemeral().system("Help.").add_agent(clerk).start().await?;
    /// let session = outlast.session("ann").answered_by("clerk");
    /// assert_eq!(session.send("add 2 and 3").await?.answer().await?, "2 + 3 is 5.");
    /// # outlast.shut_down().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn agent(name: impl Into<String>) -> Builder {
        Self::ephemeral().agent(name)
    }

    /// Returns a builder that stores everything in memory, for tests and scripts whose data need not survive.
    pub fn ephemeral() -> Builder {
        Builder::new(StorageLocation::Memory(MemoryStore::new()))
    }

    /// Returns the session with this key, on its main head. The first input creates the session.
    pub fn session(&self, key: impl Into<String>) -> Session {
        let fresh = self.runtime.fresh_session();
        Session::new(self.runtime.clone(), SessionTarget::Key { key: key.into(), fresh })
    }

    /// Returns the session with this id.
    pub fn session_by_id(&self, id: SessionId) -> Session {
        Session::new(self.runtime.clone(), SessionTarget::Id(id))
    }

    /// Returns a new session without a key.
    pub fn new_session(&self) -> Session {
        Session::new(self.runtime.clone(), SessionTarget::New(self.runtime.fresh_session()))
    }

    /// Returns a turn that this or another process accepted before.
    pub async fn turn(&self, id: TurnId) -> Result<Turn, Error> {
        Turn::find(self.runtime.clone(), id).await
    }

    /// Adds an agent to the running worker, or replaces the agent of the same name. Returns the fingerprint of its
    /// package.
    ///
    /// The agent uses the model providers, limits and clock of this worker. Turns that are already accepted keep the
    /// agent version they started with.
    ///
    /// ```
    /// # async fn example() -> Result<(), outlast::Error> {
    /// use outlast::Outlast;
    ///
    /// let outlast = Outlast::ephemeral().start().await?;
    /// outlast.put_agent(Outlast::agent("clerk").system("Sell cakes."))?;
    /// outlast.session("ann").answered_by("clerk").send("two cakes, please").await?.answer().await?;
    /// # outlast.shut_down().await;
    /// # Ok(())
    /// # }
    /// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
    /// ```
    pub fn put_agent(&self, agent: Builder) -> Result<Hash, Error> {
        self.runtime.put_agent(agent.into_single_agent()?)
    }

    /// Returns the underlying worker, to cancel, resolve, retry and follow turns.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the underlying store, to read sessions, records and unknown outcomes.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.runtime.store()
    }

    /// Returns the attachments, which can be read as a stream or by range from any storage.
    pub fn attachments(&self) -> Attachments {
        self.runtime.attachments()
    }

    /// Returns the counters of this process since its start and the current gauges: turns, model calls, tokens, tools
    /// and writes, over all organisations. `outlast::telemetry::exposition` formats them for Prometheus.
    pub async fn metrics(&self) -> Result<MetricsSnapshot, Error> {
        self.operator().runtime.metrics().await
    }

    /// Returns a handle of the same worker for another organisation, given by name or id.
    ///
    /// The handle only sees the sessions, turns and waits of that organisation.
    pub async fn for_org(&self, org: &str) -> Result<Self, Error> {
        let org = self.runtime.find_org(org).await?;
        let access = self.runtime.access().clone();
        Ok(self.with_access(Access { visibility: OrgVisibility::Org(org), ..access }))
    }

    /// Returns a handle that acts for another principal. The audit log records that principal's name.
    #[must_use]
    pub fn acting_as(&self, who: Principal) -> Self {
        self.with_access(self.runtime.access().clone().by(who))
    }

    /// Returns a handle for the holder of an API key, limited to the key's organisation and scopes. The audit log
    /// records the key's name.
    pub async fn with_api_key(&self, api_key: &str) -> Result<Self, Error> {
        Ok(self.with_access(self.runtime.admit(api_key).await?))
    }

    /// Returns a handle over all organisations, to create and manage them.
    #[must_use]
    pub fn operator(&self) -> Self {
        let access = Access { by: self.runtime.access().by.clone(), ..Access::operator() };
        self.with_access(access)
    }

    fn with_access(&self, access: Access) -> Self {
        Self { runtime: self.runtime.serving(access) }
    }

    /// Shuts the worker down. Running turns stop after their current step, and any other process can resume them.
    pub async fn shut_down(self) {
        self.runtime.shut_down(DRAIN_TIMEOUT).await;
    }
}
