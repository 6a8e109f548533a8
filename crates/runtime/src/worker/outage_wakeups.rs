//! Wakes turns that wait for a provider once the provider answers again.
//!
//! Turns are woken one at a time with a pause in between, so that a provider that has just recovered is not overloaded.
//! If it fails again, the rest keep waiting. A turn that is not woken here wakes at the deadline of its wait.
use super::active_drives::ActiveDrives;
use crate::turn::model_client::ModelCatalogue;
use outlast_ports::clock::Clock;
use outlast_ports::store::Store;
use outlast_views::WaitingTurn;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind};
use std::sync::Arc;
use std::time::Duration;

/// Wakes the turns that waited for a provider.
pub(super) struct OutageWakeups {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) models: Arc<ModelCatalogue>,
    pub(super) drives: Arc<ActiveDrives>,
    /// The pause between two turns.
    pub(super) pause: Duration,
}

impl OutageWakeups {
    /// Wakes turns until the worker stops.
    pub(super) async fn run(self) {
        let mut stopping = self.drives.stopping();
        loop {
            let provider = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                provider = self.models.health.recovered() => provider,
            };
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                woken = self.wake_all(&provider) => {
                    if let Err(error) = woken {
                        tracing::warn!(%error, provider, "turns that wait for a provider wake at their deadlines");
                    }
                }
            }
        }
    }

    /// Wakes the turns that wait for this provider, until none is left or the provider fails again.
    async fn wake_all(&self, provider: &str) -> Result<(), Error> {
        let waiting = self.store.waiting(WaitKind::Provider, usize::MAX).await?;
        for WaitingTurn { turn, wait, .. } in waiting {
            if !wait.key.awaits_provider(provider) {
                continue;
            }
            if self.models.health.outages().iter().any(|outage| outage.provider == provider) {
                return Ok(());
            }
            let now = self.clock.now();
            // Like a passed deadline: unlike a retry by an operator, this respects the provider's rate limit.
            match self.store.resolve(turn, wait.key, Resolution::Timeout, now).await {
                Ok(_) => self.drives.wake(),
                // It has just woken or ended.
                Err(error) if matches!(error.kind(), Kind::WaitNotFound | Kind::TurnNotFound) => {}
                Err(error) => return Err(error),
            }
            self.clock.sleep(self.pause).await;
        }
        Ok(())
    }
}
