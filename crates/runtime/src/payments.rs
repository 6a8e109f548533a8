//! Asks the payment authority, within its deadline, and keeps what it says (R11.6).
//!
//! A payment is asked for, reserved, then settled or released. That it is asked for is durable before the authority hears of
//! it, and that it is reserved before the tool goes on; so whatever is left behind by a crash is found again under its key.
use crate::outfit::World;
use futures_util::future::{Either, select};
use outlast_ports::Answer;
use outlast_ports::payment::PaymentAuthority;
use outlast_vocab::payment::{Payment, PaymentState, Standing};
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Kind};
use std::sync::Arc;

impl World {
    /// Who pays.
    pub(crate) fn authority(&self) -> Result<&Arc<dyn PaymentAuthority>, Error> {
        let missing = || Error::new(Kind::PortMissing, "no payment authority is configured");
        self.payments.as_ref().ok_or_else(missing)
    }

    /// An answer of the authority, unless it takes too long.
    pub(crate) async fn paid<T>(&self, asked: Answer<'_, T>) -> Result<T, Error> {
        let deadline = self.limits.payment_deadline;
        match select(asked, self.clock.sleep(deadline)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => {
                let detail =
                    format!("the payment authority did not answer within {} ms", deadline.as_millis());
                Err(Error::new(Kind::PaymentUnavailable, detail))
            }
        }
    }

    /// Frees a payment that will not be settled. If the authority does not answer, it stays open in the journal.
    pub(crate) async fn free(&self, payment: &Payment, reason: &str) -> Option<Payment> {
        let released = match self.authority() {
            Ok(authority) => self.paid(authority.release(payment.id)).await,
            Err(error) => Err(error),
        };
        match released {
            Ok(standing) => Some(come_to(payment, &standing, reason)),
            Err(error) => {
                tracing::warn!(%error, payment = %payment.id, "a payment could not be released; it stays open");
                None
            }
        }
    }

    /// Frees several payments, and gives the facts of that.
    pub(crate) async fn free_all(&self, payments: Vec<Payment>, reason: &str) -> Vec<Fact> {
        let mut facts = Vec::new();
        for payment in payments {
            facts.extend(self.free(&payment, reason).await.map(Fact::Payment));
        }
        facts
    }
}

impl World {
    /// Pays what a call that happened had set aside, and gives the facts of that.
    pub(crate) async fn settle_all(&self, payments: Vec<Payment>) -> Vec<Fact> {
        let mut facts = Vec::new();
        for payment in payments {
            let settled = match self.authority() {
                Ok(authority) => self.paid(authority.settle(payment.id)).await,
                Err(error) => Err(error),
            };
            match settled {
                Ok(standing) => {
                    facts.push(Fact::Payment(come_to(&payment, &standing, "it had been released")));
                }
                Err(error) => tracing::warn!(%error, payment = %payment.id, "a payment stays open"),
            }
        }
        facts
    }
}

/// The payment as the authority says it stands.
pub(crate) fn come_to(payment: &Payment, standing: &Standing, reason: &str) -> Payment {
    let state = match standing {
        Standing::Reserved => PaymentState::Reserved,
        Standing::Settled { receipt } => PaymentState::Settled { receipt: receipt.clone() },
        Standing::Released => PaymentState::Released { reason: reason.to_owned() },
    };
    Payment { state, ..payment.clone() }
}
