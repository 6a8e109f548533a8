//! Payments whose end is decided and that their authority has not taken yet (R11.6).
//!
//! A record that says `settling` or `releasing` has a row here from the same write on, and the record of what the authority
//! said takes the row away. Taking one for an attempt says in the same write when it is due again; so whoever dies in
//! between leaves it to the next attempt, under the same idempotency key. It is never given up: pauses only grow, to a
//! bound.
use crate::Answer;
use crate::ledger;
use crate::store::Backend;
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::payment::Payment;
use outlast_vocab::record::Seq;
use outlast_vocab::{Failure, Millis};
use std::time::Duration;

/// A payment that its authority is to be told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The payment, with what is decided of it.
    pub payment: Payment,
    /// Since when that is decided.
    pub since: Millis,
    /// How often the authority was told.
    pub attempts: u32,
    /// When it is told next.
    pub due_at: Millis,
    /// Why it did not take it the last time.
    pub failure: Option<Failure>,
}

/// Pauses between two attempts: the first one, doubled each time, up to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// After the first attempt.
    pub first: Duration,
    /// At most.
    pub most: Duration,
}

/// The books on payments that are owed.
pub trait Owing: Send + Sync {
    /// What is owed, the oldest first.
    fn owed(&self, limit: usize) -> Answer<'_, Vec<Owed>>;

    /// When an authority is to be told next. Cheap.
    fn next_owed(&self) -> Answer<'_, Option<Millis>>;

    /// Takes what is due for one attempt, and says when it is due again.
    fn take_owed(&self, pauses: Pauses, now: Millis, limit: usize) -> Answer<'_, Vec<Owed>>;

    /// Writes down how a payment stands at its authority, unless somebody else did; gives the record.
    fn told(&self, turn: TurnId, payment: Payment, now: Millis) -> Answer<'_, Option<Seq>>;

    /// Says why the authority did not take it.
    fn not_told(&self, turn: TurnId, payment: ReplayKey, failure: Failure) -> Answer<'_, ()>;
}

impl<B: Backend> Owing for B {
    fn owed(&self, limit: usize) -> Answer<'_, Vec<Owed>> {
        self.read(move |rows| ledger::owed(rows, limit))
    }

    fn next_owed(&self) -> Answer<'_, Option<Millis>> {
        self.read(|rows| ledger::next_owed(rows))
    }

    fn take_owed(&self, pauses: Pauses, now: Millis, limit: usize) -> Answer<'_, Vec<Owed>> {
        self.write(move |rows| ledger::take_owed(rows, pauses, now, limit))
    }

    fn told(&self, turn: TurnId, payment: Payment, now: Millis) -> Answer<'_, Option<Seq>> {
        self.write(move |rows| ledger::told(rows, turn, payment, now))
    }

    fn not_told(&self, turn: TurnId, payment: ReplayKey, failure: Failure) -> Answer<'_, ()> {
        self.write(move |rows| ledger::not_told(rows, turn, &payment, failure))
    }
}
