//! Records what a model has streamed so far, so that a call that a cancel cuts short is not lost without a trace.
//!
//! [`ReplyRecorder`] stands between the model request and its provider. It changes nothing of what the provider says.
use futures_util::StreamExt;
use outlast_ports::model::{EventStream, ModelInfo, ModelProvider, ModelRequest, Rate};
use outlast_vocab::budget::Amount;
use outlast_vocab::effect::Usage;
use outlast_vocab::message::ModelName;
use outlast_vocab::record::InterruptedReply;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, ReplayKey};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A provider whose streams are recorded while they are read.
pub(crate) struct ReplyRecorder<'a> {
    provider: &'a dyn ModelProvider,
    partial: Mutex<PartialReply>,
}

/// What was streamed of a reply that is not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialReply {
    /// The text of the attempt that was read last.
    pub(crate) text: String,
    /// Attempts that the provider may charge for: they began, and the provider did not turn them away.
    pub(crate) charged: u32,
}

impl PartialReply {
    /// The record of a call that a cancel cut short. Each attempt counts as the most that it could use, as it does in budgets.
    pub(crate) fn interrupted(
        self,
        key: &ReplayKey,
        (info, request): (ModelInfo, &ModelRequest<'_>),
        most: Amount,
    ) -> InterruptedReply {
        let Self { text, charged } = self;
        let input = u64::try_from(request.bytes_most()).unwrap_or(u64::MAX);
        let times = |each: u64| each.saturating_mul(u64::from(charged));
        let usage = Usage {
            input: times(input),
            output: times(most.tokens.saturating_sub(input)),
            ..Usage::default()
        };
        let cost = info.prices.map(|_| (0..charged).map(|_| most.money).sum());
        InterruptedReply { key: key.clone(), model: request.call.model.clone(), text, usage, cost }
    }
}

impl<'a> ReplyRecorder<'a> {
    /// Records the streams of this provider.
    pub(crate) fn new(provider: &'a dyn ModelProvider) -> Self {
        Self { provider, partial: Mutex::default() }
    }

    /// Returns what was streamed so far.
    pub(crate) fn partial(&self) -> PartialReply {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, PartialReply> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt behind text that an earlier one has said.
    fn begin(&self, said: &str) {
        let mut partial = self.lock();
        said.clone_into(&mut partial.text);
        partial.charged += 1;
    }

    fn record(&self, event: &Result<ModelEvent, Error>, is_first: bool) {
        match event {
            Ok(ModelEvent::Text(text)) => self.lock().text.push_str(text),
            // The provider turned the attempt away before it said anything.
            Err(_) if is_first => self.lock().charged -= 1,
            Ok(_) | Err(_) => {}
        }
    }
}

impl ModelProvider for ReplyRecorder<'_> {
    fn info(&self, model: &ModelName) -> Option<ModelInfo> {
        self.provider.info(model)
    }

    fn why_not(&self, model: &ModelName) -> Option<Error> {
        self.provider.why_not(model)
    }

    fn rate(&self, model: &ModelName) -> Rate {
        self.provider.rate(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        self.begin(request.said);
        let mut is_first = true;
        let stream = self.provider.stream(request);
        Box::pin(stream.inspect(move |event| {
            self.record(event, std::mem::take(&mut is_first));
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};
    use outlast_vocab::Kind;
    use outlast_vocab::effect::{Generation, ModelCall, ToolChoice};

    struct Scripted(Vec<Result<&'static str, Kind>>);

    impl ModelProvider for Scripted {
        fn info(&self, _: &ModelName) -> Option<ModelInfo> {
            None
        }

        fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
            let event = |line: &Result<&str, Kind>| match line {
                Ok(text) => Ok(ModelEvent::Text((*text).to_owned())),
                Err(kind) => Err(Error::new(*kind, "the script says so")),
            };
            Box::pin(stream::iter(self.0.iter().map(event).collect::<Vec<_>>()))
        }
    }

    fn read(lines: Vec<Result<&'static str, Kind>>, said: &str) -> PartialReply {
        let (model, choice, options) =
            ("test/script".parse().unwrap(), ToolChoice::default(), Generation::default());
        let call =
            ModelCall { model, at: None, tools: outlast_vocab::Hash::ZERO, choice, options, output: None };
        let provider = Scripted(lines);
        let recorder = ReplyRecorder::new(&provider);
        let request = ModelRequest { said, ..ModelRequest::bare(&call) };
        recorder.stream(request).collect::<Vec<_>>().now_or_never().unwrap();
        recorder.partial()
    }

    #[test]
    fn recorder_keeps_streamed_text() {
        let text = "one two".to_owned();
        assert_eq!(read(vec![Ok("one "), Ok("two")], ""), PartialReply { text, charged: 1 });
        assert_eq!(read(vec![Ok("two")], "one ").text, "one two");
    }

    #[test]
    fn rejected_attempt_is_not_charged() {
        let rejected = Err(Kind::ModelUnavailable);
        assert_eq!(read(vec![rejected], ""), PartialReply::default());
        assert_eq!(read(vec![Ok("one"), rejected], "").charged, 1);
    }
}
