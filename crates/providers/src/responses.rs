//! OpenAI Responses. Nothing is stored at the provider: what the model thought comes back sealed and is sent again.
mod body;
mod decoder;

pub(crate) use body::render;
pub(crate) use decoder::Responses;
