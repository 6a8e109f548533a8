//! Payments are visible with their turn. Due payments are for the operator.
use super::VisibleRows;
use crate::rows::{PaymentQueue, PaymentRows, PaymentWrites, PendingPaymentRow, ReadRows, Rows};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::{Error, Millis};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> PaymentRows for VisibleRows<'_, R> {
    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error> {
        self.of_turn(turn, || self.rows.pending_payment(turn, key))
    }
}

impl<R: Deref<Target: ReadRows>> PaymentQueue for VisibleRows<'_, R> {
    fn pending_payments(&self, of: OrgVisibility, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let mut visible = Vec::new();
        for row in self.rows.pending_payments(self.narrow(of), limit)? {
            if self.is_turn_visible(row.turn)? {
                visible.push(row);
            }
        }
        Ok(visible)
    }

    fn payments_due(&self, now: Millis, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        self.operator_only(|| self.rows.payments_due(now, limit))
    }

    fn next_payment_due(&self) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_payment_due())
    }
}

impl<R: DerefMut<Target: Rows>> PaymentWrites for VisibleRows<'_, R> {
    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_pending_payment(row)
    }

    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_pending_payment(turn, key)
    }
}
