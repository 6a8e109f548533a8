//! Follows a session's events across lost connections and server restarts.
//!
//! The client keeps the cursor. It reconnects with the number of the last durable event, so no event is lost or
//! repeated, regardless of the process that answers. Live events have no number; after a reconnect the server sends
//! them from their beginning.
use crate::Client;
use crate::http::error_chain;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use outlast_api::events::{EventResource, StreamError};
use outlast_vocab::event::{Event, EventFrame};
use outlast_vocab::record::Seq;
use outlast_vocab::{Class, Error, Kind, SessionId};
use reqwest::Method;
use sse_stream::SseByteStream;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The idle timeout of a connection. Servers send a heartbeat every 15 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(45);

/// How long to retry a server that does not answer.
const RETRY_WINDOW: Duration = Duration::from_mins(5);

/// The delay before a reconnect, unless the server sets one.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// The maximum delay between two attempts.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(5);

type ResponseBytes = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;

/// An item of the stream.
#[derive(Debug)]
pub enum FollowedItem {
    /// An event.
    Event(Event),
    /// The connection was lost. The client reconnects automatically.
    Disconnected(Error),
    /// The connection is restored.
    Reconnected,
}

/// The events of a session, starting after a given one.
pub struct EventFollower {
    client: Client,
    session: SessionId,
    after: Seq,
    stream: Option<SseByteStream<ResponseBytes>>,
    reconnect_delay: Duration,
    /// When the connection was lost, and the number of attempts since.
    disconnected: Option<(Instant, u32)>,
}

impl Client {
    /// Follows a session, starting after one of its events.
    pub fn follow(&self, session: SessionId, after: Seq) -> EventFollower {
        EventFollower {
            client: self.clone(),
            session,
            after,
            stream: None,
            reconnect_delay: RECONNECT_DELAY,
            disconnected: None,
        }
    }
}

impl EventFollower {
    /// Waits for the next item. Fails if the server refuses, or does not answer for several minutes.
    pub async fn next(&mut self) -> Result<FollowedItem, Error> {
        loop {
            let Some(open) = &mut self.stream else {
                if let Some(received) = self.connect().await? {
                    return Ok(received);
                }
                continue;
            };
            let lost = match timeout(IDLE_TIMEOUT, open.next()).await {
                Ok(Some(Ok(event))) => {
                    if let Some(wait) = event.retry {
                        self.reconnect_delay = Duration::from_millis(wait).min(RECONNECT_DELAY_MAX);
                    }
                    match self.parse_event(event)? {
                        Some(event) => return Ok(FollowedItem::Event(event)),
                        None => continue,
                    }
                }
                Ok(Some(Err(cause))) => error_chain(&cause),
                Ok(None) => "it ended the stream".to_owned(),
                Err(_) => format!("it sent nothing for {} s", IDLE_TIMEOUT.as_secs()),
            };
            self.stream = None;
            let address = self.client.address();
            self.disconnected = Some((Instant::now(), 0));
            return Ok(FollowedItem::Disconnected(Error::new(
                Kind::ServerUnreachable,
                format!("{address}: {lost}"),
            )));
        }
    }

    /// Connects, after a delay if needed. Returns `None` to try again.
    async fn connect(&mut self) -> Result<Option<FollowedItem>, Error> {
        if let Some((_, tries)) = self.disconnected {
            sleep((self.reconnect_delay * 2u32.saturating_pow(tries.min(8))).min(RECONNECT_DELAY_MAX)).await;
        }
        let path = ["v1", "sessions", &self.session.to_string(), "events"];
        let request = self.client.request(Method::GET, &path, &());
        let request = request.header("accept", "text/event-stream").header("last-event-id", self.after.0);
        match self.client.send_without_timeout(request).await {
            Ok(response) => {
                let body: ResponseBytes = Box::pin(response.bytes_stream());
                self.stream = Some(SseByteStream::new(body));
                Ok(self.disconnected.take().map(|_| FollowedItem::Reconnected))
            }
            Err(error) => self.retry_or_fail(error),
        }
    }

    /// Decides whether to retry. The caller has already talked to the server, so even the first attempt may be retried.
    fn retry_or_fail(&mut self, error: Error) -> Result<Option<FollowedItem>, Error> {
        match &mut self.disconnected {
            _ if error.class() != Class::Retry => Err(error),
            None => {
                self.disconnected = Some((Instant::now(), 0));
                Ok(Some(FollowedItem::Disconnected(error)))
            }
            Some((since, tries)) if since.elapsed() < RETRY_WINDOW => {
                *tries += 1;
                Ok(None)
            }
            Some(_) => Err(error),
        }
    }

    /// Parses a message; `None` if this version does not know the event.
    fn parse_event(&mut self, message: sse_stream::Sse) -> Result<Option<Event>, Error> {
        let Some(data) = message.data else { return Ok(None) };
        let unread = |cause: serde_json::Error| {
            Error::new(Kind::ServerAnswerInvalid, format!("an event of the server is invalid: {cause}"))
        };
        if message.event.as_deref() == Some("error") {
            let StreamError { code, .. } = serde_json::from_str(&data).map_err(unread)?;
            let kind = code.parse().unwrap_or(Kind::ServerAnswerInvalid);
            return Err(Error::new(kind, format!("the server ended the events of {}: {code}", self.session)));
        }
        let event: EventResource = serde_json::from_str(&data).map_err(unread)?;
        if let Some(number) = message.id.and_then(|id| id.parse().ok()) {
            self.after = Seq(number);
        }
        Ok(EventFrame::from(event).into_event())
    }
}
