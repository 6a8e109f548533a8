//! Runs sessions again for callers. Who does so is for the program to say: the server knows no agents.
use outlast_ports::BoxFuture;
use outlast_ports::orgs::Org;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A recorded session, and what is to be different this time.
#[derive(Clone, Debug)]
pub struct Again {
    /// Whose session it is: the rules of that organisation count.
    pub org: Org,
    /// How long it may take.
    pub within: Duration,
    /// The session as a file.
    pub archive: Vec<u8>,
    /// From where: a turn or an effect.
    pub from: Option<String>,
    /// Which agent answers.
    pub agent: Option<String>,
    /// Which model answers.
    pub model: Option<String>,
    /// What the model is told in place of the agent's prompt.
    pub prompt: Option<String>,
    /// Whether calls that may be repeated are made anew.
    pub live: bool,
    /// Whether calls that must happen at most once are made.
    pub run_at_most_once: bool,
}

/// Runs a session again and compares, as JSON.
pub type Rerunner = Arc<dyn Fn(Again) -> BoxFuture<'static, Result<Value, Error>> + Send + Sync>;

/// Who runs sessions again, and how many at the same time.
pub(crate) struct Reruns {
    by: Option<Rerunner>,
    room: Arc<Semaphore>,
}

/// Room for one.
pub(crate) struct Slot {
    by: Rerunner,
    room: OwnedSemaphorePermit,
}

impl Reruns {
    pub(crate) fn new(by: Option<Rerunner>, most: usize) -> Self {
        Self { by, room: Arc::new(Semaphore::new(most)) }
    }

    /// Room for one, if there is any.
    pub(crate) fn slot(&self) -> Result<Slot, Error> {
        let by = self.by.clone().ok_or_else(|| {
            Error::new(Kind::RouteNotFound, "this server does not run sessions again; `outlast serve` does")
        })?;
        let room = self.room.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                Kind::ServerBusy,
                "as many sessions are run again as this server may (`reruns`); try again later",
            )
        })?;
        Ok(Slot { by, room })
    }
}

impl Slot {
    /// Runs it. It comes to its end even if whoever asked goes away, because half of a worker would be left behind.
    pub(crate) async fn run(self, again: Again) -> Result<Value, Error> {
        let Self { by, room } = self;
        let task = tokio::spawn(async move {
            let compared = by(again).await;
            drop(room);
            compared
        });
        task.await.map_err(|cause| Error::new(Kind::Internal, "a re-run panicked").because(cause))?
    }
}
