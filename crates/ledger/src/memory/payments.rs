//! The payment outbox.
use super::{Tables, page};
use crate::rows::{PaymentQueue, PaymentRows, PaymentWrites, PendingPaymentRow};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::{Error, Millis};

impl PaymentRows for Tables {
    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error> {
        Ok(self.pending_payments.get(&(turn, key.clone())).cloned())
    }
}

impl PaymentQueue for Tables {
    fn pending_payments(&self, of: OrgVisibility, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let visible = |row: &&PendingPaymentRow| {
            self.turns.get(&row.turn).is_some_and(|turn| self.covers(of, turn.session))
        };
        let mut rows: Vec<&PendingPaymentRow> = self.pending_payments.values().filter(visible).collect();
        rows.sort_by_key(|row| row.since);
        Ok(page(rows.into_iter(), limit))
    }

    fn payments_due(&self, now: Millis, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let mut rows: Vec<&PendingPaymentRow> =
            self.pending_payments.values().filter(|row| row.due_at <= now).collect();
        rows.sort_by_key(|row| row.due_at);
        Ok(page(rows.into_iter(), limit))
    }

    fn next_payment_due(&self) -> Result<Option<Millis>, Error> {
        Ok(self.pending_payments.values().map(|row| row.due_at).min())
    }
}

impl PaymentWrites for Tables {
    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error> {
        self.set(
            |tables| &mut tables.pending_payments,
            (row.turn, row.payment.key.clone()),
            Some(row.clone()),
        );
        Ok(())
    }

    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.set(|tables| &mut tables.pending_payments, (turn, key.clone()), None);
        Ok(())
    }
}
