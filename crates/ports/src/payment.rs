//! Payments: an authority that holds the credentials ([`PaymentAuthority`]), and the service with which a tool uses it
//! ([`Payments`]).
//!
//! A tool that does not name the service cannot pay. The idempotency key of a payment is derived from its position in
//! the turn, so the same payment is found again after a crash. [`Cashbox`] is an authority in memory, for tests.
use crate::Answer;
use crate::service::{CallScope, Needs, Services};
use outlast_vocab::id::PaymentId;
use outlast_vocab::payment::{Currency, Money, Order, Standing};
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
    fn reserve<'a>(&'a self, id: PaymentId, order: &'a Order) -> Answer<'a, Standing>;

    /// Pays a reservation. Fails with `payment.refused` if it was released.
    fn settle(&self, id: PaymentId) -> Answer<'_, Standing>;

    /// Releases a reservation. If it is paid already, it stays paid, and the result says so.
    fn release(&self, id: PaymentId) -> Answer<'_, Standing>;

    /// Returns the state of the payment, or `None` if it was never reserved.
    fn find(&self, id: PaymentId) -> Answer<'_, Option<Standing>>;
}

/// Marker service that shows at start-up that payments are possible.
pub struct PaymentDesk;

/// The payments of one call.
#[derive(Clone)]
pub struct Payments(Arc<dyn CallScope>);

impl Needs for Payments {
    fn check(services: &Services) -> Result<(), Error> {
        services.find::<PaymentDesk>().map(drop).map_err(|_| {
            let detail = "a tool needs to pay, but no payment authority is configured";
            Error::new(Kind::PortMissing, detail)
        })
    }

    fn gather(services: &Services, scope: &Arc<dyn CallScope>) -> Result<Self, Error> {
        Self::check(services)?;
        Ok(Self(scope.clone()))
    }
}

impl Payments {
    /// Reserves money. The name must be unique in the call. If the call runs again, the same payment is returned.
    ///
    /// The reservation is durable before this returns. If it is not settled when the call ends, it is released.
    pub async fn reserve(&self, name: &str, order: Order) -> Result<Hold, Error> {
        let standing = self.0.reserve_payment(name, order).await?;
        Ok(Hold { scope: self.0.clone(), name: name.to_owned(), standing })
    }
}

/// Money that is reserved, or was paid in an earlier run of the call.
#[must_use = "what is not settled is released when the call is over"]
pub struct Hold {
    scope: Arc<dyn CallScope>,
    name: String,
    standing: Standing,
}

impl Hold {
    /// Returns the receipt, if it was paid in an earlier run of the call.
    pub fn receipt(&self) -> Option<&str> {
        match &self.standing {
            Standing::Settled { receipt } => Some(receipt),
            Standing::Reserved | Standing::Released => None,
        }
    }

    /// Pays, unless it is paid already. Returns the receipt.
    pub async fn settle(self) -> Result<String, Error> {
        match self.standing {
            Standing::Settled { receipt } => Ok(receipt),
            Standing::Reserved | Standing::Released => self.scope.settle_payment(&self.name).await,
        }
    }

    /// Releases the money now instead of at the end of the call.
    pub async fn release(self, reason: &str) -> Result<(), Error> {
        self.scope.release_payment(&self.name, reason).await
    }
}

/// An authority in memory, with an amount of money per currency.
#[derive(Default)]
pub struct Cashbox {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    left: BTreeMap<Currency, Money>,
    payments: BTreeMap<PaymentId, (Order, Standing)>,
}

impl Cashbox {
    /// Creates an authority with this money.
    pub fn with(money: impl IntoIterator<Item = Money>) -> Self {
        let left = money.into_iter().map(|money| (money.currency, money)).collect();
        Self { inside: Mutex::new(Inside { left, payments: BTreeMap::new() }) }
    }

    /// Returns all payments that were ever reserved, with their states.
    pub fn payments(&self) -> Vec<(Order, Standing)> {
        self.inside().payments.values().cloned().collect()
    }

    /// Returns the amount that is neither reserved nor paid.
    pub fn left(&self, currency: Currency) -> Option<Money> {
        self.inside().left.get(&currency).copied()
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn reserve(&mut self, id: PaymentId, order: &Order) -> Result<Standing, Error> {
        if let Some((first, standing)) = self.payments.get(&id) {
            return if first == order {
                Ok(standing.clone())
            } else {
                Err(refused(id, "was for another order"))
            };
        }
        let Order { amount: Money { amount, currency }, .. } = order;
        let left =
            self.left.get_mut(currency).ok_or_else(|| refused(id, "is of a currency we do not have"))?;
        left.amount = left.amount.checked_sub(*amount).ok_or_else(|| refused(id, "is more than there is"))?;
        self.payments.insert(id, (order.clone(), Standing::Reserved));
        Ok(Standing::Reserved)
    }

    fn settle(&mut self, id: PaymentId) -> Result<Standing, Error> {
        let (_, standing) = self.payments.get_mut(&id).ok_or_else(|| refused(id, "was never reserved"))?;
        match standing {
            Standing::Released => return Err(refused(id, "was released")),
            Standing::Reserved => *standing = Standing::Settled { receipt: format!("receipt of {id}") },
            Standing::Settled { .. } => {}
        }
        Ok(standing.clone())
    }

    fn release(&mut self, id: PaymentId) -> Standing {
        let Some((order, standing)) = self.payments.get_mut(&id) else { return Standing::Released };
        if *standing == Standing::Reserved {
            *standing = Standing::Released;
            if let Some(left) = self.left.get_mut(&order.amount.currency) {
                left.amount = left.amount + order.amount.amount;
            }
        }
        standing.clone()
    }
}

fn refused(id: PaymentId, why: &str) -> Error {
    Error::new(Kind::PaymentRefused, format!("{id} {why}"))
}

impl PaymentAuthority for Cashbox {
    fn reserve<'a>(&'a self, id: PaymentId, order: &'a Order) -> Answer<'a, Standing> {
        Box::pin(ready(self.inside().reserve(id, order)))
    }

    fn settle(&self, id: PaymentId) -> Answer<'_, Standing> {
        Box::pin(ready(self.inside().settle(id)))
    }

    fn release(&self, id: PaymentId) -> Answer<'_, Standing> {
        Box::pin(ready(Ok(self.inside().release(id))))
    }

    fn find(&self, id: PaymentId) -> Answer<'_, Option<Standing>> {
        let found = self.inside().payments.get(&id).map(|(_, standing)| standing.clone());
        Box::pin(ready(Ok(found)))
    }
}
