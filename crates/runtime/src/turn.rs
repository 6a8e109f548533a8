//! Drives one turn: the loop over the kernel's steps, its hosts, its model calls, and the conversation that the model sees.

pub mod cancel;
pub(crate) mod compaction;
pub(crate) mod context_window;
pub mod conversation_cache;
pub mod conversation_reader;
pub mod drive;
pub mod host;
pub mod inline_host;
pub(crate) mod journal_writer;
pub mod journaled_host;
pub(crate) mod metered_model_call;
pub mod model;
pub mod model_client;
pub(crate) mod model_request;
pub mod output_schema;
pub(crate) mod partial_reply;
pub mod prompt_snapshot;
pub mod provenance;
pub(crate) mod turn_conversation;
pub(crate) mod turn_permits;
pub mod turn_run;
pub(crate) mod undo;
pub(crate) mod write_buffer;
