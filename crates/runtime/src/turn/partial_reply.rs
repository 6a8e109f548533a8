//! Records what a model has streamed so far, so that a call that is cancelled leaves a trace.
//!
//! [`ReplyRecorder`] wraps a provider and forwards its events unchanged.
use futures_util::StreamExt;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest, ProviderRate};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::Usage;
use outlast_vocab::message::ModelName;
use outlast_vocab::record::InterruptedReply;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, ReplayKey};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A provider wrapper that records the streams passing through it.
pub(crate) struct ReplyRecorder<'a> {
    provider: &'a dyn ModelProvider,
    partial: Mutex<PartialReply>,
}

/// The streamed part of an incomplete reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialReply {
    /// The text of the latest attempt.
    pub(crate) text: String,
    /// Attempts that the provider may charge for: those that started and were not rejected.
    pub(crate) charged: u32,
}

impl PartialReply {
    /// Creates the record of a cancelled call. Each charged attempt counts as its maximum usage, as in budgets.
    pub(crate) fn interrupted(
        self,
        key: &ReplayKey,
        (info, request): (ModelCapabilities, &ModelRequest<'_>),
        most: UsageAmount,
    ) -> InterruptedReply {
        let Self { text, charged } = self;
        let input = u64::try_from(request.bytes_max()).unwrap_or(u64::MAX);
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
    /// Wraps a provider.
    pub(crate) fn new(provider: &'a dyn ModelProvider) -> Self {
        Self { provider, partial: Mutex::default() }
    }

    /// Returns the reply streamed so far.
    pub(crate) fn partial(&self) -> PartialReply {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, PartialReply> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an attempt that continues `said`, the text of an earlier attempt.
    fn begin(&self, partial_text: &str) {
        let mut partial = self.lock();
        partial_text.clone_into(&mut partial.text);
        partial.charged += 1;
    }

    fn record(&self, event: &Result<ModelEvent, Error>, is_first: bool) {
        match event {
            Ok(ModelEvent::Text(text)) => self.lock().text.push_str(text),
            // The provider rejected the attempt before it streamed anything.
            Err(_) if is_first => self.lock().charged -= 1,
            Ok(_) | Err(_) => {}
        }
    }
}

impl ModelProvider for ReplyRecorder<'_> {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.provider.info(model)
    }

    fn unavailable_reason(&self, model: &ModelName) -> Option<Error> {
        self.provider.unavailable_reason(model)
    }

    fn rate(&self, model: &ModelName) -> ProviderRate {
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
        fn info(&self, _: &ModelName) -> Option<ModelCapabilities> {
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

    fn read(lines: Vec<Result<&'static str, Kind>>, partial_text: &str) -> PartialReply {
        let (model, choice, options) =
            ("test/script".parse().unwrap(), ToolChoice::default(), Generation::default());
        let call =
            ModelCall { model, at: None, tools: outlast_vocab::Hash::ZERO, choice, options, output: None };
        let provider = Scripted(lines);
        let recorder = ReplyRecorder::new(&provider);
        let request = ModelRequest { said: partial_text, ..ModelRequest::empty(&call) };
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
