//! Sends the trace of every finished turn, as a sink of outputs. It reads each turn from the store once, and retries
//! with the same ids if the delivery is uncertain. A collector that is down or hangs delays nothing else.
use crate::collector_client::CollectorClient;
use crate::settings::TelemetrySettings;
use crate::{otlp, spans};
use opentelemetry_proto::tonic::trace::v1::Span;
use outlast_ports::ResultFuture;
use outlast_ports::sink::{OutputEvent, Sink, SinkOutput, SubscribedSink};
use outlast_ports::store::Store;
use outlast_vocab::limits::TELEMETRY_SPANS;
use outlast_vocab::record::{Fact, Record};
use outlast_vocab::trace::TraceId;
use outlast_vocab::{Error, Kind, TurnId};
use serde_json::Value;
use std::sync::Arc;

/// The name of the sink.
pub const TRACE_SINK_NAME: &str = "telemetry";

/// A sink that sends traces.
pub struct OtlpTraces {
    collector: CollectorClient,
    settings: TelemetrySettings,
    store: Arc<dyn Store>,
}

impl OtlpTraces {
    /// Creates the sink, if a destination for traces is set. It reads turns from this store.
    pub fn new(settings: &TelemetrySettings, store: Arc<dyn Store>) -> Result<Option<Self>, Error> {
        let Some(url) = &settings.traces else { return Ok(None) };
        let wire = CollectorClient::to(url, settings.headers.clone())?;
        Ok(Some(Self { collector: wire, settings: settings.clone(), store }))
    }

    /// Converts it to an outlet.
    pub fn into_outlet(self) -> Result<SubscribedSink, Error> {
        SubscribedSink::new(TRACE_SINK_NAME, self)
    }

    /// Returns whether the trace of a turn is sent. The decision of the parent span applies; otherwise it is random,
    /// but the same in every process.
    fn is_sampled(&self, turn: TurnId, records: &[Record]) -> bool {
        let parent = records.iter().find_map(|record| match &record.fact {
            Fact::Accepted(accepted) => accepted.traceparent,
            _ => None,
        });
        parent.map_or_else(
            || TraceId::of(turn).is_sampled_at(self.settings.sample_millionths),
            |parent| parent.sampled,
        )
    }

    /// Returns the export requests of a turn; none if its trace is not sampled or its session is gone.
    pub async fn requests(&self, output: &SinkOutput) -> Result<Vec<Vec<u8>>, Error> {
        let OutputEvent::Ended(end) = &output.event else { return Ok(Vec::new()) };
        let records = match self.store.turn_records(output.turn).await {
            Err(error) if error.kind() == Kind::TurnNotFound => return Ok(Vec::new()),
            records => records?,
        };
        if !self.is_sampled(output.turn, &records) {
            return Ok(Vec::new());
        }
        let agent = self.agent(output.turn).await;
        let spans = spans::of_turn(output, end, agent.as_deref(), &records, self.settings.content);
        let request = |spans: &[Span]| otlp::of_spans(&self.settings.resource_attributes, spans.to_vec());
        Ok(spans.chunks(TELEMETRY_SPANS).map(request).collect())
    }

    /// Returns the name of a turn's agent, if its configuration still exists.
    async fn agent(&self, turn: TurnId) -> Option<String> {
        let json = self.store.package(turn).await.ok()?;
        let pinned: Value = serde_json::from_slice(&json).ok()?;
        let agent = pinned["agent"].as_str().or_else(|| pinned["package"]["agent"].as_str());
        agent.map(str::to_owned)
    }
}

impl Sink for OtlpTraces {
    fn place(&self) -> String {
        self.collector.place()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            for request in self.requests(output).await? {
                self.collector.send(request).await?;
            }
            Ok(())
        })
    }
}
