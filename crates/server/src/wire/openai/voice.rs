//! The stream events of a response.
//!
//! The numbers of events increase, and each contains a checksum of the text up to it. A reader that
//! reconnects with the number of its last event continues after it. If its text differs from the start of the
//! answer, it gets an error.
use super::object::{Asked, part};
use crate::wire::gather::{Gathered, Item};
use crate::wire::refusal::{Answer, Complaint};
use crate::wire::stream::{Line, Voice};
use crate::wire::teller::retracted;
use crate::wire::told::{How, Told, What};
use outlast_vocab::Error;
use serde_json::{Value, json};

/// The bits of a number that hold the checksum of the text. The rest count events, within the integers that
/// JSON represents exactly.
const COVER: u32 = 20;

/// Converts the events of a segment to events of the Responses API.
pub(crate) struct Events {
    asked: Asked,
    gathered: Gathered,
    numbers: Numbers,
}

/// Numbers events and drops those that the reader already has.
struct Numbers {
    next: u64,
    cover: u64,
    after: Option<u64>,
}

impl Numbers {
    /// Returns the number of the next event, or `None` if the reader already has it. Fails if the reader got
    /// other text.
    fn number(&mut self, text: Option<&str>) -> Result<Option<u64>, ()> {
        // FNV-1a. It needs no secret: it only detects text that took another course.
        for byte in text.unwrap_or_default().bytes() {
            self.cover = (self.cover ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let number = (self.next << COVER) | self.sign();
        self.next += 1;
        match self.after {
            Some(after) if number >> COVER == after >> COVER && number != after => Err(()),
            Some(after) if number <= after => Ok(None),
            _ => Ok(Some(number)),
        }
    }

    /// Returns the checksum of the text so far. It is 0 if there was no text.
    fn sign(&self) -> u64 {
        (self.cover ^ (self.cover >> 32) ^ (self.cover >> COVER)) & ((1 << COVER) - 1)
    }
}

impl Events {
    /// Creates the events of this response, after the one with the number `after`.
    pub(crate) fn new(asked: Asked, after: Option<u64>) -> Self {
        Self { asked, gathered: Gathered::default(), numbers: Numbers { next: 0, cover: 0, after } }
    }

    fn line(&mut self, event: &'static str, mut data: Value, lines: &mut Vec<Line>) -> Result<(), Error> {
        let text = data.get("delta").filter(|_| event == "response.output_text.delta");
        let text = text.and_then(Value::as_str).map(ToOwned::to_owned);
        let number = self.numbers.number(text.as_deref()).map_err(|()| retracted(self.asked.leg.turn))?;
        if let Some(number) = number {
            data["type"] = json!(event);
            data["sequence_number"] = json!(number);
            lines.push(Line::named(event, &data));
        }
        Ok(())
    }

    fn whole(&mut self, event: &'static str, lines: &mut Vec<Line>) -> Result<(), Error> {
        let response = self.asked.response(&self.gathered);
        self.line(event, json!({ "response": response }), lines)
    }

    fn text_begins(&mut self, index: usize, lines: &mut Vec<Line>) -> Result<(), Error> {
        let item = self.asked.item(index, &Item::Text { text: String::new(), is_whole: false });
        let id = item["id"].clone();
        self.line("response.output_item.added", json!({ "output_index": index, "item": item }), lines)?;
        let data = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part("") });
        self.line("response.content_part.added", data, lines)
    }

    fn text_ends(&mut self, index: usize, text: &str, lines: &mut Vec<Line>) -> Result<(), Error> {
        let item = self.asked.item(index, &Item::Text { text: text.to_owned(), is_whole: true });
        let at = json!({ "item_id": item["id"], "output_index": index, "content_index": 0 });
        let with = |name: &str, value: Value| {
            let mut data = at.clone();
            data[name] = value;
            data
        };
        let mut done = with("text", json!(text));
        done["logprobs"] = json!([]);
        self.line("response.output_text.done", done, lines)?;
        self.line("response.content_part.done", with("part", part(text)), lines)?;
        self.line("response.output_item.done", json!({ "output_index": index, "item": item }), lines)
    }

    fn tool_begins(&mut self, index: usize, lines: &mut Vec<Line>) -> Result<(), Error> {
        let Some(item) = self.gathered.items.get(index) else { return Ok(()) };
        let item = self.asked.item(index, item);
        let at = json!({ "item_id": item["id"], "output_index": index });
        let mut arguments = at.clone();
        arguments["arguments"] = item["arguments"].clone();
        self.line("response.output_item.added", json!({ "output_index": index, "item": item }), lines)?;
        self.line("response.mcp_call.in_progress", at, lines)?;
        self.line("response.mcp_call_arguments.done", arguments, lines)
    }

    fn tool_ends(&mut self, index: usize, lines: &mut Vec<Line>) -> Result<(), Error> {
        let Some(item) = self.gathered.items.get(index) else { return Ok(()) };
        let item = self.asked.item(index, item);
        let failed = item["status"] == "failed";
        let event = if failed { "response.mcp_call.failed" } else { "response.mcp_call.completed" };
        self.line(event, json!({ "item_id": item["id"], "output_index": index }), lines)?;
        self.line("response.output_item.done", json!({ "output_index": index, "item": item }), lines)
    }

    fn call(&mut self, index: usize, lines: &mut Vec<Line>) -> Result<(), Error> {
        let Some(item) = self.gathered.items.get(index) else { return Ok(()) };
        let item = self.asked.item(index, item);
        let mut begun = item.clone();
        (begun["arguments"], begun["status"]) = (json!(""), json!("in_progress"));
        let at = json!({ "item_id": item["id"], "output_index": index });
        let (mut delta, mut done) = (at.clone(), at);
        delta["delta"] = item["arguments"].clone();
        done["arguments"] = item["arguments"].clone();
        self.line("response.output_item.added", json!({ "output_index": index, "item": begun }), lines)?;
        self.line("response.function_call_arguments.delta", delta, lines)?;
        self.line("response.function_call_arguments.done", done, lines)?;
        self.line("response.output_item.done", json!({ "output_index": index, "item": item }), lines)
    }
}

impl Voice for Events {
    fn begins(&mut self) -> Answer<Vec<Line>> {
        let mut lines = Vec::new();
        self.whole("response.created", &mut lines)?;
        self.whole("response.in_progress", &mut lines)?;
        Ok(lines)
    }

    fn says(&mut self, told: &Told) -> Answer<Vec<Line>> {
        self.gathered.add(told);
        let (index, mut lines) = (told.item, Vec::new());
        match &told.what {
            What::TextBegins => self.text_begins(index, &mut lines)?,
            What::Text(piece) => {
                let id = self.asked.item_id("msg", index);
                let data = json!({
                    "item_id": id, "output_index": index, "content_index": 0, "delta": piece, "logprobs": [],
                });
                self.line("response.output_text.delta", data, &mut lines)?;
            }
            What::TextEnds(text) => self.text_ends(index, text, &mut lines)?,
            What::ToolBegins(_) => self.tool_begins(index, &mut lines)?,
            What::ToolEnds(_) => self.tool_ends(index, &mut lines)?,
            What::Call(_) => self.call(index, &mut lines)?,
            What::Over(over) => {
                let event = match over.how {
                    How::Answered | How::ForClient => "response.completed",
                    // The API has no event for cancellation. The response itself has the status.
                    How::Refused | How::Length | How::Cancelled => "response.incomplete",
                    How::Failed(_) => "response.failed",
                };
                self.whole(event, &mut lines)?;
            }
        }
        Ok(lines)
    }

    fn fails(&mut self, complaint: &Complaint<'_>) -> Line {
        let number = (self.numbers.next << COVER) | self.numbers.sign();
        let data = json!({
            "type": "error",
            "code": complaint.code,
            "message": complaint.detail,
            "param": null,
            "sequence_number": number,
        });
        Line::named("error", &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pieces: &[&str], after: Option<u64>) -> Vec<Result<Option<u64>, ()>> {
        let mut numbers = Numbers { next: 0, cover: 0, after };
        pieces.iter().map(|piece| numbers.number(Some(piece))).collect()
    }

    #[test]
    fn a_reader_goes_on_behind_its_last_event_only_if_what_it_has_is_how_the_answer_begins() {
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
