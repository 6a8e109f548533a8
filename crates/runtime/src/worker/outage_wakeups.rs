//! Wakes turns that wait for a provider once the provider answers again.
//!
//! The turns of a provider are woken one at a time with a pause in between, so that a provider that has just recovered
//! is not overloaded. If it fails again, the rest keep waiting. Providers do not delay each other. A turn that is not
//! woken here wakes at the deadline of its wait.
use super::active_drives::ActiveDrives;
use crate::turn::journal_writer::WorkerJournal;
use crate::turn::model_client::ModelCatalogue;
use crate::turn::model_request::backoff;
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_views::WaitingTurn;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind, Limits, ReplayKey, TurnId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Wakes the turns that waited for a provider.
pub(super) struct OutageWakeups {
    pub(super) journal: Arc<WorkerJournal>,
    pub(super) models: Arc<ModelCatalogue>,
    pub(super) drives: Arc<ActiveDrives>,
}

/// The result of one pass over the waiting turns.
enum WakePass {
    WokeSome,
    FoundNone,
    IsDownAgain,
}

impl OutageWakeups {
    /// Wakes turns until the worker stops.
    pub(super) async fn run(self) {
        let mut stopping = self.drives.stopping();
        let mut passes = FuturesUnordered::new();
        // The providers whose turns are being woken, and whether they have recovered again meanwhile.
        let mut waking: BTreeMap<String, bool> = BTreeMap::new();
        loop {
            let next = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                provider = self.models.health.recovered() => match waking.get_mut(&provider) {
                    Some(again) => {
                        *again = true;
                        None
                    }
                    None => Some(provider),
                },
                Some(provider) = passes.next() => waking.remove(&provider).filter(|again| *again).map(|_| provider),
            };
            if let Some(provider) = next {
                waking.insert(provider.clone(), false);
                passes.push(self.wake_all(provider));
            }
        }
    }

    /// Wakes the turns that wait for this provider, until none is left or the provider fails again. Returns the provider.
    async fn wake_all(&self, provider: String) -> String {
        let Limits { provider_pause_first, provider_pause_most, .. } = *self.journal.limits;
        let (mut woken, mut failures, mut was_idle) = (BTreeSet::new(), 0_u32, false);
        loop {
            match self.wake_waiting(&provider, &mut woken).await {
                Ok(WakePass::WokeSome) => was_idle = false,
                Ok(WakePass::FoundNone) if was_idle => return provider,
                // A turn that saw the outage may be about to park.
                Ok(WakePass::FoundNone) => {
                    was_idle = true;
                    self.journal.clock.sleep(provider_pause_first).await;
                }
                Ok(WakePass::IsDownAgain) => return provider,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    tracing::warn!(%error, provider, "turns that wait for a provider could not be woken; this is tried again");
                    self.journal
                        .clock
                        .sleep(backoff(provider_pause_first, provider_pause_most, failures))
                        .await;
                }
            }
        }
    }

    /// Wakes the turns that wait for this provider now. Each model call is woken once, so that one that fails again keeps
    /// its own pauses.
    async fn wake_waiting(
        &self,
        provider: &str,
        woken: &mut BTreeSet<(TurnId, Option<ReplayKey>)>,
    ) -> Result<WakePass, Error> {
        let waiting = self.journal.store.waiting(WaitKind::Provider, usize::MAX).await?;
        let mut pass = WakePass::FoundNone;
        for WaitingTurn { turn, wait, .. } in waiting {
            let call = (turn, wait.key.waiting_model_call());
            if !wait.key.awaits_provider(provider) || woken.contains(&call) {
                continue;
            }
            if self.models.health.is_down(provider) {
                return Ok(WakePass::IsDownAgain);
            }
            let now = self.journal.clock.now();
            // Like a passed deadline: unlike a retry by an operator, this respects the provider's rate limit.
            match self.journal.store.resolve(turn, wait.key, Resolution::Timeout, now).await {
                Ok(_) => self.drives.wake(),
                // It has just woken or ended.
                Err(error) if matches!(error.kind(), Kind::WaitNotFound | Kind::TurnNotFound) => {}
                Err(error) => return Err(error),
            }
            woken.insert(call);
            pass = WakePass::WokeSome;
            self.journal.clock.sleep(self.journal.limits.provider_wake_apart).await;
        }
        Ok(pass)
    }
}
