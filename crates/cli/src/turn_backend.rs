//! Where a command drives turns: a worker of this process on a database file, or a server.
use crate::attachment_file::AttachmentFile;
use crate::backend::CommandBackend;
use crate::session_selector::SessionSelector;
use crate::terminal;
use bytes::Bytes;
use futures_util::stream;
use outlast::store::{CancelOutcome, ResolveResult};
use outlast::views::{RetryOutcome, RetryPlace};
use outlast::vocab::event::Event;
use outlast::vocab::limits;
use outlast::vocab::overlay::Overlay;
use outlast::vocab::record::Seq;
use outlast::vocab::trace::TraceParent;
use outlast::vocab::wait::{CompletionKey, Resolution};
use outlast::{Error, Outlast, SessionId, TurnId};
use outlast_client::{Client, EventFollower, FollowedItem, InputFile, InputTarget, NewInput};
use serde_json::Value;
use tokio::io::AsyncReadExt;

/// The number of bytes per piece of an upload.
const PIECE: usize = 64 << 10;

/// Where a command drives turns.
pub(crate) enum TurnBackend {
    /// A worker of this process.
    Local(Outlast),
    /// A server, with the agent that answers there.
    Server(Client, Box<ServerAgent>),
}

/// The agent that answers inputs on a server.
#[derive(Clone)]
pub(crate) struct ServerAgent {
    /// The agent's name; `None` is the server's default agent.
    pub(crate) agent: Option<String>,
    /// The overlay to send with each input.
    pub(crate) overlay: Option<Overlay>,
}

/// An input to be sent.
#[derive(Default)]
pub(crate) struct OutgoingInput {
    pub(crate) text: String,
    /// The idempotency key. The same key in the same session is the same turn.
    pub(crate) key: Option<String>,
    pub(crate) head: Option<String>,
    /// The JSON Schema of the answer.
    pub(crate) schema: Option<Value>,
    pub(crate) parent: Option<TraceParent>,
    pub(crate) files: Vec<AttachmentFile>,
}

/// A turn and the events of its session.
pub(crate) struct FollowedTurn {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) events: SessionEvents,
}

/// The events of a session.
pub(crate) enum SessionEvents {
    Local(outlast::SessionEventStream),
    Server(Box<EventFollower>),
}

impl SessionEvents {
    /// Waits for the next event. Reconnects if the connection to the server is lost.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        let following = match self {
            Self::Local(events) => return events.next().await,
            Self::Server(following) => following,
        };
        loop {
            match following.next().await? {
                FollowedItem::Event(event) => return Ok(event),
                FollowedItem::Disconnected(error) => {
                    terminal::note(&format!("· {}; reconnecting", error.detail()));
                }
                FollowedItem::Reconnected => terminal::note("· connected again"),
            }
        }
    }
}

impl TurnBackend {
    /// Returns the backend for queries about its sessions.
    pub(crate) fn backend(&self) -> CommandBackend {
        match self {
            Self::Local(outlast) => CommandBackend::File(outlast.store().clone()),
            Self::Server(client, _) => CommandBackend::Server(client.clone()),
        }
    }

    /// Sends an input to a session, or to a new one. When this returns, the input is durable.
    pub(crate) async fn send(
        &self,
        named: Option<SessionSelector>,
        input: OutgoingInput,
    ) -> Result<FollowedTurn, Error> {
        match self {
            Self::Local(outlast) => send_here(outlast, named, input).await,
            Self::Server(client, answering) => {
                send_there(client, ServerAgent::clone(answering), named, input).await
            }
        }
    }

    /// Returns the events of a session after a record.
    pub(crate) fn events(&self, session: SessionId, after: Seq) -> SessionEvents {
        match self {
            Self::Local(outlast) => SessionEvents::Local(outlast.runtime().events(session, after)),
            Self::Server(client, _) => SessionEvents::Server(Box::new(client.follow(session, after))),
        }
    }

    pub(crate) async fn cancel(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        match self {
            Self::Local(outlast) => outlast.runtime().cancel(turn, reason).await,
            Self::Server(client, _) => client.cancel(turn, reason).await,
        }
    }

    /// Retries a turn. Follows it, or the new turn that retries it, from its start.
    pub(crate) async fn retry(&self, turn: TurnId, place: RetryPlace) -> Result<FollowedTurn, Error> {
        let retried = match self {
            Self::Local(outlast) => outlast.runtime().retry_turn(turn, place).await?,
            Self::Server(client, _) => client.retry(turn, place).await?,
        };
        let turn = match retried {
            RetryOutcome::Woken => turn,
            RetryOutcome::NewTurn { session, turn: retry, duplicate } => {
                let there = if duplicate { "is already retried as" } else { "is retried as" };
                terminal::note(&format!("· {turn} {there} {retry} in {session}"));
                retry
            }
        };
        let view = self.backend().turn(turn).await?;
        let before = Seq(view.span.0.0.saturating_sub(1));
        Ok(FollowedTurn { session: view.session, turn, events: self.events(view.session, before) })
    }

    /// Completes a wait of a turn.
    pub(crate) async fn resolve(&self, key: &CompletionKey, how: Resolution) -> Result<ResolveResult, Error> {
        match self {
            Self::Local(outlast) => outlast.runtime().resolve(key, how).await,
            Self::Server(client, _) => client.resolve(key, how).await,
        }
    }

    /// Stops the worker of this process. A server keeps running.
    pub(crate) async fn shut_down(self) {
        if let Self::Local(outlast) = self {
            outlast.shut_down().await;
        }
    }
}

async fn send_here(
    outlast: &Outlast,
    named: Option<SessionSelector>,
    input: OutgoingInput,
) -> Result<FollowedTurn, Error> {
    let OutgoingInput { text, key, head, schema, parent, files } = input;
    let session = SessionSelector::session(named, outlast);
    let session = match &head {
        Some(head) => session.on_head(head),
        None => session,
    };
    let sending = match &key {
        Some(key) => session.send_once(key, text),
        None => session.send(text),
    };
    let mut sending = match schema {
        Some(schema) => sending.answer_schema(schema),
        None => sending,
    };
    if let Some(parent) = parent {
        sending = sending.traceparent(parent);
    }
    let (limit, most) = outlast.attachments().most();
    for file in files {
        // Refuse a file that is too large before it is read.
        limits::check(limit, usize::try_from(file.bytes).unwrap_or(usize::MAX), most)?;
        sending = sending.attach_stream(file.media_type, Some(file.name.clone()), file.reader()).await?;
    }
    let (turn, events) = sending.watched().await?;
    Ok(FollowedTurn { session: turn.session(), turn: turn.id(), events: SessionEvents::Local(events) })
}

async fn send_there(
    client: &Client,
    ServerAgent { agent, overlay }: ServerAgent,
    named: Option<SessionSelector>,
    input: OutgoingInput,
) -> Result<FollowedTurn, Error> {
    let OutgoingInput { text, key, head, schema, parent, files } = input;
    let to = match named {
        Some(SessionSelector::Id(id)) => InputTarget::Session(id),
        Some(SessionSelector::Key(key)) => InputTarget::Key(key),
        None => InputTarget::New,
    };
    let traceparent = parent.map(|parent| parent.to_string());
    let input = NewInput { agent, overlay, head, schema, key, traceparent, ..NewInput::text(text) };
    let receipt = client.send_input(to, input, files.into_iter().map(upload).collect()).await?;
    let before = Seq(receipt.seq.0.saturating_sub(1));
    let events = SessionEvents::Server(Box::new(client.follow(receipt.session, before)));
    Ok(FollowedTurn { session: receipt.session, turn: receipt.turn, events })
}

/// Converts a file to an upload in pieces.
fn upload(file: AttachmentFile) -> InputFile {
    let (media_type, name) = (file.media_type.to_owned(), file.name.clone());
    let bytes = stream::try_unfold(Box::pin(file.reader()), |mut reader| async move {
        let mut piece = vec![0; PIECE];
        let read = reader.read(&mut piece).await?;
        piece.truncate(read);
        Ok((read > 0).then(|| (Bytes::from(piece), reader)))
    });
    InputFile { media_type, name, bytes: Box::pin(bytes) }
}
