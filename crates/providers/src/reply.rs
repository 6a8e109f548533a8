//! Decodes a response body into a stream of events.
use crate::Api;
use crate::chat::Chat;
use crate::failure::Provider;
use crate::gemini::Gemini;
use crate::messages::Messages;
use crate::responses::Responses;
use crate::sse::{Body, Events, Heard};
use crate::wire::names::Names;
use crate::wire::{Answering, Decode, Pieces};
use futures_util::Stream;
use outlast_ports::model::EventStream;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::Contract;
use outlast_vocab::{Error, Kind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Decodes a body of an API without a network, as a provider would.
pub fn decode<'a>(api: Api, tools: &'a [Contract], body: Body<'a>) -> EventStream<'a> {
    let provider = Provider { name: api.name(), api, key: "its key" };
    Box::pin(Reply::of(body, provider, Names::of(tools), Answering::default()))
}

/// A reply while it streams.
pub(crate) struct Reply<'a> {
    provider: &'a str,
    events: Events<'a>,
    decoder: Box<dyn Decode + 'a>,
    pieces: Pieces,
    failed: Option<Error>,
    over: bool,
}

impl<'a> Reply<'a> {
    /// Creates the reply of a body.
    pub(crate) fn of(body: Body<'a>, provider: Provider<'a>, names: Names<'a>, answering: Answering) -> Self {
        let decoder: Box<dyn Decode + 'a> = match provider.api {
            Api::OpenAi | Api::OpenAiCompatible => Box::new(Chat::new(provider, names)),
            Api::OpenAiResponses => Box::new(Responses::new(provider, names)),
            Api::Anthropic => Box::new(Messages::new(provider, names, answering)),
            Api::Gemini => Box::new(Gemini::new(provider, names)),
        };
        let events = Events::of(body);
        Self { provider: provider.name, events, decoder, pieces: Pieces::new(), failed: None, over: false }
    }

    /// Handles an event of the body.
    fn take(&mut self, heard: Option<Result<Heard, Error>>) {
        match heard {
            Some(Ok(Heard::Alive)) => self.pieces.push_back(ModelEvent::Alive),
            Some(Ok(Heard::Event { name, data })) => {
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

impl Stream for Reply<'_> {
    type Item = Result<ModelEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.over {
            if let Some(piece) = this.pieces.pop_front() {
                // Events after the end of a reply are not part of it.
                this.over = matches!(piece, ModelEvent::End(_));
                return Poll::Ready(Some(Ok(piece)));
            }
            if let Some(error) = this.failed.take() {
                this.over = true;
                return Poll::Ready(Some(Err(error)));
            }
            let heard = ready!(Pin::new(&mut this.events).poll_next(task));
            this.take(heard);
        }
        Poll::Ready(None)
    }
}
