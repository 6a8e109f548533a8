//! OpenAI Chat Completions, as OpenAI and the servers that imitate it speak them.
mod body;
mod decoder;

pub(crate) use body::render;
pub(crate) use decoder::{Chat, Counted};
