//! The port for models: takes a request and returns a stream of events.
//!
//! It does not know turns, journals or retries. See [`ModelProvider`] for the trait to implement.
use crate::BoxFuture;
use futures_util::Stream;
use outlast_vocab::cost::Prices;
use outlast_vocab::effect::ModelCall;
use outlast_vocab::message::{Message, ModelName, Part};
use outlast_vocab::request_size;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Error, Hash, SessionId};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

/// The events of a reply. The reply is complete only after [`ModelEvent::End`].
pub type EventStream<'a> = Pin<Box<dyn Stream<Item = Result<ModelEvent, Error>> + Send + 'a>>;

/// A request to a model. All fields are borrowed, so a call does not copy the conversation.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The effect as it is journaled: model, options, position in the turn.
    pub call: &'a ModelCall,
    /// The system prompt.
    pub system: &'a str,
    /// The messages of earlier turns that fit into the context window.
    pub history: &'a [Message],
    /// The messages of this turn.
    pub turn: &'a [Message],
    /// The tools that the model may call.
    pub tools: &'a [ToolContract],
    /// The session. A provider may use it as the key of its prompt cache.
    pub session: SessionId,
    /// The bytes of the attachments that the messages refer to.
    pub files: &'a AttachmentContents,
    /// The text of this reply that was kept when an earlier attempt was interrupted. The provider continues after it
    /// and returns only new text. Empty unless [`ModelCapabilities::can_continue`].
    pub partial_text: &'a str,
}

/// The bytes of attachments, by content hash. The model sees a placeholder for a missing attachment.
#[derive(Clone, Debug, Default)]
pub struct AttachmentContents(BTreeMap<Hash, Arc<[u8]>>);

impl AttachmentContents {
    /// Adds the bytes of an attachment.
    pub fn insert(&mut self, content: Hash, bytes: Arc<[u8]>) {
        self.0.insert(content, bytes);
    }

    /// Returns the bytes of an attachment, if they were loaded.
    pub fn get(&self, content: Hash) -> Option<&[u8]> {
        self.0.get(&content).map(AsRef::as_ref)
    }
}

impl<'a> ModelRequest<'a> {
    /// Creates a request without prompt, messages or tools, for struct update syntax.
    pub fn empty(call: &'a ModelCall) -> Self {
        const NO_FILES: &AttachmentContents = &AttachmentContents(BTreeMap::new());
        let session = SessionId::from_u128(0);
        Self {
            call,
            system: "",
            history: &[],
            turn: &[],
            tools: &[],
            session,
            files: NO_FILES,
            partial_text: "",
        }
    }

    /// Returns all messages, in the order in which the model reads them.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &'a Message> + use<'a> {
        self.history.iter().chain(self.turn)
    }

    /// Returns an upper bound for the size of the request in bytes, which is also an upper bound for its tokens.
    ///
    /// The bound holds for every provider. An attachment counts each time it is shown, and at least as
    /// [`ATTACHMENT_TOKENS`], because models charge images by their area.
    pub fn bytes_max(&self) -> usize {
        let messages: usize = self.messages().map(Message::request_bytes_max).sum();
        let files: usize = self.messages().flat_map(parts).map(|part| self.file_most(part)).sum();
        let schema = self.call.output.as_ref().map_or(0, request_size::answer_schema);
        let partial = if self.partial_text.is_empty() {
            0
        } else {
            Message::user(self.partial_text).request_bytes_max()
        };
        overhead_bytes_max(self.system, self.tools) + messages + files + schema + partial
    }

    fn file_most(&self, part: &Part) -> usize {
        match part {
            Part::Attachment { attachment } => {
                self.files.get(attachment.content).map_or(0, request_size::content).max(ATTACHMENT_TOKENS)
            }
            Part::Link { .. } => ATTACHMENT_TOKENS,
            Part::Text { .. } | Part::Reasoning { .. } | Part::Sealed { .. } | Part::Instruction { .. } => 0,
        }
    }
}

/// The minimum number of tokens that an attachment counts for.
pub const ATTACHMENT_TOKENS: usize = 8_192;

/// The overhead of a tool definition in bytes.
const TOOL_BYTES: usize = 128;

/// The maximum overhead of a provider's request format in bytes.
const FRAME_BYTES: usize = 1_024;

/// Returns an upper bound in bytes for the request without its messages: frame, system prompt and tools.
pub fn overhead_bytes_max(system: &str, tools: &[ToolContract]) -> usize {
    let tools = tools.iter().map(|tool| {
        TOOL_BYTES
            + tool.name.as_str().len()
            + request_size::text(&tool.description)
            + request_size::schema(&tool.input)
    });
    FRAME_BYTES + request_size::text(system) + tools.sum::<usize>()
}

fn parts(message: &Message) -> &[Part] {
    match message {
        Message::User { parts } | Message::Assistant { parts, .. } => parts,
        Message::Tool { .. } => &[],
    }
}

/// What a provider knows about a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCapabilities {
    /// The bytes of conversation that fit into the context window.
    pub window_bytes: usize,
    /// Whether the model can continue an interrupted reply after its text.
    pub can_continue: bool,
    /// The prices of its tokens, if known.
    pub prices: Option<Prices>,
    /// The most tokens of one reply that the model supports, if known.
    pub reply_tokens: Option<u32>,
}

/// The estimated number of bytes per token. It is low, so that a window is rather underused than exceeded.
pub const TOKEN_BYTES: usize = 3;

impl ModelCapabilities {
    /// Creates the info of a model with this window, without further knowledge.
    pub fn of_window(window_bytes: usize) -> Self {
        Self { window_bytes, can_continue: false, prices: None, reply_tokens: None }
    }

    /// Returns the estimated number of tokens that fit into the context window.
    pub fn window_tokens(&self) -> u32 {
        u32::try_from(self.window_bytes / TOKEN_BYTES).unwrap_or(u32::MAX)
    }
}

/// The known rate limits of a provider's key. All callers with the key share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRate {
    /// The name of the provider's key, never the key itself.
    pub key: String,
    /// Requests per minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens per minute.
    pub tokens_per_minute: Option<u64>,
}

/// Calls models.
pub trait ModelProvider: Send + Sync {
    /// Returns what is known about this model, or `None` if this provider does not serve it.
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities>;

    /// Asks the provider for the context window of a model, if it may know more than [`info`](Self::info) returns.
    /// Takes a bounded time and never fails. Later calls of `info` return what the provider answered.
    fn learn_window<'a>(&'a self, model: &'a ModelName) -> BoxFuture<'a, ()> {
        let _ = model;
        Box::pin(std::future::ready(()))
    }

    /// Returns why the provider cannot serve one of its models, such as a missing key. `None` for models of other
    /// providers.
    fn unavailable_reason(&self, model: &ModelName) -> Option<Error> {
        let _ = model;
        None
    }

    /// Returns the rate limits for this model.
    ///
    /// By default, the models of one provider share a gate without numbers. It closes when the provider rejects a
    /// request.
    fn rate(&self, model: &ModelName) -> ProviderRate {
        let provider = model.as_str().split('/').next().unwrap_or_default();
        ProviderRate { key: provider.to_owned(), requests_per_minute: None, tokens_per_minute: None }
    }

    /// Calls the model. After an error of class `retry` before the first event, the same call may be repeated.
    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a>;
}
