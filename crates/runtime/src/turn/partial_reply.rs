//! Records what a model has streamed so far, so that a call that is cancelled leaves a trace.
//!
//! [`ReplyRecorder`] wraps a provider and forwards its events unchanged.
use futures_util::StreamExt;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest, ProviderRate};
use outlast_vocab::Error;
use outlast_vocab::message::ModelName;
use outlast_vocab::stream::ModelEvent;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A provider wrapper that records the streams passing through it.
pub(crate) struct ReplyRecorder<'a> {
    provider: &'a dyn ModelProvider,
    /// The text of the attempt that is being read. `None` between attempts.
    open: Mutex<Option<String>>,
}

impl<'a> ReplyRecorder<'a> {
    /// Wraps a provider.
    pub(crate) fn new(provider: &'a dyn ModelProvider) -> Self {
        Self { provider, open: Mutex::default() }
    }

    /// Returns what the current attempt has streamed so far. `None` if no attempt is being read.
    pub(crate) fn open_reply(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Ends the current attempt. Its usage is settled.
    pub(crate) fn end_attempt(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, event: &Result<ModelEvent, Error>) {
        if let (Ok(ModelEvent::Text(text)), Some(open)) = (event, self.lock().as_mut()) {
            open.push_str(text);
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
        *self.lock() = Some(request.partial_text.to_owned());
        let stream = self.provider.stream(request);
        Box::pin(stream.inspect(|event| self.record(event)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};
    use outlast_vocab::effect::{Generation, ModelCall, ToolChoice};

    struct Scripted(Vec<&'static str>);

    impl ModelProvider for Scripted {
        fn info(&self, _: &ModelName) -> Option<ModelCapabilities> {
            None
        }

        fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
            let event = |text: &&str| Ok(ModelEvent::Text((*text).to_owned()));
            Box::pin(stream::iter(self.0.iter().map(event).collect::<Vec<_>>()))
        }
    }

    #[test]
    fn recorder_keeps_text_of_open_attempt() {
        let (model, choice, options) =
            ("test/script".parse().unwrap(), ToolChoice::default(), Generation::default());
        let call =
            ModelCall { model, at: None, tools: outlast_vocab::Hash::ZERO, choice, options, output: None };
        let provider = Scripted(vec!["two ", "three"]);
        let recorder = ReplyRecorder::new(&provider);
        assert_eq!(recorder.open_reply(), None);
        for (earlier, text) in [("one ", "one two three"), ("", "two three")] {
            let request = ModelRequest { partial_text: earlier, ..ModelRequest::empty(&call) };
            recorder.stream(request).collect::<Vec<_>>().now_or_never().unwrap();
            assert_eq!(recorder.open_reply().as_deref(), Some(text));
        }
        recorder.end_attempt();
        assert_eq!(recorder.open_reply(), None);
    }
}
