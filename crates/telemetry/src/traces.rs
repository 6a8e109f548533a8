//! Sends the trace of every finished turn, as a sink of outputs. It reads each turn from the store once, and retries
//! with the same ids if the delivery is uncertain. A collector that is down or hangs delays nothing else.
use crate::settings::Settings;
use crate::wire::Wire;
use crate::{otlp, spans};
use opentelemetry_proto::tonic::trace::v1::Span;
use outlast_ports::Answer;
use outlast_ports::sink::{About, Outlet, Output, Sink};
use outlast_ports::store::Store;
use outlast_vocab::limits::TELEMETRY_SPANS;
use outlast_vocab::record::{Fact, Record};
use outlast_vocab::trace::TraceId;
use outlast_vocab::{Error, Kind, TurnId};
use serde_json::Value;
use std::sync::Arc;

/// The name of the sink.
pub const NAME: &str = "telemetry";

/// A sink that sends traces.
pub struct Traces {
    wire: Wire,
    settings: Settings,
    store: Arc<dyn Store>,
}

impl Traces {
    /// Creates the sink, if a destination for traces is set. It reads turns from this store.
    pub fn new(settings: &Settings, store: Arc<dyn Store>) -> Result<Option<Self>, Error> {
        let Some(url) = &settings.traces else { return Ok(None) };
        let wire = Wire::to(url, settings.headers.clone())?;
        Ok(Some(Self { wire, settings: settings.clone(), store }))
    }

    /// Converts it to an outlet.
    pub fn into_outlet(self) -> Result<Outlet, Error> {
        Outlet::new(NAME, self)
    }

    /// Returns whether the trace of a turn is sent. The decision of the parent span applies; otherwise it is random,
    /// but the same in every process.
    fn is_sampled(&self, turn: TurnId, records: &[Record]) -> bool {
        let parent = records.iter().find_map(|record| match &record.fact {
            Fact::Accepted(accepted) => accepted.traceparent,
            _ => None,
        });
        parent.map_or_else(|| TraceId::of(turn).is_among(self.settings.share), |parent| parent.sampled)
    }

    /// Returns the export requests of a turn; none if its trace is not sampled or its session is gone.
    pub async fn requests(&self, output: &Output) -> Result<Vec<Vec<u8>>, Error> {
        let About::Ended(end) = &output.about else { return Ok(Vec::new()) };
        let records = match self.store.turn_records(output.turn).await {
            Err(error) if error.kind() == Kind::TurnNotFound => return Ok(Vec::new()),
            records => records?,
        };
        if !self.is_sampled(output.turn, &records) {
            return Ok(Vec::new());
        }
        let agent = self.agent(output.turn).await;
        let spans = spans::of_turn((output, end), agent.as_deref(), &records, self.settings.content);
        let request = |spans: &[Span]| otlp::of_spans(&self.settings.about, spans.to_vec());
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

impl Sink for Traces {
    fn place(&self) -> String {
        self.wire.place()
    }

    fn deliver<'a>(&'a self, output: &'a Output) -> Answer<'a, ()> {
        Box::pin(async move {
            for request in self.requests(output).await? {
                self.wire.send(request).await?;
            }
            Ok(())
        })
    }
}
