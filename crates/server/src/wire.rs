//! The APIs of other providers over the same sessions: each agent is a model, each answer a durable turn.
//!
//! What wires share stands here: what is told of a turn in which order ([`teller`], [`told`]), the legs of a turn between which a
//! client runs its own tools ([`leg`]), how an answer is gathered or streamed ([`gather`], [`stream`]), how requests become inputs
//! ([`content`], [`sending`], [`beside`]; [`talk`] for those that bring the whole conversation) and errors ([`refusal`]). One module for each wire turns that
//! into its words: [`openai`], [`anthropic`].
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
