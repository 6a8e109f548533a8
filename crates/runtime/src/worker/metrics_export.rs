//! Reads the metrics of a worker and exports them periodically. An exporter that is down or hangs delays no turn.
use super::{WorkerState, lock};
use crate::views::metrics::CurrentGauges;
use futures_util::future::{Either, select};
use outlast_ports::metrics::{MetricSink, MetricsSnapshot};
use outlast_ports::store::Store;
use outlast_vocab::{Error, Kind};
use std::sync::Arc;

/// Returns the counters of the process and the gauges that this store shows.
pub(super) async fn snapshot(inner: &WorkerState, store: &dyn Store) -> Result<MetricsSnapshot, Error> {
    let (load, sinks, status) = (store.load().await?, store.sinks().await?, store.status().await?);
    let leases = lock(&inner.driving).len();
    let at = inner.clock.now();
    let down = inner.models.health.outages();
    Ok(inner.metrics.snapshot(&CurrentGauges { at, leases, load, down, sinks: &sinks, syncs: status.syncs }))
}

/// Exports metrics until the worker stops, and then once more.
pub(super) async fn export_metrics(inner: Arc<WorkerState>, to: Arc<dyn MetricSink>) {
    let mut stopping = inner.stopping.subscribe();
    loop {
        let stop = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => true,
            () = inner.clock.sleep(to.export_interval()) => false,
        };
        if let Err(error) = once(&inner, to.as_ref()).await {
            inner.metrics.lost();
            tracing::warn!(%error, "measurements were not taken; the next ones have them too");
        }
        if stop {
            return;
        }
    }
}

async fn once(inner: &WorkerState, to: &dyn MetricSink) -> Result<(), Error> {
    let snapshot = snapshot(inner, inner.store.as_ref()).await?;
    let deadline = inner.limits.delivery_deadline;
    match select(to.export(&snapshot), inner.clock.sleep(deadline)).await {
        Either::Left((taken, _)) => taken,
        Either::Right(_) => {
            let detail = format!("it took longer than the {} ms it may", deadline.as_millis());
            Err(Error::new(Kind::DeliveryFailed, detail))
        }
    }
}
