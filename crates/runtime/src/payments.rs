//! Asks the payment authority, within its deadline, and keeps what it says (R11.6).
//!
//! A payment is asked for, reserved, then settled or released. That it is asked for is durable before the authority hears of
//! it, and that it is reserved before the tool goes on; so whatever is left behind by a crash is found again under its key.
//! What becomes of it once its call is over, and the authority did not take, is owed ([`outlast_ports::owed`]): [`tell`] tells it
//! again until it does.
use crate::outfit::World;
use futures_util::future::{Either, select};
use outlast_ports::Answer;
use outlast_ports::owed::{Owed, Pauses};
use outlast_ports::payment::PaymentAuthority;
use outlast_ports::store::Store;
use outlast_vocab::payment::{Payment, PaymentState, Standing};
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Failure, Kind, Limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the teller sleeps at most: nobody rings while a turn goes on.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// How long the teller sleeps when the store cannot be asked.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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

    /// Frees a payment that will not be settled. If the authority does not take that, it is told again later.
    pub(crate) async fn free(&self, payment: &Payment, reason: &str) -> Payment {
        let state = PaymentState::Releasing { reason: reason.to_owned() };
        self.conclude(Payment { state, ..payment.clone() }).await
    }

    /// Frees several payments, and gives the facts of that.
    pub(crate) async fn free_all(&self, payments: Vec<Payment>, reason: &str) -> Vec<Fact> {
        let mut facts = Vec::new();
        for payment in payments {
            facts.push(Fact::Payment(self.free(&payment, reason).await));
        }
        facts
    }

    /// Pays what a call that happened had set aside, and gives the facts of that.
    pub(crate) async fn settle_all(&self, payments: Vec<Payment>) -> Vec<Fact> {
        let mut facts = Vec::new();
        for payment in payments {
            let payment = Payment { state: PaymentState::Settling, ..payment };
            facts.push(Fact::Payment(self.conclude(payment).await));
        }
        facts
    }

    /// The payment as the authority says it stands once it was told of its end; as it is if it did not take that.
    async fn conclude(&self, payment: Payment) -> Payment {
        match self.told(&payment).await {
            Ok(concluded) => concluded,
            Err(error) => {
                tracing::warn!(%error, payment = %payment.id, "the payment authority is told again later");
                payment
            }
        }
    }

    /// Tells the authority what is decided of a payment.
    async fn told(&self, payment: &Payment) -> Result<Payment, Error> {
        let authority = self.authority()?;
        let (asked, reason) = match &payment.state {
            PaymentState::Releasing { reason } => (authority.release(payment.id), reason.as_str()),
            _ => (authority.settle(payment.id), "it had been released"),
        };
        let (standing, reason) = match self.paid(asked).await {
            Ok(standing) => (standing, reason.to_owned()),
            // It may have refused because nothing is set aside; then there is nothing left to tell.
            Err(error) if error.kind() == Kind::PaymentRefused => {
                let found = self.paid(authority.find(payment.id)).await?;
                (found.unwrap_or(Standing::Released), error.detail().to_owned())
            }
            Err(error) => return Err(error),
        };
        if standing == Standing::Reserved {
            let detail = format!("the payment authority still has {} set aside", payment.id);
            return Err(Error::new(Kind::PaymentUnavailable, detail));
        }
        Ok(come_to(payment, &standing, &reason))
    }
}

/// Tells the authority what it has not taken, whenever that is due, until the worker stops. It looks when `bell` rings: then
/// something may have changed.
pub(crate) async fn tell(
    world: Arc<World>,
    store: Arc<dyn Store>,
    mut bell: watch::Receiver<()>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        bell.borrow_and_update();
        let told = tokio::select! {
            biased;
            // What is broken off is told again under the same key.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            told = tell_due(&world, store.as_ref()) => told,
        };
        let pause = told.unwrap_or_else(|error| {
            tracing::warn!(%error, "what the payment authority is owed could not be looked at");
            LOOK_AGAIN
        });
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            _ = bell.changed() => {}
            () = world.clock.sleep(pause) => {}
        }
    }
}

/// Tells the authority what is due; says when to look again.
async fn tell_due(world: &World, store: &dyn Store) -> Result<Duration, Error> {
    let Limits { payment_first: first, payment_most: most, .. } = world.limits;
    loop {
        let now = world.clock.now();
        match store.next_owed().await? {
            Some(due) if due <= now => {}
            Some(due) => return Ok(now.until(due).min(LONGEST_SLEEP)),
            None => return Ok(LONGEST_SLEEP),
        }
        // One at a time: whatever waits behind one that hangs is left to others.
        for owed in store.take_owed(Pauses { first, most }, now, 1).await? {
            tell_one(world, store, owed).await?;
        }
    }
}

async fn tell_one(world: &World, store: &dyn Store, owed: Owed) -> Result<(), Error> {
    let Owed { session, turn, payment, attempts, .. } = owed;
    match world.told(&payment).await {
        Ok(concluded) => {
            if let Some(last) = store.told(turn, concluded, world.clock.now()).await? {
                world.hub.committed(session, last);
            }
            Ok(())
        }
        Err(error) => {
            tracing::warn!(%error, payment = %payment.id, attempts, "the payment authority did not take it");
            store.not_told(turn, payment.key, Failure::from(&error)).await
        }
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
