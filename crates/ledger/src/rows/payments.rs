//! The payment outbox.
use super::RowAccess;
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::payment::Payment;
use outlast_vocab::{Error, Failure, Millis};

/// A payment in the payment outbox: the authority has not yet accepted the decision on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPaymentRow {
    /// The turn.
    pub turn: TurnNo,
    /// The payment, with the decision on it.
    pub payment: Payment,
    /// When the decision was made.
    pub since: Millis,
    /// How often the decision was sent to the authority.
    pub attempts: u32,
    /// When the decision is sent next.
    pub due_at: Millis,
    /// Why the authority did not accept it the last time.
    pub failure: Option<Failure>,
}

/// Reads the payment outbox.
pub trait PaymentRows: RowAccess {
    /// Returns a payment of the payment outbox by its turn and key.
    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error>;
}

/// Finds payments that are due, in all sessions.
pub trait PaymentQueue: RowAccess {
    /// Returns the payments in the payment outbox, oldest first.
    fn pending_payments(&self, of: OrgVisibility, limit: usize) -> Result<Vec<PendingPaymentRow>, Error>;
    /// Returns payments that are due, earliest due time first.
    fn payments_due(&self, now: Millis, limit: usize) -> Result<Vec<PendingPaymentRow>, Error>;
    /// Returns when the next payment is due.
    fn next_payment_due(&self) -> Result<Option<Millis>, Error>;
}

/// Writes the payment outbox.
pub trait PaymentWrites: PaymentRows {
    /// Inserts or replaces a payment of the payment outbox.
    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error>;
    /// Deletes a payment from the payment outbox if it is there.
    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
}
