//! APIs of other providers on top of sessions: each agent is a model, and each answer is part of a durable
//! turn.
//!
//! The APIs share these modules:
//!
//! - [`response_segment`]: segments of a turn. Between two segments, the client runs its own tools.
//! - [`segment_projector`] and [`segment_event`]: convert the events of a turn to the events of one segment.
//! - [`segment_answer`] and [`stream`]: return an answer as a whole, or stream it.
//! - [`content`], [`input_submission`] and [`follow_up`]: convert requests to inputs. [`stateless_chat`] does so for requests that
//!   contain the whole conversation.
//! - [`compat_error`][]: errors.
//!
//! [`openai`] and [`anthropic`] convert between these and the formats of their APIs.
pub(crate) mod anthropic;
pub(crate) mod compat_error;
pub(crate) mod content;
pub(crate) mod conversation_items;
pub(crate) mod follow_up;
pub(crate) mod input_submission;
pub(crate) mod openai;
pub(crate) mod response_segment;
pub(crate) mod segment_answer;
pub(crate) mod segment_event;
pub(crate) mod segment_projector;
pub(crate) mod segment_reader;
pub(crate) mod session_match;
pub(crate) mod stateless_chat;
pub(crate) mod stream;
pub(crate) mod text_pieces;
