//! Reads the metrics of a worker and exports them periodically. An exporter that is down or hangs delays no turn.
use super::{Inner, lock};
use crate::metrics::Standing;
use futures_util::future::{Either, select};
use outlast_ports::metrics::{MetricSink, Snapshot};
use outlast_ports::store::Store;
use outlast_vocab::{Error, Kind};
use std::sync::Arc;

/// Returns the counters of the process and the gauges that this store shows.
pub(super) async fn snapshot(inner: &Inner, store: &dyn Store) -> Result<Snapshot, Error> {
    let (load, sinks, status) = (store.load().await?, store.sinks().await?, store.status().await?);
    let leases = lock(&inner.driving).len();
    let at = inner.world.clock.now();
    let down = inner.world.health.outages();
    Ok(inner.world.metrics.snapshot(&Standing { at, leases, load, down, sinks: &sinks, syncs: status.syncs }))
}

/// Exports metrics until the worker stops, and then once more.
pub(super) async fn hand_out(inner: Arc<Inner>, to: Arc<dyn MetricSink>) {
    let mut stopping = inner.stopping.subscribe();
    loop {
        let stop = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => true,
            () = inner.world.clock.sleep(to.every()) => false,
        };
        if let Err(error) = once(&inner, to.as_ref()).await {
            inner.world.metrics.lost();
            tracing::warn!(%error, "measurements were not taken; the next ones have them too");
        }
        if stop {
            return;
        }
    }
}

async fn once(inner: &Inner, to: &dyn MetricSink) -> Result<(), Error> {
    let snapshot = snapshot(inner, inner.store.as_ref()).await?;
    let deadline = inner.world.limits.delivery_deadline;
    match select(to.take(&snapshot), inner.world.clock.sleep(deadline)).await {
        Either::Left((taken, _)) => taken,
        Either::Right(_) => {
            let detail = format!("it took longer than the {} ms it may", deadline.as_millis());
            Err(Error::new(Kind::DeliveryFailed, detail))
        }
    }
}
