//! What the APIs share: names and ids as they travel, calls as they are put together, attachments, schemas.
pub(crate) mod calls;
pub(crate) mod files;
pub(crate) mod names;
pub(crate) mod proof;
pub(crate) mod schema;

use crate::failure::Provider;
use crate::models::Traits;
use names::Names;
use outlast_ports::model::ModelRequest;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Hash};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::VecDeque;

/// A request on its way to one API.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// What is asked.
    pub(crate) request: ModelRequest<'a>,
    /// Who is asked.
    pub(crate) provider: Provider<'a>,
    /// The name of the model as its provider knows it.
    pub(crate) model: &'a str,
    /// What the model can do.
    pub(crate) traits: Traits,
    /// Whether the API is its maker's own, and no imitation.
    pub(crate) at_home: bool,
    /// How tools are called on the way.
    pub(crate) names: &'a Names<'a>,
}

impl Ask<'_> {
    /// A schema as the other side takes it.
    pub(crate) fn schema(&self, schema: &Value) -> Value {
        if self.at_home { schema::plain(schema) } else { schema::typed(schema) }
    }
}

/// A request as it is sent.
pub(crate) struct Rendered {
    /// The body.
    pub(crate) body: Vec<u8>,
    /// What a provider's cache goes by, in its order: tools, system prompt, messages.
    pub(crate) prefix: Vec<Item>,
    /// What must be known to read the answer.
    pub(crate) answering: Answering,
}

/// What an answer is read by, beyond its own words.
#[derive(Default)]
pub(crate) struct Answering {
    /// Text that the model was not shown because the API refuses it, and may repeat.
    pub(crate) withheld: String,
    /// The tool whose arguments are the answer, where the API has no other way to fix its form.
    pub(crate) answer_tool: Option<String>,
}

/// A part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Its place.
    pub(crate) place: ItemPlace,
    /// What it contains.
    pub(crate) hash: Hash,
}

/// Where a part of a prompt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemPlace {
    /// The tools.
    Tools,
    /// The system prompt.
    System,
    /// A message, counted from 1 as it is sent.
    Message(usize),
}

/// A part of a body, rendered once.
pub(crate) fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("what is sent is plain data")
}

/// What a provider's cache goes by, of these parts.
pub(crate) fn prefix(
    tools: Option<&RawValue>,
    system: Option<&RawValue>,
    messages: &[Box<RawValue>],
) -> Vec<Item> {
    let item = |place, part: &RawValue| Item { place, hash: Hash::of(part.get().as_bytes()) };
    let head = tools.map(|part| item(ItemPlace::Tools, part));
    let system = system.map(|part| item(ItemPlace::System, part));
    let messages = messages.iter().zip(1..).map(|(part, number)| item(ItemPlace::Message(number), part));
    head.into_iter().chain(system).chain(messages).collect()
}

/// Makes pieces of a reply out of an API's events.
pub(crate) trait Decode: Send {
    /// Takes an event in.
    fn event(&mut self, name: Option<&str>, data: &str, out: &mut Pieces) -> Result<(), Error>;

    /// The body has ended. What is whole although nothing said so ends here; anything else was cut.
    fn close(&mut self, out: &mut Pieces);
}

/// Pieces that wait to be read.
pub(crate) type Pieces = VecDeque<ModelEvent>;

/// Text of the model, if there is any.
pub(crate) fn say(text: &str, out: &mut Pieces) {
    if !text.is_empty() {
        out.push_back(ModelEvent::Text(text.to_owned()));
    }
}

/// A thought of the model, if there is any.
pub(crate) fn think(text: &str, out: &mut Pieces) {
    if !text.is_empty() {
        out.push_back(ModelEvent::Reasoning { text: text.to_owned(), signature: None });
    }
}
