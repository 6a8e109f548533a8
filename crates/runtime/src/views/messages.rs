//! Returns the messages of a session in pages, newest first, without reading the rest.
//!
//! For the messages that a model is shown, see [`crate::turn::conversation_reader`].
use outlast_ports::store::Store;
use outlast_views::{HistoryTurn, SessionView, TurnState, TurnView};
use outlast_vocab::effect::{BatchCall, Command, ModelOutcome, Outcome, ToolOutcome};
use outlast_vocab::message::{Message, ModelCallId, Part, ToolName, ToolResult};
use outlast_vocab::record::{
    ClaimRef, EffectPerformed, EffectRequested, Fact, NodeRef, OutcomeVerdict, Record, Seq,
};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Failure, Kind, Limits, Millis, ReplayKey, SessionId, TurnId};

/// Approximate bytes of records per page.
const PAGE_BYTES: usize = 256 << 10;

/// A message with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMessage {
    /// The session it belongs to. In a fork, this may be the session it was forked from.
    pub session: SessionId,
    /// The turn it belongs to.
    pub turn: TurnId,
    /// Its number in that session, which fork and rewind accept.
    pub seq: Seq,
    /// When it became durable.
    pub at: Millis,
    /// The message.
    pub message: Message,
}

/// A page of turns with their messages.
#[derive(Debug, Default)]
pub struct MessagePage {
    /// The turns, oldest first, each with its messages in order.
    pub turns: Vec<(TurnView, Vec<SessionMessage>)>,
    /// The message before this page. `None` on the first page of the session.
    pub before: Option<NodeRef>,
}

/// Where a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePageEnd {
    /// At the newest message of a head. Includes unfinished turns.
    Newest,
    /// At this message.
    Message(NodeRef),
}

/// Returns a page of the messages of a head.
pub async fn page(
    store: &dyn Store,
    session: &SessionView,
    head: &str,
    until: MessagePageEnd,
) -> Result<MessagePage, Error> {
    page_of(store, session, head, until, PAGE_BYTES).await
}

/// Like [`page`], with a given size in bytes of records.
pub async fn page_of(
    store: &dyn Store,
    session: &SessionView,
    head: &str,
    until: MessagePageEnd,
    bytes: usize,
) -> Result<MessagePage, Error> {
    let (_, stands_at) = session.heads.iter().find(|(name, _)| name == head).ok_or_else(|| {
        Error::new(Kind::NodeNotFound, format!("session {} has no head `{head}`", session.id))
    })?;
    let end = match until {
        MessagePageEnd::Newest => *stands_at,
        MessagePageEnd::Message(node) => Some(node),
    };
    let mut page = MessagePage::default();
    let mut past = match end {
        Some(node) => store.history(node, bytes).await?,
        None => Vec::new(),
    };
    past.reverse();
    for HistoryTurn { records, last_in_branch: cut } in past {
        let Some(id) = records.first().and_then(|record| record.turn) else { continue };
        let turn = store.turn(id).await?;
        let messages = of_turn(turn.session, records, cut);
        page.turns.push((turn, messages));
    }
    page.before = page.turns.first().and_then(|(turn, _)| turn.parent);
    if until == MessagePageEnd::Newest {
        page.turns.extend(unfinished(store, session).await?);
    }
    Ok(page)
}

/// Counts the messages of a head by author. Holds one page in memory at a time.
pub async fn count(store: &dyn Store, session: &SessionView, head: &str) -> Result<MessageCount, Error> {
    let (mut count, mut until) = (MessageCount::default(), MessagePageEnd::Newest);
    loop {
        let page = page(store, session, head, until).await?;
        for message in page.turns.iter().flat_map(|(_, messages)| messages) {
            match message.message {
                Message::User { .. } => count.user += 1,
                Message::Assistant { .. } => count.assistant += 1,
                Message::Tool { .. } => count.tool += 1,
            }
        }
        let Some(before) = page.before else { return Ok(count) };
        until = MessagePageEnd::Message(before);
    }
}

/// Message counts by author.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCount {
    /// Messages of users.
    pub user: u64,
    /// Messages of models.
    pub assistant: u64,
    /// Results of tools.
    pub tool: u64,
}

/// Returns the turns that are running or queued.
async fn unfinished(
    store: &dyn Store,
    session: &SessionView,
) -> Result<Vec<(TurnView, Vec<SessionMessage>)>, Error> {
    let newest = u32::try_from(Limits::default().queued_inputs + 1).unwrap_or(u32::MAX);
    let from = session.turns.saturating_sub(newest);
    let mut turns = Vec::new();
    for turn in store.turns(session.id, from, newest as usize).await? {
        if turn.state != TurnState::Ended {
            let messages = of_turn(session.id, store.turn_records(turn.id).await?, Seq(u64::MAX));
            turns.push((turn, messages));
        }
    }
    Ok(turns)
}

/// Returns the messages of one turn up to `last_in_branch`. Results of calls made before the cut are included, however
/// late they came.
pub fn of_turn(session: SessionId, records: Vec<Record>, cut: Seq) -> Vec<SessionMessage> {
    let mut calls = ClaimedCalls::default();
    let mut session_messages = Vec::new();
    for record in records {
        let later = record.seq > cut;
        match &record.fact {
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                calls.claim(record.seq, key, &batch.calls);
            }
            Fact::Performed(EffectPerformed { outcome: Outcome::ModelCall(_), .. })
            | Fact::Interrupted(_)
                if later =>
            {
                break;
            }
            _ => {}
        }
        let Some(turn) = record.turn else { continue };
        let messages = messages(record.fact, &calls).into_iter();
        let (seq, at) = (record.seq, record.at);
        session_messages.extend(messages.map(|message| SessionMessage { session, turn, seq, at, message }));
    }
    session_messages
}

/// The calls claimed so far.
#[derive(Default)]
struct ClaimedCalls(Vec<(ClaimRef, ReplayKey, ModelCallId, ToolName)>);

impl ClaimedCalls {
    fn claim(&mut self, asked: Seq, key: &ReplayKey, batch: &[BatchCall]) {
        let call = |(child, call): (u32, &BatchCall)| {
            let place = key.child(child as usize, call.model_id().as_str());
            (ClaimRef { asked, child }, place, call.model_id().clone(), call.tool().clone())
        };
        self.0.extend((0..).zip(batch).map(call));
    }

    fn result(&self, claim: ClaimRef, result: ToolResult) -> Option<Message> {
        let (.., call, tool) = self.0.iter().find(|(of, ..)| *of == claim)?;
        Some(Message::Tool { call: call.clone(), tool: tool.clone(), result })
    }

    fn completed(&self, wait: &ReplayKey, result: ToolResult) -> Option<Message> {
        let (.., call, tool) = self.0.iter().find(|(_, place, ..)| place.completion() == *wait)?;
        Some(Message::Tool { call: call.clone(), tool: tool.clone(), result })
    }
}

/// Returns the messages in a fact.
fn messages(fact: Fact, calls: &ClaimedCalls) -> Vec<Message> {
    let failed = |kind, detail: &str| ToolResult::Err(Failure::new(kind, detail));
    match fact {
        Fact::Accepted(accepted) => {
            let input = Message::User { parts: accepted.parts };
            accepted.before.into_iter().chain([input]).collect()
        }
        Fact::Performed(EffectPerformed {
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
        }) => {
            vec![Message::Assistant { parts: reply.parts, calls: reply.calls }]
        }
        Fact::Interrupted(interrupted) if !interrupted.text.is_empty() => {
            let parts = vec![Part::text(interrupted.marked_text())];
            vec![Message::Assistant { parts, calls: Vec::new() }]
        }
        Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
            joined.into_messages().collect()
        }
        Fact::Performed(EffectPerformed { key, outcome: Outcome::AwaitEvent(resolution), .. }) => {
            let result = match resolution {
                Resolution::Ok(value) => ToolResult::Ok(value),
                Resolution::Err(failure) => ToolResult::Err(failure),
                Resolution::Timeout => failed(Kind::WaitTimedOut, "it was not completed before its deadline"),
                Resolution::Cancelled => failed(Kind::WaitCancelled, "the wait was cancelled"),
            };
            calls.completed(&key, result).into_iter().collect()
        }
        Fact::Answered(answered) => match answered.outcome {
            Outcome::ToolCall(ToolOutcome::Done(result)) => {
                calls.result(answered.claim, result).into_iter().collect()
            }
            Outcome::ToolCall(ToolOutcome::Unknown) => {
                let unknown = failed(Kind::ToolOutcomeUnknown, "the outcome is unknown");
                calls.result(answered.claim, unknown).into_iter().collect()
            }
            _ => Vec::new(),
        },
        Fact::Settled(settled) => {
            let result = match settled.verdict {
                OutcomeVerdict::Happened(result) => result,
                OutcomeVerdict::DidNotHappen => failed(Kind::ToolFailed, "it did not happen"),
            };
            calls.result(settled.claim, result).into_iter().collect()
        }
        _ => Vec::new(),
    }
}
