//! Replays the session of an archive without any outside call, as recorded or under another agent.
use crate::MemoryStore;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::{Error, Limits};
use std::io::{Read, Seek};
use std::sync::Arc;

pub use outlast_runtime::replay::{Divergence, Replay, ReplayedTurn};

/// Replays the session of an archive, in memory.
pub async fn replay(
    from: impl Read + Seek + Send + 'static,
    agent: Option<&PinnedPackage>,
    limits: &Limits,
) -> Result<Replay, Error> {
    outlast_runtime::replay::replay(Arc::new(MemoryStore::new()), from, agent, limits).await
}
