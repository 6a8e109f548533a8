//! Builds a complete reply from the events of a stream.
use outlast_vocab::cost::Prices;
use outlast_vocab::effect::{Reply, StopReason, Usage};
use outlast_vocab::limits;
use outlast_vocab::message::{Part, ToolUse, json_size};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind};

/// A reply while it streams. Only [`ReplyBuilder::finish`] turns it into a [`Reply`], and only after the end
/// event.
#[derive(Debug, Default)]
pub struct ReplyBuilder {
    parts: Vec<Part>,
    calls: Vec<ToolUse>,
    usage: Usage,
    stop: Option<StopReason>,
    bytes: usize,
}

impl ReplyBuilder {
    /// Adds one event. Fails if the reply grows beyond `reply_bytes`, or continues after its end.
    pub fn push(&mut self, event: ModelEvent, reply_bytes: usize) -> Result<(), Error> {
        if self.stop.is_some() {
            return Err(Error::new(Kind::ModelRejected, "the provider went on after the end of its reply"));
        }
        match event {
            ModelEvent::Text(more) => {
                self.bytes += more.len();
                match self.parts.last_mut() {
                    Some(Part::Text { text }) => text.push_str(&more),
                    _ => self.parts.push(Part::Text { text: more }),
                }
            }
            ModelEvent::Reasoning { text: more, signature: proof } => {
                self.bytes += more.len();
                match self.parts.last_mut() {
                    Some(Part::Reasoning { text, signature: signature @ None }) => {
                        text.push_str(&more);
                        *signature = proof;
                    }
                    _ => self.parts.push(Part::Reasoning { text: more, signature: proof }),
                }
            }
            ModelEvent::Sealed { provider, data } => {
                self.bytes += json_size(&data);
                self.parts.push(Part::Sealed { provider, data });
            }
            ModelEvent::Call(call) => self.calls.push(call),
            ModelEvent::KeepAlive | ModelEvent::HiddenProgress | ModelEvent::PromptChanged(_) => {}
            ModelEvent::Usage(usage) => self.usage = usage,
            ModelEvent::End(stop) => self.stop = Some(stop),
        }
        limits::check("reply_bytes", self.bytes, reply_bytes)
    }

    /// Returns the complete reply with its cost at these prices. Fails if the stream stopped before its end.
    pub fn finish(self, attempt: u32, prices: Option<&Prices>) -> Result<Reply, Error> {
        let Self { parts, calls, usage, stop, bytes } = self;
        let stop = stop.ok_or_else(|| {
            Error::new(
                Kind::ModelCut,
                format!("the stream ended after {bytes} bytes of text without saying so"),
            )
        })?;
        // Without usage data, the cost of a reply is unknown.
        let cost = prices.filter(|_| usage != Usage::default()).map(|prices| prices.of(&usage));
        Ok(Reply { parts, calls, stop, stop_sequence: None, usage, cost, estimate: None, attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(events: Vec<ModelEvent>) -> Result<Reply, Error> {
        let mut building = ReplyBuilder::default();
        for event in events {
            building.push(event, 10)?;
        }
        building.finish(1, None)
    }

    #[test]
    fn streamed_text_chunks_form_one_part() {
        let reply = build(vec![
            ModelEvent::Text("a".into()),
            ModelEvent::Text("b".into()),
            ModelEvent::Usage(Usage { input: 1, output: 2, ..Usage::default() }),
            ModelEvent::End(StopReason::End),
        ]);
        assert_eq!(
            reply.unwrap(),
            Reply {
                parts: vec![Part::text("ab")],
                calls: vec![],
                stop: StopReason::End,
                stop_sequence: None,
                usage: Usage { input: 1, output: 2, ..Usage::default() },
                cost: None,
                estimate: None,
                attempt: 1,
            }
        );
    }

    #[test]
    fn truncated_reply_is_an_error() {
        assert_eq!(build(vec![ModelEvent::Text("a".into())]).unwrap_err().kind(), Kind::ModelCut);
        assert_eq!(build(vec![]).unwrap_err().kind(), Kind::ModelCut);
    }

    #[test]
    fn reply_over_limit_is_refused() {
        let error = build(vec![ModelEvent::Text("a".repeat(11))]).unwrap_err();
        assert_eq!(error.to_string(), "limit.exceeded: reply_bytes is limited to 10, but this needs 11");
    }
}
