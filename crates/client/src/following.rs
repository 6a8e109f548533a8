//! A session's events, across lost connections and servers that are started anew.
//!
//! The cursor is the reader's: it comes back with the number of the last durable event, so none is lost and none comes twice,
//! whichever process answers (R14.2). What happens right now has no number; after a break the server tells it from its beginning.
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

/// How long a connection may be silent. Servers say that they are alive every 15 seconds.
const SILENT: Duration = Duration::from_secs(45);

/// How long a server that does not answer is waited for.
const PATIENCE: Duration = Duration::from_mins(5);

/// How long to wait before coming back, unless the server says.
const COME_BACK: Duration = Duration::from_millis(500);

/// The longest wait between two attempts.
const COME_BACK_MOST: Duration = Duration::from_secs(5);

type Body = Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>;

/// What a follower hears.
#[derive(Debug)]
pub enum Heard {
    /// An event.
    Event(Event),
    /// The connection is lost; it is tried again by itself.
    Lost(Error),
    /// There is a connection again.
    Back,
}

/// The events of a session, from one of them on.
pub struct Following {
    client: Client,
    session: SessionId,
    after: Seq,
    open: Option<SseByteStream<Body>>,
    come_back: Duration,
    /// Since when nobody answers, and how often that was tried.
    lost: Option<(Instant, u32)>,
}

#[derive(Deserialize)]
struct Ended {
    code: String,
}

impl Client {
    /// Follows a session after one of its events.
    pub fn follow(&self, session: SessionId, after: Seq) -> Following {
        Following { client: self.clone(), session, after, open: None, come_back: COME_BACK, lost: None }
    }
}

impl Following {
    /// The next event; waits for one. Fails when the server refuses, or does not answer for minutes.
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

    /// Connects, perhaps after a while. None if it must be tried again.
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

    /// Whether a connection is worth another attempt. Who follows has spoken with the server before, so the first may fail too.
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

    /// The event of a message, if it is one that this version knows.
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
