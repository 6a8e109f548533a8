//! APIs of other providers on top of sessions: each agent is a model, and each answer is part of a durable
//! turn.
//!
//! The APIs share these modules:
//!
//! - [`leg`]: segments of a turn. Between two segments, the client runs its own tools.
//! - [`teller`] and [`told`]: convert the events of a turn to the events of one segment.
//! - [`gather`] and [`stream`]: return an answer as a whole, or stream it.
//! - [`content`], [`sending`] and [`beside`]: convert requests to inputs. [`talk`] does so for requests that
//!   contain the whole conversation.
//! - [`refusal`][]: errors.
//!
//! [`openai`] and [`anthropic`] convert between these and the formats of their APIs.
pub(crate) mod anthropic;
pub(crate) mod beside;
pub(crate) mod content;
pub(crate) mod conversed;
pub(crate) mod gather;
pub(crate) mod hearing;
pub(crate) mod leg;
pub(crate) mod openai;
pub(crate) mod pieces;
pub(crate) mod refusal;
pub(crate) mod sending;
pub(crate) mod stream;
pub(crate) mod talk;
pub(crate) mod teller;
pub(crate) mod threads;
pub(crate) mod told;
