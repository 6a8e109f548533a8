//! Sinks and their deliveries, pending and failed.
use crate::Client;
use crate::http::parse_json;
use outlast_api::list_page::ListPage;
use outlast_api::sinks::{
    DeliveryResource, RetryDeliveryParams, RetryDeliveryResult, SinkResource, SinkTestResult,
};
use outlast_views::{DeliveryView, SinkView};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Error, Kind};
use reqwest::Method;

/// A sink of a server.
#[derive(Clone, Debug)]
pub struct SinkStatus {
    /// Its state.
    pub view: SinkView,
    /// Its destination, if the server has the sink.
    pub destination: Option<String>,
}

impl From<SinkResource> for SinkStatus {
    fn from(sink: SinkResource) -> Self {
        let (view, destination) = sink.into_parts();
        Self { view, destination }
    }
}

impl Client {
    /// Lists all sinks, by name.
    pub async fn sinks(&self) -> Result<Vec<SinkStatus>, Error> {
        let page: ListPage<SinkResource> = self.get(&["v1", "sinks"], &()).await?;
        Ok(page.items.into_iter().map(SinkStatus::from).collect())
    }

    /// Lists the pending deliveries of a sink, oldest first.
    pub async fn deliveries(&self, sink: &str) -> Result<Vec<DeliveryView>, Error> {
        let found: Vec<DeliveryResource> = self.list(&["v1", "sinks", sink], &(), usize::MAX).await?;
        found.into_iter().map(DeliveryView::try_from).collect()
    }

    /// Sends a test message to a webhook and returns the response. Fails if the message was not accepted.
    pub async fn test_sink(&self, sink: &str) -> Result<String, Error> {
        let request = self.request(Method::POST, &["v1", "sinks", sink, "test"], &());
        let SinkTestResult { taken, answered } = parse_json(self.send(request).await?).await?;
        if taken { Ok(answered) } else { Err(Error::new(Kind::DeliveryFailed, answered)) }
    }

    /// Retries one delivery, or all failed ones, with a fresh set of attempts. Returns their number.
    pub async fn redeliver(&self, sink: &str, only: Option<DeliveryId>) -> Result<u64, Error> {
        let params = RetryDeliveryParams { delivery: only };
        let request = self.request(Method::POST, &["v1", "sinks", sink, "retry"], &params);
        let RetryDeliveryResult { revived } = parse_json(self.send(request).await?).await?;
        Ok(revived)
    }
}
