//! Calls the payment authority, within a deadline, and records its answers.
//!
//! A payment is requested, reserved, then settled or released. The request is durable before the authority receives it,
//! and the reservation is durable before the tool continues. After a crash, every payment is found again under its
//! idempotency key.
//!
//! When a call is over, its payment is settled or released. If the authority does not accept that, the payment goes to
//! the outbox ([`outlast_ports::payment_outbox`]), and [`PaymentOutboxSender`] retries it until it succeeds. Payments of a running call are in
//! `tool_call_scope/call_payments.rs`.
use crate::turn::journal_writer::WorkerJournal;
use futures_util::future::{Either, select};
use outlast_ports::ResultFuture;
use outlast_ports::clock::Clock;
use outlast_ports::payment::PaymentAuthority;
use outlast_ports::payment_outbox::PaymentBackoff;
use outlast_views::PendingPayment;
use outlast_vocab::payment::{AuthorityPaymentState, Payment, PaymentState};
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Failure, Kind, Limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The longest pause between two checks of the outbox. The bell does not ring while a turn is running.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// The pause after the store could not be read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Calls the payment authority, if one is configured.
#[derive(Clone)]
pub(crate) struct PaymentClient {
    pub(crate) authority: Option<Arc<dyn PaymentAuthority>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Arc<Limits>,
}

impl PaymentClient {
    /// Returns the payment authority, or an error if none is configured.
    pub(crate) fn authority(&self) -> Result<&Arc<dyn PaymentAuthority>, Error> {
        let missing = || Error::new(Kind::PortMissing, "no payment authority is configured");
        self.authority.as_ref().ok_or_else(missing)
    }

    /// Waits for an answer of the authority, up to the deadline.
    pub(crate) async fn paid<T>(&self, asked: ResultFuture<'_, T>) -> Result<T, Error> {
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

    /// Releases a payment that will not be settled. If the authority does not accept that, it is retried later.
    pub(crate) async fn free(&self, payment: Payment, reason: &str) -> Payment {
        let state = PaymentState::Releasing { reason: reason.to_owned() };
        self.conclude(Payment { state, ..payment }).await
    }

    /// Releases several payments and returns the facts to record.
    pub(crate) async fn free_all(&self, payments: Vec<Payment>, reason: &str) -> Vec<Fact> {
        let mut facts = Vec::new();
        for payment in payments {
            facts.push(Fact::Payment(self.free(payment, reason).await));
        }
        facts
    }

    /// Settles the payments of a call that happened and returns the facts to record.
    pub(crate) async fn settle_all(&self, payments: Vec<Payment>) -> Vec<Fact> {
        let mut facts = Vec::new();
        for payment in payments {
            let payment = Payment { state: PaymentState::Settling, ..payment };
            facts.push(Fact::Payment(self.conclude(payment).await));
        }
        facts
    }

    /// Settles or releases a payment. Returns it in its final state, or unchanged if the authority did not accept that.
    async fn conclude(&self, payment: Payment) -> Payment {
        match self.send_payment_decision(&payment).await {
            Ok(concluded) => concluded,
            Err(error) => {
                tracing::warn!(%error, payment = %payment.id, "the payment authority did not confirm; retrying later");
                payment
            }
        }
    }

    /// Sends the decision about a payment, to settle or to release it, to the authority.
    async fn send_payment_decision(&self, payment: &Payment) -> Result<Payment, Error> {
        let authority = self.authority()?;
        let (asked, reason) = match &payment.state {
            PaymentState::Releasing { reason } => (authority.release(payment.id), reason.as_str()),
            _ => (authority.settle(payment.id), "it had been released"),
        };
        let (standing, reason) = match self.paid(asked).await {
            Ok(standing) => (standing, reason.to_owned()),
            // It may have rejected this because nothing is reserved. Then the payment is closed.
            Err(error) if error.kind() == Kind::PaymentRefused => {
                let found = self.paid(authority.find(payment.id)).await?;
                (found.unwrap_or(AuthorityPaymentState::Released), error.detail().to_owned())
            }
            Err(error) => return Err(error),
        };
        if standing == AuthorityPaymentState::Reserved {
            let detail = format!("the payment authority still has {} reserved", payment.id);
            return Err(Error::new(Kind::PaymentUnavailable, detail));
        }
        Ok(with_reported_state(payment, &standing, &reason))
    }
}

/// Sends the payments that the authority did not accept to settle or release yet.
pub(crate) struct PaymentOutboxSender {
    pub(crate) payments: PaymentClient,
    pub(crate) journal: Arc<WorkerJournal>,
}

impl PaymentOutboxSender {
    /// Retries payments when they are due, until the worker stops. Checks the outbox early when `bell` rings.
    pub(crate) async fn retry(self, mut bell: watch::Receiver<()>, mut stopping: watch::Receiver<bool>) {
        loop {
            bell.borrow_and_update();
            let sent = tokio::select! {
                biased;
                // An interrupted request is repeated under the same idempotency key.
                _ = stopping.wait_for(|stopping| *stopping) => return,
                sent = self.send_due() => sent,
            };
            let pause = sent.unwrap_or_else(|error| {
                tracing::warn!(%error, "unconfirmed payments could not be read");
                LOOK_AGAIN
            });
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                _ = bell.changed() => {}
                () = self.payments.clock.sleep(pause) => {}
            }
        }
    }

    /// Sends the payments that are due. Returns how long to wait before the next check.
    async fn send_due(&self) -> Result<Duration, Error> {
        let Limits { payment_first: first, payment_most: most, .. } = *self.payments.limits;
        loop {
            let now = self.payments.clock.now();
            match self.journal.store.next_payment_due().await? {
                Some(due) if due <= now => {}
                Some(due) => return Ok(now.until(due).min(LONGEST_SLEEP)),
                None => return Ok(LONGEST_SLEEP),
            }
            // One at a time, so that other workers can take the rest while one request hangs.
            let backoff = PaymentBackoff { first, pause_max: most };
            for pending in self.journal.store.take_due_payments(backoff, now, 1).await? {
                self.send(pending).await?;
            }
        }
    }

    async fn send(&self, pending: PendingPayment) -> Result<(), Error> {
        let PendingPayment { session, turn, payment, attempts, .. } = pending;
        match self.payments.send_payment_decision(&payment).await {
            Ok(concluded) => {
                let store = &self.journal.store;
                let recorded =
                    store.record_payment_result(turn, concluded, self.payments.clock.now()).await?;
                if let Some(last) = recorded {
                    self.journal.hub.committed(session, last);
                }
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, payment = %payment.id, attempts, "the payment authority did not accept the request");
                self.journal.store.record_payment_failure(turn, payment.key, Failure::from(&error)).await
            }
        }
    }
}

/// Returns the payment with the state that the authority reports.
pub(crate) fn with_reported_state(
    payment: &Payment,
    standing: &AuthorityPaymentState,
    reason: &str,
) -> Payment {
    let state = match standing {
        AuthorityPaymentState::Reserved => PaymentState::Reserved,
        AuthorityPaymentState::Settled { receipt } => PaymentState::Settled { receipt: receipt.clone() },
        AuthorityPaymentState::Released => PaymentState::Released { reason: reason.to_owned() },
    };
    Payment { state, ..payment.clone() }
}
