//! Payments: an authority that holds the credentials ([`PaymentAuthority`]), and the service with which a tool uses it
//! ([`Payments`]).
//!
//! A tool that does not name the service cannot pay. The idempotency key of a payment is derived from its position in
//! the turn, so the same payment is found again after a crash. [`InMemoryPaymentAuthority`] is an authority in memory, for tests.
use crate::ResultFuture;
use crate::service::{CallPayments, CallScope, Needs, Services};
use outlast_vocab::id::PaymentId;
use outlast_vocab::payment::{AuthorityPaymentState, Currency, Money, PaymentOrder};
use outlast_vocab::{Error, Kind};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

/// Holds the credentials, and pays.
///
/// Every request may be repeated with the same id and returns the current state of the payment. After an error of class
/// `retry`, it is unknown whether the request took effect. The caller repeats it or looks the payment up.
pub trait PaymentAuthority: Send + Sync {
    /// Reserves money under this id.
    ///
    /// Fails with `payment.refused` if the id was used for another order, or if the authority does not pay the order.
    fn reserve<'a>(
        &'a self,
        id: PaymentId,
        order: &'a PaymentOrder,
    ) -> ResultFuture<'a, AuthorityPaymentState>;

    /// Pays a reservation. Fails with `payment.refused` if it was released.
    fn settle(&self, id: PaymentId) -> ResultFuture<'_, AuthorityPaymentState>;

    /// Releases a reservation. If it is paid already, it stays paid, and the result says so.
    fn release(&self, id: PaymentId) -> ResultFuture<'_, AuthorityPaymentState>;

    /// Returns the state of the payment, or `None` if it was never reserved.
    fn find(&self, id: PaymentId) -> ResultFuture<'_, Option<AuthorityPaymentState>>;
}

/// Marker service that shows at start-up that payments are possible.
pub struct PaymentsEnabled;

/// The payments of one call.
#[derive(Clone)]
pub struct Payments(Arc<dyn CallPayments>);

impl Needs for Payments {
    fn check(services: &Services) -> Result<(), Error> {
        services.find::<PaymentsEnabled>().map(drop).map_err(|_| {
            let detail = "a tool requires payments, but no payment authority is configured";
            Error::new(Kind::PortMissing, detail)
        })
    }

    fn gather(services: &Services, scope: &Arc<dyn CallScope>) -> Result<Self, Error> {
        Self::check(services)?;
        let scope = Arc::clone(scope);
        Ok(Self(scope))
    }
}

impl Payments {
    /// Reserves money. The name must be unique in the call. If the call runs again, the same payment is returned.
    ///
    /// The reservation is durable before this returns. If it is not settled when the call ends, it is released.
    pub async fn reserve(&self, name: &str, order: PaymentOrder) -> Result<PaymentHold, Error> {
        let standing = self.0.reserve_payment(name, order).await?;
        Ok(PaymentHold { scope: self.0.clone(), name: name.to_owned(), state: standing })
    }
}

/// Money that is reserved, or was paid in an earlier run of the call.
#[must_use = "what is not settled is released when the call is over"]
pub struct PaymentHold {
    scope: Arc<dyn CallPayments>,
    name: String,
    state: AuthorityPaymentState,
}

impl PaymentHold {
    /// Returns the receipt, if it was paid in an earlier run of the call.
    pub fn receipt(&self) -> Option<&str> {
        match &self.state {
            AuthorityPaymentState::Settled { receipt } => Some(receipt),
            AuthorityPaymentState::Reserved | AuthorityPaymentState::Released => None,
        }
    }

    /// Pays, unless it is paid already. Returns the receipt.
    pub async fn settle(self) -> Result<String, Error> {
        match self.state {
            AuthorityPaymentState::Settled { receipt } => Ok(receipt),
            AuthorityPaymentState::Reserved | AuthorityPaymentState::Released => {
                self.scope.settle_payment(&self.name).await
            }
        }
    }

    /// Releases the money now instead of at the end of the call.
    pub async fn release(self, reason: &str) -> Result<(), Error> {
        self.scope.release_payment(&self.name, reason).await
    }
}

/// An authority in memory, with an amount of money per currency.
#[derive(Default)]
pub struct InMemoryPaymentAuthority {
    accounts: Mutex<PaymentAccounts>,
}

#[derive(Default)]
struct PaymentAccounts {
    available: BTreeMap<Currency, Money>,
    payments: BTreeMap<PaymentId, (PaymentOrder, AuthorityPaymentState)>,
}

impl InMemoryPaymentAuthority {
    /// Creates an authority with this money.
    pub fn with_money(money: impl IntoIterator<Item = Money>) -> Self {
        let left = money.into_iter().map(|money| (money.currency, money)).collect();
        Self { accounts: Mutex::new(PaymentAccounts { available: left, payments: BTreeMap::new() }) }
    }

    /// Returns all payments that were ever reserved, with their states.
    pub fn payments(&self) -> Vec<(PaymentOrder, AuthorityPaymentState)> {
        self.lock().payments.values().cloned().collect()
    }

    /// Returns the amount that is neither reserved nor paid.
    pub fn available(&self, currency: Currency) -> Option<Money> {
        self.lock().available.get(&currency).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PaymentAccounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PaymentAccounts {
    fn reserve(&mut self, id: PaymentId, order: &PaymentOrder) -> Result<AuthorityPaymentState, Error> {
        if let Some((first, standing)) = self.payments.get(&id) {
            return if first == order {
                Ok(standing.clone())
            } else {
                Err(refused(id, "was for another order"))
            };
        }
        let PaymentOrder { amount: Money { amount, currency }, .. } = order;
        let left =
            self.available.get_mut(currency).ok_or_else(|| refused(id, "is of a currency we do not have"))?;
        left.amount = left.amount.checked_sub(*amount).ok_or_else(|| refused(id, "is more than there is"))?;
        self.payments.insert(id, (order.clone(), AuthorityPaymentState::Reserved));
        Ok(AuthorityPaymentState::Reserved)
    }

    fn settle(&mut self, id: PaymentId) -> Result<AuthorityPaymentState, Error> {
        let (_, standing) = self.payments.get_mut(&id).ok_or_else(|| refused(id, "was never reserved"))?;
        match standing {
            AuthorityPaymentState::Released => return Err(refused(id, "was released")),
            AuthorityPaymentState::Reserved => {
                *standing = AuthorityPaymentState::Settled { receipt: format!("receipt of {id}") }
            }
            AuthorityPaymentState::Settled { .. } => {}
        }
        Ok(standing.clone())
    }

    fn release(&mut self, id: PaymentId) -> AuthorityPaymentState {
        let Some((order, standing)) = self.payments.get_mut(&id) else {
            return AuthorityPaymentState::Released;
        };
        if *standing == AuthorityPaymentState::Reserved {
            *standing = AuthorityPaymentState::Released;
            if let Some(left) = self.available.get_mut(&order.amount.currency) {
                left.amount = left.amount + order.amount.amount;
            }
        }
        standing.clone()
    }
}

fn refused(id: PaymentId, why: &str) -> Error {
    Error::new(Kind::PaymentRefused, format!("{id} {why}"))
}

impl PaymentAuthority for InMemoryPaymentAuthority {
    fn reserve<'a>(
        &'a self,
        id: PaymentId,
        order: &'a PaymentOrder,
    ) -> ResultFuture<'a, AuthorityPaymentState> {
        Box::pin(ready(self.lock().reserve(id, order)))
    }

    fn settle(&self, id: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        Box::pin(ready(self.lock().settle(id)))
    }

    fn release(&self, id: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        Box::pin(ready(Ok(self.lock().release(id))))
    }

    fn find(&self, id: PaymentId) -> ResultFuture<'_, Option<AuthorityPaymentState>> {
        let found = self.lock().payments.get(&id).map(|(_, standing)| standing.clone());
        Box::pin(ready(Ok(found)))
    }
}
