//! Decodes a response body into a stream of events.
use crate::Api;
use crate::api_error::ProviderLabel;
use crate::api_parts::tool_names::ApiToolNames;
use crate::api_parts::{DecodeSettings, PendingEvents, ReplyDecoder};
use crate::chat::ChatDecoder;
use crate::gemini::GeminiDecoder;
use crate::messages::MessagesDecoder;
use crate::responses::ResponsesDecoder;
use crate::sse::{SseBody, SseEvents, SseItem};
use futures_util::Stream;
use outlast_ports::model::EventStream;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Error, Kind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Decodes a body of an API without a network, as a provider would.
pub fn decode<'a>(api: Api, tools: &'a [ToolContract], body: SseBody<'a>) -> EventStream<'a> {
    let provider = ProviderLabel { name: api.name(), api, key: "its key", model: "", windows: None };
    Box::pin(ReplyStream::of(body, provider, ApiToolNames::of(tools), DecodeSettings::default()))
}

/// A reply while it streams.
pub(crate) struct ReplyStream<'a> {
    provider: &'a str,
    events: SseEvents<'a>,
    decoder: Box<dyn ReplyDecoder + 'a>,
    pieces: PendingEvents,
    failed: Option<Error>,
    finished: bool,
}

impl<'a> ReplyStream<'a> {
    /// Creates the reply of a body.
    pub(crate) fn of(
        body: SseBody<'a>,
        provider: ProviderLabel<'a>,
        names: ApiToolNames<'a>,
        answering: DecodeSettings,
    ) -> Self {
        let decoder: Box<dyn ReplyDecoder + 'a> = match provider.api {
            Api::OpenAi | Api::OpenAiCompatible => Box::new(ChatDecoder::new(provider, names)),
            Api::OpenAiResponses => Box::new(ResponsesDecoder::new(provider, names)),
            Api::Anthropic => Box::new(MessagesDecoder::new(provider, names, answering)),
            Api::Gemini => Box::new(GeminiDecoder::new(provider, names)),
        };
        let events = SseEvents::of(body);
        Self {
            provider: provider.name,
            events,
            decoder,
            pieces: PendingEvents::new(),
            failed: None,
            finished: false,
        }
    }

    /// Handles an event of the body.
    fn handle_item(&mut self, item: Option<Result<SseItem, Error>>) {
        match item {
            Some(Ok(SseItem::KeepAlive)) => self.pieces.push_back(ModelEvent::KeepAlive),
            Some(Ok(SseItem::Event { name, data })) => {
                self.failed = self.decoder.event(name.as_deref(), &data, &mut self.pieces).err();
            }
            Some(Err(error)) => self.failed = Some(error),
            None => {
                self.decoder.close(&mut self.pieces);
                let detail = format!("the stream of `{}` ended before its reply did", self.provider);
                self.failed = Some(Error::new(Kind::ModelCut, detail));
            }
        }
    }
}

impl Stream for ReplyStream<'_> {
    type Item = Result<ModelEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.finished {
            if let Some(piece) = this.pieces.pop_front() {
                // Events after the end of a reply are not part of it.
                this.finished = matches!(piece, ModelEvent::End(_));
                return Poll::Ready(Some(Ok(piece)));
            }
            if let Some(error) = this.failed.take() {
                this.finished = true;
                return Poll::Ready(Some(Err(error)));
            }
            let item = ready!(Pin::new(&mut this.events).poll_next(task));
            this.handle_item(item);
        }
        Poll::Ready(None)
    }
}
