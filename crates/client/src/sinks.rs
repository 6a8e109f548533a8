//! Sinks and their deliveries, pending and failed.
use crate::Client;
use crate::http::read;
use crate::page::Page;
use outlast_ports::outbox::{DeliveryView, SinkView};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Error, Failure, Kind, Millis, SessionId, TurnId};
use reqwest::Method;
use serde::Deserialize;

/// A sink of a server.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Its state.
    pub view: SinkView,
    /// Its destination, if the server has the sink.
    pub place: Option<String>,
}

#[derive(Deserialize)]
struct Standing {
    name: String,
    place: Option<String>,
    since: Millis,
    behind: u64,
    due: u64,
    dead: u64,
    delivered: u64,
}

impl From<Standing> for Sink {
    fn from(Standing { name, place, since, behind, due, dead, delivered }: Standing) -> Self {
        Self { view: SinkView { name, since, behind, due, dead, delivered }, place }
    }
}

#[derive(Deserialize)]
struct Delivery {
    id: DeliveryId,
    session: SessionId,
    turn: TurnId,
    topic: String,
    attempts: u32,
    due: Option<Millis>,
    failure: Option<Failure>,
}

impl TryFrom<Delivery> for DeliveryView {
    type Error = Error;

    fn try_from(delivery: Delivery) -> Result<Self, Error> {
        let Delivery { id, session, turn, topic, attempts, due, failure } = delivery;
        Ok(Self { id, session, turn, topic: topic.parse()?, attempts, due_at: due, failure })
    }
}

#[derive(Deserialize)]
struct Tested {
    taken: bool,
    answered: String,
}

#[derive(Deserialize)]
struct Revived {
    revived: u64,
}

impl Client {
    /// Lists all sinks, by name.
    pub async fn sinks(&self) -> Result<Vec<Sink>, Error> {
        let page: Page<Standing> = self.get(&["v1", "sinks"], &[]).await?;
        Ok(page.items.into_iter().map(Sink::from).collect())
    }

    /// Lists the pending deliveries of a sink, oldest first.
    pub async fn deliveries(&self, sink: &str) -> Result<Vec<DeliveryView>, Error> {
        let found: Vec<Delivery> = self.list(&["v1", "sinks", sink], &[], usize::MAX).await?;
        found.into_iter().map(DeliveryView::try_from).collect()
    }

    /// Sends a test message to a webhook and returns the response. Fails if the message was not accepted.
    pub async fn try_sink(&self, sink: &str) -> Result<String, Error> {
        let request = self.request(Method::POST, &["v1", "sinks", sink, "test"], &[]);
        let Tested { taken, answered } = read(self.send(request).await?).await?;
        if taken { Ok(answered) } else { Err(Error::new(Kind::DeliveryFailed, answered)) }
    }

    /// Retries one delivery, or all failed ones, with a fresh set of attempts. Returns their number.
    pub async fn redeliver(&self, sink: &str, only: Option<DeliveryId>) -> Result<u64, Error> {
        let query: Vec<_> = only.iter().map(|only| ("delivery", only.to_string())).collect();
        let request = self.request(Method::POST, &["v1", "sinks", sink, "retry"], &query);
        let Revived { revived } = read(self.send(request).await?).await?;
        Ok(revived)
    }
}
