//! Reads the metrics of a worker and exports them periodically. An exporter that is down or hangs delays no turn.
use super::active_drives::ActiveDrives;
use crate::turn::journal_writer::WorkerJournal;
use crate::turn::model_client::ModelCatalogue;
use crate::views::metrics::CurrentGauges;
use futures_util::future::{Either, select};
use outlast_ports::metrics::{MetricSink, MetricsSnapshot};
use outlast_ports::store::Store;
use outlast_vocab::{Error, Kind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Reads the counters and gauges of a worker.
#[derive(Clone)]
pub(super) struct MetricsReader {
    pub(super) journal: Arc<WorkerJournal>,
    pub(super) models: Arc<ModelCatalogue>,
    pub(super) drives: Arc<ActiveDrives>,
}

/// Exports the metrics of a worker to a sink.
pub(super) struct MetricsExport {
    pub(super) reader: MetricsReader,
    pub(super) sink: Arc<dyn MetricSink>,
    /// How long one export may take.
    pub(super) deadline: Duration,
}

impl MetricsReader {
    /// Returns the counters of the process and the gauges that this store shows.
    pub(super) async fn snapshot(&self, store: &dyn Store) -> Result<MetricsSnapshot, Error> {
        let (load, sinks, status) = (store.load().await?, store.sinks().await?, store.status().await?);
        let leases = self.drives.count();
        let at = self.journal.clock.now();
        let down = self.models.health.outages(at);
        let syncs = status.syncs;
        Ok(self.journal.metrics.snapshot(&CurrentGauges { at, leases, load, down, sinks: &sinks, syncs }))
    }
}

impl MetricsExport {
    /// Exports metrics until the worker stops, and then once more.
    pub(super) async fn run(self, mut stopping: watch::Receiver<bool>) {
        loop {
            let stop = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => true,
                () = self.reader.journal.clock.sleep(self.sink.export_interval()) => false,
            };
            if let Err(error) = self.once().await {
                self.reader.journal.metrics.lost();
                tracing::warn!(%error, "metrics were not exported; the next export includes them");
            }
            if stop {
                return;
            }
        }
    }

    async fn once(&self) -> Result<(), Error> {
        let snapshot = self.reader.snapshot(self.reader.journal.store.as_ref()).await?;
        match select(self.sink.export(&snapshot), self.reader.journal.clock.sleep(self.deadline)).await {
            Either::Left((taken, _)) => taken,
            Either::Right(_) => {
                let detail = format!("it took longer than {} ms", self.deadline.as_millis());
                Err(Error::new(Kind::DeliveryFailed, detail))
            }
        }
    }
}
