//! The stream events of a response.
//!
//! The numbers of events increase, and each contains a checksum of the text up to it. A reader that
//! reconnects with the number of its last event continues after it. If its text differs from the start of the
//! answer, it gets an error.
use super::error;
use super::response_object::{OpenAiResponse, part};
use crate::compat_error::{CompatResult, ErrorContents};
use crate::segment_answer::{AnswerItem, SegmentAnswer};
use crate::segment_event::{SegmentEvent, SegmentEventKind, SegmentOutcome};
use crate::segment_projector::retracted;
use crate::stream::{StreamFormat, StreamLine};
use outlast_vocab::Error;
use serde_json::{Value, json};

/// The bits of a number that hold the checksum of the text. The rest count events, within the integers that
/// JSON represents exactly.
const CHECKSUM_BITS: u32 = 20;

/// Converts the events of a segment to events of the Responses API.
pub(crate) struct ResponseStream {
    response_head: OpenAiResponse,
    answer: SegmentAnswer,
    numbers: SequenceNumbers,
}

/// Numbers events and drops those that the reader already has.
struct SequenceNumbers {
    next: u64,
    checksum: u64,
    after: Option<u64>,
}

impl SequenceNumbers {
    /// Returns the number of the next event, or `None` if the reader already has it. Fails if the reader got
    /// other text.
    fn number(&mut self, text: Option<&str>) -> Result<Option<u64>, ()> {
        // FNV-1a. It needs no secret: it only detects text that took another course.
        for byte in text.unwrap_or_default().bytes() {
            self.checksum = (self.checksum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let number = (self.next << CHECKSUM_BITS) | self.checksum_bits();
        self.next += 1;
        match self.after {
            Some(after) if number >> CHECKSUM_BITS == after >> CHECKSUM_BITS && number != after => Err(()),
            Some(after) if number <= after => Ok(None),
            _ => Ok(Some(number)),
        }
    }

    /// Returns the checksum of the text so far. It is 0 if there was no text.
    fn checksum_bits(&self) -> u64 {
        (self.checksum ^ (self.checksum >> 32) ^ (self.checksum >> CHECKSUM_BITS))
            & ((1 << CHECKSUM_BITS) - 1)
    }
}

impl ResponseStream {
    /// Creates the events of this response, after the one with the number `after`.
    pub(crate) fn new(response_head: OpenAiResponse, after: Option<u64>) -> Self {
        Self {
            response_head,
            answer: SegmentAnswer::default(),
            numbers: SequenceNumbers { next: 0, checksum: 0, after },
        }
    }

    fn push_event(
        &mut self,
        event: &'static str,
        mut data: Value,
        lines: &mut Vec<StreamLine>,
    ) -> Result<(), Error> {
        let text = data.get("delta").filter(|_| event == "response.output_text.delta");
        let text = text.and_then(Value::as_str).map(ToOwned::to_owned);
        let number =
            self.numbers.number(text.as_deref()).map_err(|()| retracted(self.response_head.segment.turn))?;
        if let Some(number) = number {
            data["type"] = json!(event);
            data["sequence_number"] = json!(number);
            lines.push(StreamLine::named(event, &data));
        }
        Ok(())
    }

    fn push_response(&mut self, event: &'static str, lines: &mut Vec<StreamLine>) -> Result<(), Error> {
        let response = self.response_head.response(&self.answer);
        self.push_event(event, json!({ "response": response }), lines)
    }

    fn text_begins(&mut self, index: usize, lines: &mut Vec<StreamLine>) -> Result<(), Error> {
        let item =
            self.response_head.item(index, &AnswerItem::Text { text: String::new(), is_complete: false });
        let id = item["id"].clone();
        self.push_event("response.output_item.added", json!({ "output_index": index, "item": item }), lines)?;
        let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part("") });
        self.push_event("response.content_part.added", data, lines)
    }

    fn text_ends(&mut self, index: usize, text: &str, lines: &mut Vec<StreamLine>) -> Result<(), Error> {
        let item =
            self.response_head.item(index, &AnswerItem::Text { text: text.to_owned(), is_complete: true });
        let at = json!({ "item_id": item["id"], "output_index": index, "content_index": 0 });
        let with = |name: &str, value: Value| {
            let mut data = at.clone();
            data[name] = value;
            data
        };
        let mut done = with("text", json!(text));
        done["logprobs"] = json!([]);
        self.push_event("response.output_text.done", done, lines)?;
        self.push_event("response.content_part.done", with("part", part(text)), lines)?;
        self.push_event("response.output_item.done", json!({ "output_index": index, "item": item }), lines)
    }

    fn tool_begins(&mut self, index: usize, lines: &mut Vec<StreamLine>) -> Result<(), Error> {
        let Some(item) = self.answer.items.get(index) else { return Ok(()) };
        let item = self.response_head.item(index, item);
        let at = json!({ "item_id": item["id"], "output_index": index });
        let mut arguments = at.clone();
        arguments["arguments"] = item["arguments"].clone();
        self.push_event("response.output_item.added", json!({ "output_index": index, "item": item }), lines)?;
        self.push_event("response.mcp_call.in_progress", at, lines)?;
        self.push_event("response.mcp_call_arguments.done", arguments, lines)
    }

    fn tool_ends(&mut self, index: usize, lines: &mut Vec<StreamLine>) -> Result<(), Error> {
        let Some(item) = self.answer.items.get(index) else { return Ok(()) };
        let item = self.response_head.item(index, item);
        let failed = item["status"] == "failed";
        let event = if failed { "response.mcp_call.failed" } else { "response.mcp_call.completed" };
        self.push_event(event, json!({ "item_id": item["id"], "output_index": index }), lines)?;
        self.push_event("response.output_item.done", json!({ "output_index": index, "item": item }), lines)
    }

    fn call(&mut self, index: usize, lines: &mut Vec<StreamLine>) -> Result<(), Error> {
        let Some(item) = self.answer.items.get(index) else { return Ok(()) };
        let item = self.response_head.item(index, item);
        let mut begun = item.clone();
        (begun["arguments"], begun["status"]) = (json!(""), json!("in_progress"));
        let at = json!({ "item_id": item["id"], "output_index": index });
        let (mut delta, mut done) = (at.clone(), at);
        delta["delta"] = item["arguments"].clone();
        done["arguments"] = item["arguments"].clone();
        self.push_event(
            "response.output_item.added",
            json!({ "output_index": index, "item": begun }),
            lines,
        )?;
        self.push_event("response.function_call_arguments.delta", delta, lines)?;
        self.push_event("response.function_call_arguments.done", done, lines)?;
        self.push_event("response.output_item.done", json!({ "output_index": index, "item": item }), lines)
    }
}

impl StreamFormat for ResponseStream {
    fn opening(&mut self) -> CompatResult<Vec<StreamLine>> {
        let mut lines = Vec::new();
        self.push_response("response.created", &mut lines)?;
        self.push_response("response.in_progress", &mut lines)?;
        Ok(lines)
    }

    fn convert(&mut self, event: &SegmentEvent) -> CompatResult<Vec<StreamLine>> {
        self.answer.add(event);
        let (index, mut lines) = (event.item, Vec::new());
        match &event.kind {
            SegmentEventKind::TextStarted => self.text_begins(index, &mut lines)?,
            SegmentEventKind::Text(piece) => {
                let id = self.response_head.item_id("msg", index);
                let data = json!({
                    "item_id": id, "output_index": index, "content_index": 0, "delta": piece, "logprobs": [],
                });
                self.push_event("response.output_text.delta", data, &mut lines)?;
            }
            SegmentEventKind::TextCompleted(text) => self.text_ends(index, text, &mut lines)?,
            SegmentEventKind::ToolStarted(_) => self.tool_begins(index, &mut lines)?,
            SegmentEventKind::ToolFinished(_) => self.tool_ends(index, &mut lines)?,
            SegmentEventKind::Call(_) => self.call(index, &mut lines)?,
            SegmentEventKind::Ended(over) => {
                let name = match over.outcome {
                    SegmentOutcome::Answered | SegmentOutcome::ClientCalls => "response.completed",
                    SegmentOutcome::Refused | SegmentOutcome::Length => "response.incomplete",
                    // The API has no event for cancellation, and Codex takes `response.incomplete` for a broken
                    // stream. The response itself has the status.
                    SegmentOutcome::Failed(_) | SegmentOutcome::Cancelled(_) => "response.failed",
                };
                self.push_response(name, &mut lines)?;
            }
        }
        Ok(lines)
    }

    fn failure(&mut self, contents: &ErrorContents<'_>) -> StreamLine {
        let number = (self.numbers.next << CHECKSUM_BITS) | self.numbers.checksum_bits();
        let data = json!({
            "type": "error",
            "code": contents.code,
            "message": contents.detail,
            "param": null,
            "sequence_number": number,
            // The documentation has the members above. OpenAI's server sends this one, and the AI SDK reads it.
            "error": {
                "type": error::error_type(contents), "code": contents.code, "message": contents.detail, "param": null,
            },
        });
        StreamLine::named("error", &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pieces: &[&str], after: Option<u64>) -> Vec<Result<Option<u64>, ()>> {
        let mut numbers = SequenceNumbers { next: 0, checksum: 0, after };
        pieces.iter().map(|piece| numbers.number(Some(piece))).collect()
    }

    #[test]
    fn stream_resumes_only_if_the_known_text_matches() {
        let all = numbers(&["", "one ", "two ", "three"], None);
        let last = all[2].unwrap().unwrap();
        assert_eq!(all[0], Ok(Some(0)));
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(all[3].unwrap().unwrap() < 1 << 53);
        assert_eq!(
            numbers(&["", "one ", "two ", "three"], Some(last)),
            [Ok(None), Ok(None), Ok(None), all[3]]
        );
        assert_eq!(numbers(&["", "one ", "too ", "three"], Some(last))[2], Err(()));
        assert_eq!(numbers(&["", "won ", "two ", "three"], Some(last))[2], Err(()));
    }
}
