//! Collects the events of a segment into its answer.
use super::compat_error::{CompatError, CompatResult};
use super::response_segment::ResponseSegment;
use super::segment_event::{AgentToolCall, ClientCall, SegmentEnd, SegmentEvent, SegmentEventKind};
use super::segment_reader::SegmentReader;
use outlast_http::HttpState;
use outlast_vocab::message::ToolResult;
use outlast_vocab::{Error, Kind};

/// The separator between the texts of an answer, for APIs with only one text.
pub(crate) const BETWEEN_TEXTS: &str = "\n\n";

/// An answer, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentAnswer {
    pub(crate) items: Vec<AnswerItem>,
    pub(crate) end: Option<SegmentEnd>,
}

/// An item of an answer.
#[derive(Clone, Debug)]
pub(crate) enum AnswerItem {
    /// Text, and whether it is complete.
    Text { text: String, is_complete: bool },
    /// A call of one of the agent's own tools, and its result.
    Tool { asked: AgentToolCall, result: Option<ToolResult> },
    /// A call for the client.
    Call(ClientCall),
}

impl SegmentAnswer {
    /// Collects these events.
    pub(crate) fn of(events: &[SegmentEvent]) -> Self {
        let mut answer = Self::default();
        for event in events {
            answer.add(event);
        }
        answer
    }

    /// Adds the next event.
    pub(crate) fn add(&mut self, event: &SegmentEvent) {
        let item = self.items.get_mut(event.item);
        match (&event.kind, item) {
            (SegmentEventKind::TextStarted, _) => {
                self.items.push(AnswerItem::Text { text: String::new(), is_complete: false });
            }
            (SegmentEventKind::Text(piece), Some(AnswerItem::Text { text, .. })) => text.push_str(piece),
            (SegmentEventKind::TextCompleted(_), Some(AnswerItem::Text { is_complete: is_whole, .. })) => {
                *is_whole = true;
            }
            (SegmentEventKind::ToolStarted(asked), _) => {
                self.items.push(AnswerItem::Tool { asked: asked.clone(), result: None });
            }
            (SegmentEventKind::ToolFinished(gave), Some(AnswerItem::Tool { result, .. })) => {
                *result = Some(gave.clone());
            }
            (SegmentEventKind::Call(call), _) => self.items.push(AnswerItem::Call(call.clone())),
            (SegmentEventKind::Ended(over), _) => self.end = Some(over.clone()),
            (
                SegmentEventKind::Text(_)
                | SegmentEventKind::TextCompleted(_)
                | SegmentEventKind::ToolFinished(_),
                _,
            ) => {}
        }
    }

    /// Reads until the segment is over. Returns whether it is: reading also stops after a timeout and when
    /// the server shuts down. Reads only durable events, so the answer contains no retracted text.
    pub(crate) async fn read_until_end(
        &mut self,
        reader: &mut SegmentReader,
        shared: &HttpState,
    ) -> Result<bool, Error> {
        let over = async {
            while self.end.is_none() {
                let event = reader.next_durable().await?;
                self.add(&event);
            }
            Ok::<(), Error>(())
        };
        let mut stopping = shared.stopping.clone();
        tokio::select! {
            biased;
            listened = over => listened.map(|()| true),
            () = tokio::time::sleep(shared.limits.wire_wait) => Ok(false),
            // Answer now. If the connection were cut off, the client would repeat its request, and the input
            // would arrive twice.
            _ = stopping.wait_for(|stopping| *stopping) => Ok(false),
        }
    }

    /// Returns the complete answer of a segment. Fails if it takes too long. The turn continues in that case.
    pub(crate) async fn complete(
        mut reader: SegmentReader,
        segment: ResponseSegment,
        shared: &HttpState,
    ) -> CompatResult<Self> {
        let mut answer = Self::default();
        if !answer
            .read_until_end(&mut reader, shared)
            .await
            .map_err(|error| CompatError::from(error).after_acceptance())?
        {
            let detail = format!("{} is still running", segment.turn);
            return Err(CompatError::from(Error::new(Kind::TurnWaits, detail)).after_acceptance());
        }
        Ok(answer)
    }

    /// Returns all texts as one.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<&str> = self.items.iter().filter_map(AnswerItem::text).collect();
        texts.join(BETWEEN_TEXTS)
    }

    /// Returns the calls for the client.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ClientCall> {
        self.items.iter().filter_map(|item| match item {
            AnswerItem::Call(call) => Some(call),
            AnswerItem::Text { .. } | AnswerItem::Tool { .. } => None,
        })
    }
}

impl AnswerItem {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Tool { .. } | Self::Call(_) => None,
        }
    }
}
