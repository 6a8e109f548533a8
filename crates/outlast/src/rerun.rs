//! Runs a recorded session again from any point, with another prompt, model or tool set, and compares the results.
//!
//! ```
//! use outlast::Outlast;
//! use outlast::rerun::Rerun;
//!
//! # async fn example(file: std::io::Cursor<Vec<u8>>) -> Result<(), outlast::Error> {
//! let agent = Outlast::ephemeral().builtin_tools().system("Answer in one word.");
//! let compared = Rerun::new(file).from("1".parse()?).run_with(agent).await?;
//! for turn in &compared.turns {
//!     println!("{:?} was {:?}", turn.rerun.answer, turn.recorded.answer);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A re-run happens in memory and writes nothing to the store of the session. Calls that have a recorded answer get
//! that answer. At-most-once calls are not made unless you allow them with [`Rerun::run_at_most_once`].
pub use outlast_runtime::replay::rerun::{RerunReport, RerunStart, TraceCall, TurnComparison, TurnTrace};

use crate::{Builder, MemoryStore};
use outlast_runtime::replay::rerun::{RerunSettings, rerun};
use outlast_views::Org;
use outlast_vocab::Error;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::Duration;

/// A recorded session to run again. Configure it, then call [`Rerun::run_with`].
#[must_use = "nothing runs until it has an agent"]
pub struct Rerun<R> {
    archive: R,
    settings: RerunSettings,
}

impl<R: Read + Seek + Send + 'static> Rerun<R> {
    /// Runs the session of an archive from its first turn.
    pub fn new(archive: R) -> Self {
        Self { archive, settings: RerunSettings::default() }
    }

    /// Sets the point to start from.
    pub fn from(mut self, point: RerunStart) -> Self {
        self.settings.start = point;
        self
    }

    /// Makes repeatable calls for real, even if the recording has an answer for them.
    pub fn live(mut self) -> Self {
        self.settings.live = true;
        self
    }

    /// Makes at-most-once calls for which the recording has no answer. They have real effects.
    pub fn run_at_most_once(mut self) -> Self {
        self.settings.run_at_most_once = true;
        self
    }

    /// Runs the session as one of this organisation, under its rules. The default is the default organisation.
    pub fn as_org(mut self, org: Org) -> Self {
        self.settings.org = org;
        self
    }

    /// Sets a timeout for the whole re-run, including the time that turns sleep or wait.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.settings.timeout = Some(time);
        self
    }

    /// Runs the session with this agent. The builder's storage, sinks and payments are ignored.
    pub async fn run_with(self, agent: Builder) -> Result<RerunReport, Error> {
        let memory = Arc::new(MemoryStore::new());
        rerun(memory, self.archive, self.settings, |store, worker| agent.config(store, worker)).await
    }
}
