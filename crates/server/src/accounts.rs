//! Caches the cost sums of organisations between requests.
use outlast_runtime::Runtime;
use outlast_runtime::costs::Sums;
use outlast_vocab::Error;
use outlast_vocab::access::{Access, Reach};
use outlast_vocab::limits::ServerLimits;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of organisations whose sums are cached. The sums of others are computed again on each request.
const KEPT: usize = 4;

/// The most recently requested sums, newest last.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<Vec<(Reach, Arc<Sums>)>>);

impl Accounts {
    /// Returns what was spent so far within `reach`.
    ///
    /// Reads with the access of the worker: the costs of deleted sessions are in the audit, which not every
    /// caller that may read costs may read.
    pub(crate) async fn of(
        &self,
        runtime: &Runtime,
        reach: Reach,
        limits: &ServerLimits,
    ) -> Result<Arc<Sums>, Error> {
        let sums = self.sums(reach, limits);
        let access = Access { reach, ..runtime.access().clone() };
        sums.read_on(runtime.serving(access).store().as_ref()).await?;
        Ok(sums)
    }

    fn sums(&self, reach: Reach, limits: &ServerLimits) -> Arc<Sums> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(of, _)| *of == reach).map(|at| kept.remove(at).1);
        let sums = known.unwrap_or_else(|| Arc::new(Sums::new(limits.cost_entries)));
        kept.push((reach, sums.clone()));
        let old = kept.len().saturating_sub(KEPT);
        kept.drain(..old);
        sums
    }
}
