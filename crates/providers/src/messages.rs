//! The Anthropic Messages API.
mod body;
mod decoder;

pub(crate) use body::render;
pub(crate) use decoder::MessagesDecoder;
