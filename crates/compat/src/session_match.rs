//! Finds the session that the messages of a stateless client belong to.
//!
//! The key of such a session is a fingerprint of everything in its first request. A later request of the
//! conversation starts with the same messages, so the key can be computed again. If the messages in the
//! session match those of the request, the conversation continues there. If not, or if the client has changed
//! its messages, a new session starts with the messages of the request.
use crate::compat_request::CompatApi;
use crate::response_segment::{ResponseSegment, is_own_call};
use crate::segment_answer::{BETWEEN_TEXTS, SegmentAnswer};
use crate::segment_projector::{PendingClientCall, SegmentProjector};
use crate::segment_reader::client_tools;
use outlast_ports::branches::MAIN_HEAD;
use outlast_runtime::Runtime;
use outlast_views::{SessionState, SessionView};
use outlast_vocab::event::Event;
use outlast_vocab::message::{Message, Part, ToolName, ToolResult, text_of};
use outlast_vocab::record::{NodeRef, Record};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Hash, Kind, SessionId, TurnId, canonical_json};
use serde_json::Value;

/// The maximum number of sessions that one request examines.
const MAX_CANDIDATES: usize = 8;

/// The maximum number of turns of a session that are compared with a request.
const TURNS: usize = 1_000;

const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

/// The conversation in a request, with the new input at its end.
pub(crate) struct ChatTranscript<'a> {
    pub(crate) api: CompatApi,
    pub(crate) agent: Option<&'a str>,
    pub(crate) instructions: &'a [&'a str],
    pub(crate) before: &'a [Message],
    pub(crate) parts: &'a [Part],
}

impl ChatTranscript<'_> {
    /// Returns the key of a session that started with these messages and this input.
    fn key(&self, said: &[Message], input: &str) -> String {
        let said = comparable(said);
        let hash = canonical_json::fingerprint(&(self.agent, self.instructions, said, input));
        format!("{}/{hash}", self.api.session_prefix())
    }

    /// Returns the keys under which the conversation may have started: one for each answered input, in order.
    fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for (index, pair) in self.before.windows(2).enumerate() {
            if let [Message::User { parts }, Message::Assistant { .. }] = pair {
                keys.push(self.key(&self.before[..index], &text_of(parts)));
            }
        }
        keys
    }
}

/// A message in a form that client and server can compare.
#[derive(PartialEq, Eq, Debug, serde::Serialize)]
struct ComparableMessage {
    who: &'static str,
    text: String,
    /// The ids of the calls for the client.
    calls: Vec<String>,
    /// The hashes of its files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<Hash>,
}

impl ComparableMessage {
    fn of(message: &Message) -> Self {
        let (who, calls) = match message {
            Message::User { .. } => ("user", Vec::new()),
            Message::Assistant { calls, .. } => {
                (ASSISTANT, calls.iter().map(|call| call.id.to_string()).collect())
            }
            Message::Tool { call, .. } => (TOOL, vec![call.to_string()]),
        };
        let parts = match message {
            Message::User { parts } => parts.as_slice(),
            Message::Assistant { .. } | Message::Tool { .. } => &[],
        };
        let content = |part: &Part| match part {
            Part::Attachment { attachment } => Some(attachment.content),
            Part::Link { link } => Some(Hash::of(link.url.as_bytes())),
            _ => None,
        };
        let files = parts.iter().filter_map(content).collect();
        Self { who, text: message.text().into_owned(), calls, files }
    }

    /// Appends a reply that directly follows this one.
    fn append(&mut self, next: Self) {
        if !self.text.is_empty() && !next.text.is_empty() {
            self.text.push_str(BETWEEN_TEXTS);
        }
        self.text.push_str(&next.text);
        self.calls.extend(next.calls);
    }
}

/// Returns messages in a form that client and server can compare. Clients of the Responses API repeat the texts of
/// an answer as separate messages, and the agent's own calls between them. The texts become one reply without these
/// calls, as in the journal.
fn comparable(messages: &[Message]) -> Vec<ComparableMessage> {
    let mut all: Vec<ComparableMessage> = Vec::new();
    for message in messages {
        let mut next = ComparableMessage::of(message);
        if next.who == TOOL && next.calls.iter().all(|call| is_own_call(call)) {
            continue;
        }
        next.calls.retain(|call| !is_own_call(call));
        match all.last_mut() {
            Some(last) if (last.who, next.who) == (ASSISTANT, ASSISTANT) => last.append(next),
            _ => all.push(next),
        }
    }
    all
}

/// Where the new input of a conversation goes.
pub(crate) enum SessionMatch {
    /// To the session of the conversation, after this many turns.
    Existing { session: SessionId, turns: u32 },
    /// To a new session with this key, after the previous messages.
    New(String),
    /// To a new session without a key, because another conversation started with the same messages.
    Unkeyed,
}

/// Finds the session of a conversation.
pub(crate) async fn find(runtime: &Runtime, thread: &ChatTranscript<'_>) -> Result<SessionMatch, Error> {
    let said = comparable(thread.before);
    let keys = thread.keys();
    // Most conversations started with their first message, or moved to a new session recently.
    let candidates = keys.first().into_iter().chain(keys.iter().skip(1).rev()).take(MAX_CANDIDATES);
    for key in candidates {
        let Some(session) = by_key(runtime, key).await? else { continue };
        if session.state == SessionState::Idle
            && comparable_messages(runtime, &session).await?.as_ref() == Some(&said)
        {
            return Ok(SessionMatch::Existing { session: session.id, turns: session.turns });
        }
    }
    let key = thread.key(thread.before, &text_of(thread.parts));
    Ok(match by_key(runtime, &key).await? {
        Some(_) => SessionMatch::Unkeyed,
        None => SessionMatch::New(key),
    })
}

async fn by_key(runtime: &Runtime, key: &str) -> Result<Option<SessionView>, Error> {
    match runtime.store().session_by_key(key.to_owned()).await {
        Err(error) if error.kind() == Kind::SessionNotFound => Ok(None),
        session => session.map(Some),
    }
}

/// Returns the messages of a session in comparable form. Returns `None` if its main head is not at its newest
/// turn.
async fn comparable_messages(
    runtime: &Runtime,
    session: &SessionView,
) -> Result<Option<Vec<ComparableMessage>>, Error> {
    let store = runtime.store();
    let turns = store.turns(session.id, 0, TURNS).await?;
    let Some(newest) = turns.last() else { return Ok(None) };
    let end = NodeRef { session: session.id, seq: newest.span.1 };
    let is_there = session.heads.iter().any(|(head, stands)| head == MAIN_HEAD && *stands == Some(end));
    if !is_there || newest.index + 1 != session.turns {
        return Ok(None);
    }
    let mut messages = Vec::new();
    for turn in &turns {
        let client = client_tools(runtime, turn.id).await?;
        append_turn(turn.id, &store.turn_records(turn.id).await?, &client, &mut messages)?;
    }
    Ok(Some(messages))
}

/// Appends the messages of a turn.
fn append_turn(
    turn: TurnId,
    records: &[Record],
    client: &[ToolName],
    messages: &mut Vec<ComparableMessage>,
) -> Result<(), Error> {
    let mut number = 0;
    loop {
        let mut projector = SegmentProjector::new(ResponseSegment { turn, number }, client.to_vec());
        let mut answer = SegmentAnswer::default();
        for record in records {
            for event in projector.project(&Event::Durable(Box::new(record.clone())))? {
                answer.add(&event);
            }
        }
        if number == 0 {
            messages.extend(comparable(&projector.input().before));
            messages.push(ComparableMessage::of(&Message::User { parts: projector.input().parts.clone() }));
        }
        let calls = answer.calls().map(|call| call.id.to_string()).collect();
        messages.push(ComparableMessage { who: ASSISTANT, text: answer.text(), calls, files: Vec::new() });
        let Some(stop) = projector.stops().get(number as usize) else { return Ok(()) };
        for PendingClientCall { call, resolution, .. } in &stop.calls {
            let text = match resolution {
                Some(Resolution::Ok(Value::String(text))) => text.clone(),
                Some(Resolution::Err(failure)) => ToolResult::Err(failure.clone()).text().into_owned(),
                other => format!("{other:?}"),
            };
            let calls = vec![call.id.to_string()];
            messages.push(ComparableMessage { who: TOOL, text, calls, files: Vec::new() });
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::message::{CallArguments, ToolUse};

    fn reply(text: &str, calls: &[&str]) -> Message {
        let call = |id: &&str| {
            let tool = "look".parse().unwrap();
            ToolUse::new(id.parse().unwrap(), tool, CallArguments::Json(Value::Null))
        };
        Message::Assistant { parts: vec![Part::text(text)], calls: calls.iter().map(call).collect() }
    }

    fn result(id: &str) -> Message {
        let (call, tool) = (id.parse().unwrap(), "look".parse().unwrap());
        Message::Tool { call, tool, result: ToolResult::Ok(Value::from("snow")) }
    }

    #[test]
    fn own_calls_do_not_split_a_reply() {
        const OWN: &str = "mcp_000000000000000000000000000000ab_0_1";
        let items = [
            Message::user("weather?"),
            reply("I look.", &[OWN]),
            result(OWN),
            reply("And again.", &["theirs"]),
            result("theirs"),
        ];
        let whole =
            [Message::user("weather?"), reply("I look.\n\nAnd again.", &["theirs"]), result("theirs")];
        assert_eq!(comparable(&items), comparable(&whole));
        assert_ne!(comparable(&items), comparable(&items[..4]));
    }
}
