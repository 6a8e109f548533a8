//! Models as a port: a request in, a stream of pieces out (R5.1).
use futures_util::Stream;
use outlast_vocab::cost::Prices;
use outlast_vocab::effect::ModelCall;
use outlast_vocab::message::{Message, ModelName, Part};
use outlast_vocab::sent;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::Contract;
use outlast_vocab::{Error, Hash, SessionId};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

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
    /// The session, by which a provider keeps what it has read before.
    pub session: SessionId,
    /// The bytes of the attachments that messages refer to.
    pub files: &'a Files,
    /// Text of this very reply that was kept when an attempt was cut. The provider goes on behind it and gives only what
    /// is new; empty unless [`ModelInfo::goes_on`].
    pub said: &'a str,
}

/// The bytes of attachments, by what they contain. What is missing is shown to the model as missing (R5.7).
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<Hash, Arc<[u8]>>);

impl Files {
    /// Adds the bytes of an attachment.
    pub fn insert(&mut self, content: Hash, bytes: Arc<[u8]>) {
        self.0.insert(content, bytes);
    }

    /// The bytes, if they were found.
    pub fn get(&self, content: Hash) -> Option<&[u8]> {
        self.0.get(&content).map(AsRef::as_ref)
    }
}

impl<'a> ModelRequest<'a> {
    /// A call without prompt, messages or tools, to be filled by struct update.
    pub fn bare(call: &'a ModelCall) -> Self {
        const NO_FILES: &Files = &Files(BTreeMap::new());
        let session = SessionId::from_u128(0);
        Self { call, system: "", history: &[], turn: &[], tools: &[], session, files: NO_FILES, said: "" }
    }

    /// All messages, in the order the model reads them.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &'a Message> + use<'a> {
        self.history.iter().chain(self.turn)
    }

    /// Bytes that the request comes to at most, whoever it is sent to, and so tokens that the model reads of it. An attachment
    /// counts each time it is shown, and as [`ATTACHMENT_TOKENS`] if it is smaller: a picture is read by its area.
    pub fn bytes_most(&self) -> usize {
        let messages: usize = self.messages().map(Message::sent_most).sum();
        let files: usize = self.messages().flat_map(parts).map(|part| self.file_most(part)).sum();
        let schema = self.call.output.as_ref().map_or(0, sent::answer_schema);
        let said = if self.said.is_empty() { 0 } else { Message::user(self.said).sent_most() };
        told_most(self.system, self.tools) + messages + files + schema + said
    }

    fn file_most(&self, part: &Part) -> usize {
        let Part::Attachment { attachment } = part else { return 0 };
        self.files.get(attachment.content).map_or(0, sent::content).max(ATTACHMENT_TOKENS)
    }
}

/// Tokens that an attachment counts at least.
pub const ATTACHMENT_TOKENS: usize = 8_192;

/// Bytes around a tool.
const TOOL_BYTES: usize = 128;

/// Bytes that a provider's own words around a request come to, at most.
const FRAME_BYTES: usize = 1_024;

/// Bytes that a model is told besides messages, at most: the request itself, the prompt, the tools.
pub fn told_most(system: &str, tools: &[Contract]) -> usize {
    let tools = tools.iter().map(|tool| {
        TOOL_BYTES + tool.name.as_str().len() + sent::text(&tool.description) + sent::schema(&tool.input)
    });
    FRAME_BYTES + sent::text(system) + tools.sum::<usize>()
}

fn parts(message: &Message) -> &[Part] {
    match message {
        Message::User { parts } | Message::Assistant { parts, .. } => parts,
        Message::Tool { .. } => &[],
    }
}

/// What a provider says of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Bytes of conversation the model can be shown.
    pub window_bytes: usize,
    /// Whether it can go on behind text of a cut reply.
    pub goes_on: bool,
    /// What its tokens cost, where that is known.
    pub prices: Option<Prices>,
}

impl ModelInfo {
    /// A model with this window, of which nothing else is known.
    pub fn of_window(window_bytes: usize) -> Self {
        Self { window_bytes, goes_on: false, prices: None }
    }
}

/// How often a key may be used, as far as that is known; whoever has the key shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What is shared: the name of a provider's key, never the key itself.
    pub key: String,
    /// Requests in a minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens in a minute.
    pub tokens_per_minute: Option<u64>,
}

/// Speaks to models.
pub trait ModelProvider: Send + Sync {
    /// What is known of this model, or nothing if this provider does not serve it.
    fn info(&self, model: &ModelName) -> Option<ModelInfo>;

    /// Why it does not serve a model that would be its own: a key that is not set. Nothing for models of others.
    fn why_not(&self, model: &ModelName) -> Option<Error> {
        let _ = model;
        None
    }

    /// How often this model may be asked. Without more knowledge the models of one provider share a gate, which closes when
    /// the provider turns somebody away.
    fn rate(&self, model: &ModelName) -> Rate {
        let provider = model.as_str().split('/').next().unwrap_or_default();
        Rate { key: provider.to_owned(), requests_per_minute: None, tokens_per_minute: None }
    }

    /// Asks it. An error of class `retry` before the first piece means that the same call may be made again.
    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a>;
}
