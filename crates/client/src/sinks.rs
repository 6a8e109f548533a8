//! Sinks and their deliveries, pending and failed.
use crate::Client;
use crate::http::parse_json;
use crate::page::PageJson;
use outlast_views::{DeliveryView, SinkView};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Error, Failure, Kind, Millis, SessionId, TurnId};
use reqwest::Method;
use serde::Deserialize;

/// A sink of a server.
#[derive(Clone, Debug)]
pub struct SinkStatus {
    /// Its state.
    pub view: SinkView,
    /// Its destination, if the server has the sink.
    pub destination: Option<String>,
}

#[derive(Deserialize)]
struct SinkJson {
    name: String,
    place: Option<String>,
    since: Millis,
    behind: u64,
    due: u64,
    dead: u64,
    delivered: u64,
}

impl From<SinkJson> for SinkStatus {
    fn from(SinkJson { name, place, since, behind, due, dead, delivered }: SinkJson) -> Self {
        Self { view: SinkView { name, since, behind, due, dead, delivered }, destination: place }
    }
}

#[derive(Deserialize)]
struct DeliveryJson {
    id: DeliveryId,
    session: SessionId,
    turn: TurnId,
    topic: String,
    attempts: u32,
    due: Option<Millis>,
    failure: Option<Failure>,
}

impl TryFrom<DeliveryJson> for DeliveryView {
    type Error = Error;

    fn try_from(delivery: DeliveryJson) -> Result<Self, Error> {
        let DeliveryJson { id, session, turn, topic, attempts, due, failure } = delivery;
        Ok(Self { id, session, turn, topic: topic.parse()?, attempts, due_at: due, failure })
    }
}

#[derive(Deserialize)]
struct SinkTestJson {
    taken: bool,
    answered: String,
}

#[derive(Deserialize)]
struct RedeliveryJson {
    revived: u64,
}

impl Client {
    /// Lists all sinks, by name.
    pub async fn sinks(&self) -> Result<Vec<SinkStatus>, Error> {
        let page: PageJson<SinkJson> = self.get(&["v1", "sinks"], &[]).await?;
        Ok(page.items.into_iter().map(SinkStatus::from).collect())
    }

    /// Lists the pending deliveries of a sink, oldest first.
    pub async fn deliveries(&self, sink: &str) -> Result<Vec<DeliveryView>, Error> {
        let found: Vec<DeliveryJson> = self.list(&["v1", "sinks", sink], &[], usize::MAX).await?;
        found.into_iter().map(DeliveryView::try_from).collect()
    }

    /// Sends a test message to a webhook and returns the response. Fails if the message was not accepted.
    pub async fn test_sink(&self, sink: &str) -> Result<String, Error> {
        let request = self.request(Method::POST, &["v1", "sinks", sink, "test"], &[]);
        let SinkTestJson { taken, answered } = parse_json(self.send(request).await?).await?;
        if taken { Ok(answered) } else { Err(Error::new(Kind::DeliveryFailed, answered)) }
    }

    /// Retries one delivery, or all failed ones, with a fresh set of attempts. Returns their number.
    pub async fn redeliver(&self, sink: &str, only: Option<DeliveryId>) -> Result<u64, Error> {
        let query: Vec<_> = only.iter().map(|only| ("delivery", only.to_string())).collect();
        let request = self.request(Method::POST, &["v1", "sinks", sink, "retry"], &query);
        let RedeliveryJson { revived } = parse_json(self.send(request).await?).await?;
        Ok(revived)
    }
}
