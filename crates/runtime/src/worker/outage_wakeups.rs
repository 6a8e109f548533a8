//! Wakes turns that wait for a provider once the provider answers again.
//!
//! Turns are woken one at a time with a pause in between, so that a provider that has just recovered is not overloaded.
//! If it fails again, the rest keep waiting. A turn that is not woken here wakes at the deadline of its wait.
use super::WorkerState;
use outlast_views::WaitingTurn;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind};
use std::sync::Arc;

/// Wakes turns until the worker stops.
pub(super) async fn wake_after_outages(inner: Arc<WorkerState>) {
    let mut stopping = inner.stopping.subscribe();
    loop {
        let provider = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            provider = inner.models.health.recovered() => provider,
        };
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            woken = wake_all(&inner, &provider) => {
                if let Err(error) = woken {
                    tracing::warn!(%error, provider, "turns that wait for a provider wake at their deadlines");
                }
            }
        }
    }
}

/// Wakes the turns that wait for this provider, until none is left or the provider fails again.
async fn wake_all(inner: &WorkerState, provider: &str) -> Result<(), Error> {
    let limits = &inner.limits;
    let waiting = inner.store.waiting(WaitKind::Provider, usize::MAX).await?;
    for WaitingTurn { turn, wait, .. } in waiting {
        if !wait.key.awaits_provider(provider) {
            continue;
        }
        if inner.models.health.outages().iter().any(|outage| outage.provider == provider) {
            return Ok(());
        }
        let now = inner.clock.now();
        // Like a passed deadline: unlike a retry by an operator, this respects the provider's rate limit.
        match inner.store.resolve(turn, wait.key, Resolution::Timeout, now).await {
            Ok(_) => inner.wake.notify_one(),
            // It has just woken or ended.
            Err(error) if matches!(error.kind(), Kind::WaitNotFound | Kind::TurnNotFound) => {}
            Err(error) => return Err(error),
        }
        inner.clock.sleep(limits.provider_wake_apart).await;
    }
    Ok(())
}
