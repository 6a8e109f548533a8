//! What organisations spent, kept between requests.
use outlast_runtime::Runtime;
use outlast_runtime::costs::Sums;
use outlast_vocab::Error;
use outlast_vocab::access::{Access, Reach};
use outlast_vocab::limits::ServerLimits;
use std::sync::{Arc, Mutex, PoisonError};

/// Organisations whose sums are kept. Those of others are added up anew when somebody asks.
const KEPT: usize = 4;

/// The sums of those who asked last, the latest at the end.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<Vec<(Reach, Arc<Sums>)>>);

impl Accounts {
    /// What was spent so far where this reaches. Read in the worker's name: what was deleted is in the audit, which not everybody
    /// who may look at costs may read.
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
