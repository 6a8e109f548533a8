//! The OpenAI Chat Completions API, for OpenAI and compatible servers.
mod body;
mod decoder;

pub(crate) use body::render;
pub(crate) use decoder::{ChatDecoder, OpenAiUsage};
