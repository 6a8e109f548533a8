//! Follows a session's events across lost connections and server restarts.
//!
//! The client keeps the cursor. It reconnects with the number of the last durable event, so no event is lost or
//! repeated, regardless of the process that answers. Live events have no number; after a reconnect the server sends
//! them from their beginning.
use crate::Client;
use crate::http::chain;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use outlast_vocab::event::Event;
use outlast_vocab::record::Seq;
use outlast_vocab::{Class, Error, Kind, SessionId};
use reqwest::Method;
use serde::Deserialize;
use sse_stream::SseByteStream;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The idle timeout of a connection. Servers send a heartbeat every 15 seconds.
const SILENT: Duration = Duration::from_secs(45);

/// How long to retry a server that does not answer.
const PATIENCE: Duration = Duration::from_mins(5);

/// The delay before a reconnect, unless the server sets one.
const COME_BACK: Duration = Duration::from_millis(500);

/// The maximum delay between two attempts.
const COME_BACK_MOST: Duration = Duration::from_secs(5);

type Body = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;

/// An item of the stream.
#[derive(Debug)]
pub enum Heard {
    /// An event.
    Event(Event),
    /// The connection was lost. The client reconnects automatically.
    Lost(Error),
    /// The connection is restored.
    Back,
}

/// The events of a session, starting after a given one.
pub struct Following {
    client: Client,
    session: SessionId,
    after: Seq,
    open: Option<SseByteStream<Body>>,
    come_back: Duration,
    /// When the connection was lost, and the number of attempts since.
    lost: Option<(Instant, u32)>,
}

#[derive(Deserialize)]
struct Ended {
    code: String,
}

impl Client {
    /// Follows a session, starting after one of its events.
    pub fn follow(&self, session: SessionId, after: Seq) -> Following {
        Following { client: self.clone(), session, after, open: None, come_back: COME_BACK, lost: None }
    }
}

impl Following {
    /// Waits for the next item. Fails if the server refuses, or does not answer for several minutes.
    pub async fn next(&mut self) -> Result<Heard, Error> {
        loop {
            let Some(open) = &mut self.open else {
                if let Some(heard) = self.connect().await? {
                    return Ok(heard);
                }
                continue;
            };
            let lost = match timeout(SILENT, open.next()).await {
                Ok(Some(Ok(event))) => {
                    if let Some(wait) = event.retry {
                        self.come_back = Duration::from_millis(wait).min(COME_BACK_MOST);
                    }
                    match self.heard(event)? {
                        Some(event) => return Ok(Heard::Event(event)),
                        None => continue,
                    }
                }
                Ok(Some(Err(cause))) => chain(&cause),
                Ok(None) => "it ended the stream".to_owned(),
                Err(_) => format!("it was silent for {} s", SILENT.as_secs()),
            };
            self.open = None;
            let address = self.client.address();
            self.lost = Some((Instant::now(), 0));
            return Ok(Heard::Lost(Error::new(Kind::ServerUnreachable, format!("{address}: {lost}"))));
        }
    }

    /// Connects, after a delay if needed. Returns `None` to try again.
    async fn connect(&mut self) -> Result<Option<Heard>, Error> {
        if let Some((_, tries)) = self.lost {
            sleep((self.come_back * 2u32.saturating_pow(tries.min(8))).min(COME_BACK_MOST)).await;
        }
        let path = ["v1", "sessions", &self.session.to_string(), "events"];
        let request = self.client.request(Method::GET, &path, &[]);
        let request = request.header("accept", "text/event-stream").header("last-event-id", self.after.0);
        match self.client.answered(request).await {
            Ok(response) => {
                let body: Body = Box::pin(response.bytes_stream());
                self.open = Some(SseByteStream::new(body));
                Ok(self.lost.take().map(|_| Heard::Back))
            }
            Err(error) => self.refused(error),
        }
    }

    /// Decides whether to retry. The caller has already talked to the server, so even the first attempt may be retried.
    fn refused(&mut self, error: Error) -> Result<Option<Heard>, Error> {
        match &mut self.lost {
            _ if error.class() != Class::Retry => Err(error),
            None => {
                self.lost = Some((Instant::now(), 0));
                Ok(Some(Heard::Lost(error)))
            }
            Some((since, tries)) if since.elapsed() < PATIENCE => {
                *tries += 1;
                Ok(None)
            }
            Some(_) => Err(error),
        }
    }

    /// Parses a message; `None` if this version does not know the event.
    fn heard(&mut self, message: sse_stream::Sse) -> Result<Option<Event>, Error> {
        let Some(data) = message.data else { return Ok(None) };
        let unread = |cause: serde_json::Error| {
            Error::new(Kind::ServerAnswerInvalid, format!("an event of the server does not read: {cause}"))
        };
        if message.event.as_deref() == Some("error") {
            let Ended { code } = serde_json::from_str(&data).map_err(unread)?;
            let kind = code.parse().unwrap_or(Kind::ServerAnswerInvalid);
            return Err(Error::new(kind, format!("the server ended the events of {}: {code}", self.session)));
        }
        let (_, event) = Event::of_frame(serde_json::from_str(&data).map_err(unread)?)?;
        if let Some(number) = message.id.and_then(|id| id.parse().ok()) {
            self.after = Seq(number);
        }
        Ok(event)
    }
}
