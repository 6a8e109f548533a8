//! Who drives turns: a worker of this process on a file, or a server.
use crate::attached::Attached;
use crate::desk::Desk;
use crate::find::Named;
use crate::terminal;
use bytes::Bytes;
use futures_util::stream;
use outlast::runtime::worker::{Retried, RetryPlace};
use outlast::store::{Cancelled, Resolved};
use outlast::vocab::event::Event;
use outlast::vocab::limits;
use outlast::vocab::overlay::Overlay;
use outlast::vocab::record::Seq;
use outlast::vocab::trace::TraceParent;
use outlast::vocab::wait::{CompletionKey, Resolution};
use outlast::{Error, Outlast, SessionId, TurnId};
use outlast_client::{Client, File, Following, Heard, NewInput, To};
use serde_json::Value;
use tokio::io::AsyncReadExt;

/// Bytes of a file that are sent at once.
const PIECE: usize = 64 << 10;

/// Who drives turns.
pub(crate) enum Host {
    /// A worker of this process.
    Here(Outlast),
    /// A server, with who is to answer there.
    Server(Client, Box<Answering>),
}

/// Who answers the inputs that a server is sent.
#[derive(Clone)]
pub(crate) struct Answering {
    /// The agent; the server's first one without it.
    pub(crate) agent: Option<String>,
    /// What is said over it.
    pub(crate) overlay: Option<Overlay>,
}

/// An input before it is sent.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) text: String,
    /// The same key in the same session is the same turn.
    pub(crate) key: Option<String>,
    pub(crate) head: Option<String>,
    /// What the answer must fit.
    pub(crate) schema: Option<Value>,
    pub(crate) parent: Option<TraceParent>,
    pub(crate) files: Vec<Attached>,
}

/// A turn that is followed.
pub(crate) struct Followed {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) events: Events,
}

/// The events of a session.
pub(crate) enum Events {
    Here(outlast::Events),
    Server(Box<Following>),
}

impl Events {
    /// The next one; waits for it. A connection that is lost is made again.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        let following = match self {
            Self::Here(events) => return events.next().await,
            Self::Server(following) => following,
        };
        loop {
            match following.next().await? {
                Heard::Event(event) => return Ok(event),
                Heard::Lost(error) => {
                    terminal::note(&format!("· {}; trying to get back", error.detail()));
                }
                Heard::Back => terminal::note("· connected again"),
            }
        }
    }
}

impl Host {
    /// Where its sessions are looked at.
    pub(crate) fn desk(&self) -> Desk {
        match self {
            Self::Here(outlast) => Desk::File(outlast.store().clone()),
            Self::Server(client, _) => Desk::Server(client.clone()),
        }
    }

    /// Sends an input to the session that is named, or to a new one. It is durable when this comes back.
    pub(crate) async fn send(&self, named: Option<Named>, input: Outgoing) -> Result<Followed, Error> {
        match self {
            Self::Here(outlast) => send_here(outlast, named, input).await,
            Self::Server(client, answering) => {
                send_there(client, Answering::clone(answering), named, input).await
            }
        }
    }

    /// The events of a session after one of them.
    pub(crate) fn events(&self, session: SessionId, after: Seq) -> Events {
        match self {
            Self::Here(outlast) => Events::Here(outlast.runtime().events(session, after)),
            Self::Server(client, _) => Events::Server(Box::new(client.follow(session, after))),
        }
    }

    /// Asks a turn to stop.
    pub(crate) async fn cancel(&self, turn: TurnId, reason: &str) -> Result<Cancelled, Error> {
        match self {
            Self::Here(outlast) => outlast.runtime().cancel(turn, reason).await,
            Self::Server(client, _) => client.cancel(turn, reason).await,
        }
    }

    /// Retries a turn, and follows it, or the new turn that retries it, from its beginning.
    pub(crate) async fn retry(&self, turn: TurnId, place: RetryPlace) -> Result<Followed, Error> {
        let retried = match self {
            Self::Here(outlast) => outlast.runtime().retry_turn(turn, place).await?,
            Self::Server(client, _) => client.retry(turn, place).await?,
        };
        let turn = match retried {
            Retried::Woken => turn,
            Retried::NewTurn { session, turn: retry, duplicate } => {
                let there = if duplicate { "is retried already as" } else { "is retried as" };
                terminal::note(&format!("· {turn} {there} {retry} in {session}"));
                retry
            }
        };
        let view = self.desk().turn(turn).await?;
        let before = Seq(view.span.0.0.saturating_sub(1));
        Ok(Followed { session: view.session, turn, events: self.events(view.session, before) })
    }

    /// Finishes what a turn waits for.
    pub(crate) async fn resolve(&self, key: &CompletionKey, how: Resolution) -> Result<Resolved, Error> {
        match self {
            Self::Here(outlast) => outlast.runtime().resolve(key, how).await,
            Self::Server(client, _) => client.resolve(key, how).await,
        }
    }

    /// Stops driving; a server goes on.
    pub(crate) async fn leave(self) {
        if let Self::Here(outlast) = self {
            outlast.shut_down().await;
        }
    }
}

async fn send_here(outlast: &Outlast, named: Option<Named>, input: Outgoing) -> Result<Followed, Error> {
    let Outgoing { text, key, head, schema, parent, files } = input;
    let session = Named::session(named, outlast);
    let session = match &head {
        Some(head) => session.on_head(head),
        None => session,
    };
    let sending = match &key {
        Some(key) => session.send_once(key, text),
        None => session.send(text),
    };
    let mut sending = match schema {
        Some(schema) => sending.fitting(schema),
        None => sending,
    };
    if let Some(parent) = parent {
        sending = sending.traceparent(parent);
    }
    let (limit, most) = outlast.attachments().most();
    for file in files {
        // One that is too large is refused before it is read.
        limits::check(limit, usize::try_from(file.bytes).unwrap_or(usize::MAX), most)?;
        sending = sending.attach_stream(file.media_type, Some(file.name.clone()), file.reader()).await?;
    }
    let (turn, events) = sending.watched().await?;
    Ok(Followed { session: turn.session(), turn: turn.id(), events: Events::Here(events) })
}

async fn send_there(
    client: &Client,
    Answering { agent, overlay }: Answering,
    named: Option<Named>,
    input: Outgoing,
) -> Result<Followed, Error> {
    let Outgoing { text, key, head, schema, parent, files } = input;
    let to = match named {
        Some(Named::Id(id)) => To::Session(id),
        Some(Named::Key(key)) => To::Key(key),
        None => To::New,
    };
    let traceparent = parent.map(|parent| parent.to_string());
    let input = NewInput { agent, overlay, head, schema, key, traceparent, ..NewInput::text(text) };
    let receipt = client.send_input(to, input, files.into_iter().map(upload).collect()).await?;
    let before = Seq(receipt.seq.0.saturating_sub(1));
    let events = Events::Server(Box::new(client.follow(receipt.session, before)));
    Ok(Followed { session: receipt.session, turn: receipt.turn, events })
}

/// A file on its way to a server, a piece at a time.
fn upload(file: Attached) -> File {
    let (media_type, name) = (file.media_type.to_owned(), file.name.clone());
    let bytes = stream::try_unfold(Box::pin(file.reader()), |mut reader| async move {
        let mut piece = vec![0; PIECE];
        let read = reader.read(&mut piece).await?;
        piece.truncate(read);
        Ok((read > 0).then(|| (Bytes::from(piece), reader)))
    });
    File { media_type, name, bytes: Box::pin(bytes) }
}
