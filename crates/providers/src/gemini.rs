//! Google Gemini.
mod body;
mod decoder;

pub(crate) use body::render;
pub(crate) use decoder::Gemini;
