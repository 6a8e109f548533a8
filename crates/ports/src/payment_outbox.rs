//! The payment outbox: decisions on payments that the payment authority has not yet accepted.
//!
//! The write that records `settling` or `releasing` also adds a row here. The record of the authority's answer
//! deletes the row. Taking a row for an attempt sets, in the same write, when it is due again. If the process dies in
//! between, the next attempt repeats it under the same idempotency key. A payment is never given up: the pause
//! between attempts only grows, up to a maximum.
//!
//! This module does not talk to the authority: see [`crate::payment`]. The rules are in `outlast-ledger`.
use crate::ResultFuture;
use outlast_views::PendingPayment;
use outlast_vocab::id::TurnId;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::payment::Payment;
use outlast_vocab::record::Seq;
use outlast_vocab::{Failure, Millis};
use std::time::Duration;

/// The backoff between attempts: it starts at `first`, doubles each time, and is at most `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentBackoff {
    /// The pause after the first attempt.
    pub first: Duration,
    /// The maximum pause.
    pub pause_max: Duration,
}

impl PaymentBackoff {
    /// Returns the pause after an attempt that had this many attempts before it.
    pub fn after(self, before: u32) -> Duration {
        self.first.saturating_mul(1 << before.min(16)).min(self.pause_max)
    }
}

/// The payment outbox of a store.
pub trait PaymentOutbox: Send + Sync {
    /// Returns the payments in the outbox, oldest first.
    fn pending_payments(&self, limit: usize) -> ResultFuture<'_, Vec<PendingPayment>>;

    /// Returns when the next payment is due. Cheap.
    fn next_payment_due(&self) -> ResultFuture<'_, Option<Millis>>;

    /// Takes the payments that are due for one attempt, and sets when they are due again.
    fn take_due_payments(
        &self,
        pauses: PaymentBackoff,
        now: Millis,
        limit: usize,
    ) -> ResultFuture<'_, Vec<PendingPayment>>;

    /// Records the authority's answer on a payment, unless it was already recorded. Returns the position of the
    /// record.
    fn record_payment_result(
        &self,
        turn: TurnId,
        payment: Payment,
        now: Millis,
    ) -> ResultFuture<'_, Option<Seq>>;

    /// Records why the authority did not accept the decision.
    fn record_payment_failure(
        &self,
        turn: TurnId,
        payment: ReplayKey,
        failure: Failure,
    ) -> ResultFuture<'_, ()>;
}
