//! The OpenAI Responses API. Nothing is stored at the provider: reasoning is returned encrypted and sent again.
mod body;
mod decoder;

pub(crate) use body::render;
pub(crate) use decoder::ResponsesDecoder;
