//! Models as a port: a request in, a stream of pieces out (R5.1).
use futures_util::Stream;
use outlast_vocab::Error;
use outlast_vocab::effect::ModelCall;
use outlast_vocab::message::{Message, ModelName};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::Contract;
use std::pin::Pin;

/// The pieces of a reply as they come. It is whole only after [`ModelEvent::End`].
pub type EventStream<'a> = Pin<Box<dyn Stream<Item = Result<ModelEvent, Error>> + Send + 'a>>;

/// What a model is asked. Borrowed: a call copies none of the conversation.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The effect as it is journaled: model, options, place.
    pub call: &'a ModelCall,
    /// What the model is told before the first message.
    pub system: &'a str,
    /// Messages of earlier turns, as far as they fit the window.
    pub history: &'a [Message],
    /// Messages of this turn.
    pub turn: &'a [Message],
    /// The tools it may ask for.
    pub tools: &'a [Contract],
}

impl<'a> ModelRequest<'a> {
    /// All messages, in the order the model reads them.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &'a Message> + use<'a> {
        self.history.iter().chain(self.turn)
    }
}

/// What a provider says of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Bytes of conversation the model can be shown.
    pub window_bytes: usize,
}

/// Speaks to models.
pub trait ModelProvider: Send + Sync {
    /// What is known of this model, or nothing if this provider does not serve it.
    fn info(&self, model: &ModelName) -> Option<ModelInfo>;

    /// Asks it. An error of class `retry` before the first piece means that the same call may be made again.
    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a>;
}
