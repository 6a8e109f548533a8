//! One session with its streaming text and its tool calls.
use crate::backend::CommandBackend;
use crate::conversation_printer::StreamedReply;
use crate::formatting;
use outlast::store::Store;
use outlast::vocab::effect::{Command, ModelOutcome, Outcome};
use outlast::vocab::event::{Event, LiveEventKind};
use outlast::vocab::message::text_of;
use outlast::vocab::record::{EffectPerformed, EffectRequested, Fact, Record, Seq};
use outlast::{Error, Limits, SessionId};
use outlast_client::{EventFollower, FollowedItem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often a database file is read.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The maximum number of lines. `outlast sessions show` prints older ones.
const KEPT: usize = 2_000;

/// The author of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineAuthor {
    Person,
    Model,
    /// Tool calls and changes of the turn.
    Work,
}

/// The text of a session.
pub(super) struct LiveSession {
    pub(super) session: SessionId,
    pub(super) lines: Vec<(LineAuthor, String)>,
    spoken: Option<StreamedReply>,
    tools: BTreeMap<(Seq, u32), String>,
}

impl LiveSession {
    /// Creates an empty text.
    pub(super) fn of(session: SessionId) -> Self {
        Self { session, lines: Vec::new(), spoken: None, tools: BTreeMap::new() }
    }

    /// Returns the reply that is being streamed.
    pub(super) fn spoken(&self) -> Option<&str> {
        self.spoken.as_ref().map(StreamedReply::text).filter(|said| !said.is_empty())
    }

    /// Applies an event.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Durable(record) => self.on_record(record),
            Event::Live(live) => self.on_live_event(&live.what),
            Event::Missed { .. } => {}
        }
        let over = self.lines.len().saturating_sub(KEPT);
        self.lines.drain(..over);
    }

    fn on_live_event(&mut self, what: &LiveEventKind) {
        match what {
            LiveEventKind::Text { key, attempt, offset, text } => {
                if self.spoken.as_ref().is_none_or(|spoken| !spoken.is_of(key)) && *offset == 0 {
                    self.spoken = Some(StreamedReply::of(key.clone(), *attempt));
                }
                if let Some(spoken) = self.spoken.as_mut().filter(|spoken| spoken.is_of(key)) {
                    spoken.append(*attempt, *offset, text);
                }
            }
            LiveEventKind::Retracted { .. } => self.spoken = None,
            LiveEventKind::Progress { note, .. } => self.work(&format!("· {note}")),
            LiveEventKind::Held { failure } => self.work(&format!("! {failure}")),
            _ => {}
        }
    }

    fn work(&mut self, line: &str) {
        self.lines.push((LineAuthor::Work, line.to_owned()));
    }

    fn on_record(&mut self, record: &Record) {
        match &record.fact {
            Fact::Accepted(accepted) => {
                self.lines.push((LineAuthor::Person, text_of(&accepted.parts).into_owned()));
            }
            Fact::Performed(EffectPerformed { outcome: Outcome::ModelCall(outcome), .. }) => {
                self.spoken = None;
                match outcome {
                    ModelOutcome::Reply(reply) => {
                        let text = text_of(&reply.parts);
                        if !text.is_empty() {
                            self.lines.push((LineAuthor::Model, text.into_owned()));
                        }
                    }
                    ModelOutcome::Failed(failed) => self.work(&format!("! {}", failed.failure)),
                }
            }
            Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
                for (child, call) in (0..).zip(&batch.calls) {
                    self.work(&format!("· {}", formatting::claimed(call)));
                    self.tools.insert((record.seq, child), call.tool().to_string());
                }
            }
            Fact::Answered(answered) => {
                if let Outcome::ToolCall(outcome) = &answered.outcome {
                    let tool = self.tools.get(&(answered.claim.asked, answered.claim.child));
                    let tool = tool.map_or("a call", String::as_str);
                    let line = format!("· {tool} → {}", formatting::outcome(outcome));
                    self.work(&line);
                }
            }
            fact @ (Fact::Parked { .. }
            | Fact::Stuck { .. }
            | Fact::Ended { .. }
            | Fact::CancelRequested { .. }) => {
                self.work(&format!("· {} {}", fact.name(), formatting::fact(fact)));
            }
            _ => {}
        }
    }
}

/// The source of a session's events.
///
/// A database file has only durable events. Live text is known only to the process that drives the turn.
pub(super) enum SessionFeed {
    File { store: Arc<dyn Store>, session: SessionId, after: Seq },
    Server(Box<EventFollower>),
}

impl SessionFeed {
    /// Returns the events of a session from its start.
    pub(super) fn of(backend: &CommandBackend, session: SessionId) -> Self {
        match backend {
            CommandBackend::File(store) => Self::File { store: store.clone(), session, after: Seq(0) },
            CommandBackend::Server(client) => Self::Server(Box::new(client.follow(session, Seq(0)))),
        }
    }

    /// Waits for the next events. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Vec<Event>, Error> {
        match self {
            Self::File { store, session, after } => loop {
                let page = store.records(*session, *after, Limits::default().page_rows).await?;
                if let Some(last) = page.last() {
                    *after = last.seq;
                    return Ok(page.into_iter().map(|record| Event::Durable(Box::new(record))).collect());
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            },
            Self::Server(following) => loop {
                if let FollowedItem::Event(event) = following.next().await? {
                    return Ok(vec![event]);
                }
            },
        }
    }
}
