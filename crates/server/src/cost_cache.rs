//! Caches the cost sums of organisations between requests.
use outlast_runtime::Runtime;
use outlast_runtime::views::costs::OrgCostCache;
use outlast_vocab::Error;
use outlast_vocab::access::{Access, OrgVisibility};
use outlast_vocab::limits::ServerLimits;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of organisations whose sums are cached. The sums of others are computed again on each request.
const MAX_CACHED: usize = 4;

/// The most recently requested sums, newest last.
#[derive(Default)]
pub(crate) struct CostCache(Mutex<Vec<(OrgVisibility, Arc<OrgCostCache>)>>);

impl CostCache {
    /// Returns what was spent so far within `visibility`.
    ///
    /// Reads with the access of the worker: the costs of deleted sessions are in the audit, which not every
    /// caller that may read costs may read.
    pub(crate) async fn sums_within(
        &self,
        runtime: &Runtime,
        visibility: OrgVisibility,
        limits: &ServerLimits,
    ) -> Result<Arc<OrgCostCache>, Error> {
        let sums = self.cached_sums(visibility, limits);
        let access = Access { visibility, ..runtime.access().clone() };
        sums.read_on(runtime.serving(access).store().as_ref()).await?;
        Ok(sums)
    }

    fn cached_sums(&self, visibility: OrgVisibility, limits: &ServerLimits) -> Arc<OrgCostCache> {
        let mut caches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = caches.iter().position(|(of, _)| *of == visibility).map(|at| caches.remove(at).1);
        let sums = known.unwrap_or_else(|| Arc::new(OrgCostCache::new(limits.cost_entries)));
        caches.push((visibility, sums.clone()));
        let old = caches.len().saturating_sub(MAX_CACHED);
        caches.drain(..old);
        sums
    }
}
