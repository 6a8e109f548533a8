//! The rules for payment authorities: one id is one payment, however often it is requested.
use super::scene::refused;
use super::{Rule, Running, block_on, fresh};
use outlast_ports::payment::PaymentAuthority;
use outlast_vocab::id::PaymentId;
use outlast_vocab::payment::{Order, Standing};
use outlast_vocab::{Error, Kind};

/// An authority under test, which pays at least 10 EUR.
pub trait PaymentsFixture: Sync {
    /// Returns the authority.
    fn authority(&self) -> &dyn PaymentAuthority;

    /// Runs a rule to completion. Override this if the authority works only inside a certain runtime.
    fn run(&self, rule: Running<'_>) {
        block_on(rule);
    }
}

/// The authority under test.
pub(super) struct Till<'a>(&'a dyn PaymentsFixture);

impl<'a> From<&'a dyn PaymentsFixture> for Till<'a> {
    fn from(on: &'a dyn PaymentsFixture) -> Self {
        Self(on)
    }
}

impl Till<'_> {
    fn at(&self) -> &dyn PaymentAuthority {
        self.0.authority()
    }

    async fn reserved(&self) -> Result<PaymentId, Error> {
        let id = PaymentId::from_u128(fresh());
        assert_eq!(self.at().reserve(id, &order("3.10 EUR")).await?, Standing::Reserved);
        Ok(id)
    }
}

fn order(amount: &str) -> Order {
    let amount = amount.parse().expect("it fits");
    Order { payee: "baker".to_owned(), amount, purpose: "a cake".to_owned() }
}

pub(super) async fn what_is_reserved_is_found_and_the_same_id_gives_it_again(s: &Till<'_>) -> Rule {
    let id = s.reserved().await?;
    assert_eq!(s.at().find(id).await?, Some(Standing::Reserved));
    assert_eq!(s.at().reserve(id, &order("3.10 EUR")).await?, Standing::Reserved);
    assert_eq!(s.at().find(PaymentId::from_u128(fresh())).await?, None);
    Ok(())
}

pub(super) async fn the_same_id_with_another_order_is_refused(s: &Till<'_>) -> Rule {
    let id = s.reserved().await?;
    refused(s.at().reserve(id, &order("3.11 EUR")).await, Kind::PaymentRefused);
    assert_eq!(s.at().find(id).await?, Some(Standing::Reserved));
    Ok(())
}

pub(super) async fn what_is_settled_stays_settled_with_its_receipt(s: &Till<'_>) -> Rule {
    let id = s.reserved().await?;
    let settled = s.at().settle(id).await?;
    assert!(matches!(settled, Standing::Settled { .. }), "{settled:?}");
    assert_eq!(s.at().settle(id).await?, settled);
    assert_eq!(s.at().release(id).await?, settled);
    assert_eq!(s.at().reserve(id, &order("3.10 EUR")).await?, settled);
    assert_eq!(s.at().find(id).await?, Some(settled));
    Ok(())
}

pub(super) async fn what_is_released_is_never_paid(s: &Till<'_>) -> Rule {
    let id = s.reserved().await?;
    assert_eq!(s.at().release(id).await?, Standing::Released);
    assert_eq!(s.at().release(id).await?, Standing::Released);
    refused(s.at().settle(id).await, Kind::PaymentRefused);
    assert_eq!(s.at().find(id).await?, Some(Standing::Released));
    Ok(())
}

pub(super) async fn what_was_never_reserved_is_not_paid(s: &Till<'_>) -> Rule {
    refused(s.at().settle(PaymentId::from_u128(fresh())).await, Kind::PaymentRefused);
    Ok(())
}

pub(super) async fn more_than_it_will_pay_is_refused(s: &Till<'_>) -> Rule {
    let id = PaymentId::from_u128(fresh());
    refused(s.at().reserve(id, &order("10000000 EUR")).await, Kind::PaymentRefused);
    s.reserved().await.map(drop)
}
