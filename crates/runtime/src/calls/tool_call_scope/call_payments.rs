//! Payments of a running call.
use super::ToolCallScope;
use crate::calls::payments::with_reported_state;
use outlast_vocab::id::PaymentId;
use outlast_vocab::payment::{AuthorityPaymentState, Payment, PaymentOrder, PaymentState};
use outlast_vocab::{Class, Error, Kind, ReplayKey, limits};

impl ToolCallScope {
    /// Reserves a payment, or returns its current state if an earlier run of the call reserved it.
    pub(super) async fn reserve_or_resume(
        &self,
        name: &str,
        order: PaymentOrder,
    ) -> Result<AuthorityPaymentState, Error> {
        self.journal.durable("a payment")?;
        if name.is_empty() {
            return Err(Error::new(Kind::InputInvalid, "a payment needs a name"));
        }
        limits::check("key_bytes", name.len(), self.services.models.limits.key_bytes)?;
        let authority = self.services.payments.authority()?;
        let key = self.call.key.payment(name);
        let known = self.journal.payment(&key);
        if let Some(known) = known.as_ref().filter(|known| known.order != order) {
            let detail = format!(
                "the payment `{name}` was recorded as {} to {}, but this run asks for {} to {}",
                known.order.amount, known.order.payee, order.amount, order.payee
            );
            return Err(Error::new(Kind::JournalDiverged, detail));
        }
        let Some(payment) = known else { return self.set_aside_anew(key, order).await };
        match payment.state {
            PaymentState::Settled { receipt } => return Ok(AuthorityPaymentState::Settled { receipt }),
            PaymentState::Releasing { .. } => return Ok(AuthorityPaymentState::Released),
            PaymentState::Asked
            | PaymentState::Reserved
            | PaymentState::Settling
            | PaymentState::Released { .. } => {}
        }
        // An earlier process may have left it in any state. A released payment stays released.
        match self.services.payments.paid(authority.find(payment.id)).await? {
            Some(standing) => Ok(self.found(&payment, standing).await),
            None => match payment.state {
                PaymentState::Released { reason } => Err(Error::new(Kind::PaymentRefused, reason)),
                _ => self.ask_for(&payment).await,
            },
        }
    }

    async fn set_aside_anew(
        &self,
        key: ReplayKey,
        order: PaymentOrder,
    ) -> Result<AuthorityPaymentState, Error> {
        self.may_pay(&key, &order).await?;
        let turn = self.call.caller.turn.to_u128().to_be_bytes();
        let id = PaymentId::derived(&[&turn, key.as_str().as_bytes()]);
        let asked = Payment { key, id, order, state: PaymentState::Asked };
        self.journal.record(self.journal.pays(asked.clone())).await;
        self.ask_for(&asked).await
    }

    async fn ask_for(&self, payment: &Payment) -> Result<AuthorityPaymentState, Error> {
        let authority = self.services.payments.authority()?;
        let reserved = self.services.payments.paid(authority.reserve(payment.id, &payment.order)).await;
        if let Err(error) = &reserved
            && error.class() != Class::Retry
        {
            let state = PaymentState::Released { reason: error.detail().to_owned() };
            self.journal.note(self.journal.pays(Payment { state, ..payment.clone() })).await;
        }
        Ok(self.found(payment, reserved?).await)
    }

    /// Records the state of a payment, if it is new.
    async fn found(&self, payment: &Payment, standing: AuthorityPaymentState) -> AuthorityPaymentState {
        let updated = with_reported_state(payment, &standing, "the authority had released it");
        if payment.state.is_open() && updated.state != payment.state {
            self.journal.record(self.journal.pays(updated)).await;
        }
        standing
    }

    /// Settles a reserved payment and returns the receipt.
    pub(super) async fn pay(&self, name: &str) -> Result<String, Error> {
        let payment = self.payment_named(name)?;
        if let PaymentState::Releasing { reason } = payment.state {
            return Err(Error::new(Kind::PaymentRefused, reason));
        }
        let standing =
            self.services.payments.paid(self.services.payments.authority()?.settle(payment.id)).await?;
        self.journal
            .note(self.journal.pays(with_reported_state(
                &payment,
                &standing,
                "the authority had released it",
            )))
            .await;
        match standing {
            AuthorityPaymentState::Settled { receipt } => Ok(receipt),
            AuthorityPaymentState::Reserved | AuthorityPaymentState::Released => {
                let detail = format!("the authority did not pay {}", payment.id);
                Err(Error::new(Kind::PaymentRefused, detail))
            }
        }
    }

    /// Releases a reserved payment.
    pub(super) async fn give_back(&self, name: &str, reason: &str) -> Result<(), Error> {
        let payment = self.payment_named(name)?;
        let standing =
            self.services.payments.paid(self.services.payments.authority()?.release(payment.id)).await?;
        self.journal.note(self.journal.pays(with_reported_state(&payment, &standing, reason))).await;
        match standing {
            AuthorityPaymentState::Released => Ok(()),
            AuthorityPaymentState::Settled { .. } | AuthorityPaymentState::Reserved => {
                Err(Error::new(Kind::PaymentRefused, format!("{} was paid already", payment.id)))
            }
        }
    }

    /// Returns whether the call has open payments.
    pub(crate) fn holds_money(&self) -> bool {
        !self.journal.open_payments(&self.call.key).is_empty()
    }

    /// Releases the open payments of the call. Their states are written with its answer.
    pub(crate) async fn release_open_payments(&self, reason: &str) {
        for payment in self.journal.open_payments(&self.call.key) {
            let freed = self.services.payments.free(payment, reason).await;
            self.journal.note(self.journal.pays(freed)).await;
        }
    }

    fn payment_named(&self, name: &str) -> Result<Payment, Error> {
        let unknown = || Error::new(Kind::PaymentRefused, format!("no payment `{name}` was reserved"));
        self.journal.payment(&self.call.key.payment(name)).ok_or_else(unknown)
    }
}
