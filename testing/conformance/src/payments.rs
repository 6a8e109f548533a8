//! The rules for payment authorities: one id is one payment, however often it is requested.
use super::store_under_test::refused;
use super::{RuleFuture, RuleResult, block_on, fresh};
use outlast_ports::payment::PaymentAuthority;
use outlast_vocab::id::PaymentId;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentOrder};
use outlast_vocab::{Error, Kind};

/// An authority under test, which pays at least 10 EUR.
pub trait PaymentsFixture: Sync {
    /// Returns the authority.
    fn authority(&self) -> &dyn PaymentAuthority;

    /// Runs a rule to completion. Override this if the authority works only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// The authority under test.
pub(super) struct AuthorityUnderTest<'a>(&'a dyn PaymentsFixture);

impl<'a> From<&'a dyn PaymentsFixture> for AuthorityUnderTest<'a> {
    fn from(on: &'a dyn PaymentsFixture) -> Self {
        Self(on)
    }
}

impl AuthorityUnderTest<'_> {
    fn authority(&self) -> &dyn PaymentAuthority {
        self.0.authority()
    }

    async fn reserved(&self) -> Result<PaymentId, Error> {
        let id = PaymentId::from_u128(fresh());
        assert_eq!(self.authority().reserve(id, &order("3.10 EUR")).await?, AuthorityPaymentState::Reserved);
        Ok(id)
    }
}

fn order(amount: &str) -> PaymentOrder {
    let amount = amount.parse().expect("it fits");
    PaymentOrder { payee: "baker".to_owned(), amount, purpose: "a cake".to_owned() }
}

pub(super) async fn reserving_a_payment_id_is_idempotent(s: &AuthorityUnderTest<'_>) -> RuleResult {
    let id = s.reserved().await?;
    assert_eq!(s.authority().find(id).await?, Some(AuthorityPaymentState::Reserved));
    assert_eq!(s.authority().reserve(id, &order("3.10 EUR")).await?, AuthorityPaymentState::Reserved);
    assert_eq!(s.authority().find(PaymentId::from_u128(fresh())).await?, None);
    Ok(())
}

pub(super) async fn payment_id_with_another_order_is_refused(s: &AuthorityUnderTest<'_>) -> RuleResult {
    let id = s.reserved().await?;
    refused(s.authority().reserve(id, &order("3.11 EUR")).await, Kind::PaymentRefused);
    assert_eq!(s.authority().find(id).await?, Some(AuthorityPaymentState::Reserved));
    Ok(())
}

pub(super) async fn settled_payment_stays_settled_with_its_receipt(s: &AuthorityUnderTest<'_>) -> RuleResult {
    let id = s.reserved().await?;
    let settled = s.authority().settle(id).await?;
    assert!(matches!(settled, AuthorityPaymentState::Settled { .. }), "{settled:?}");
    assert_eq!(s.authority().settle(id).await?, settled);
    assert_eq!(s.authority().release(id).await?, settled);
    assert_eq!(s.authority().reserve(id, &order("3.10 EUR")).await?, settled);
    assert_eq!(s.authority().find(id).await?, Some(settled));
    Ok(())
}

pub(super) async fn released_payment_is_never_paid(s: &AuthorityUnderTest<'_>) -> RuleResult {
    let id = s.reserved().await?;
    assert_eq!(s.authority().release(id).await?, AuthorityPaymentState::Released);
    assert_eq!(s.authority().release(id).await?, AuthorityPaymentState::Released);
    refused(s.authority().settle(id).await, Kind::PaymentRefused);
    assert_eq!(s.authority().find(id).await?, Some(AuthorityPaymentState::Released));
    Ok(())
}

pub(super) async fn unreserved_payment_is_refused(s: &AuthorityUnderTest<'_>) -> RuleResult {
    refused(s.authority().settle(PaymentId::from_u128(fresh())).await, Kind::PaymentRefused);
    Ok(())
}

pub(super) async fn payment_above_the_limit_is_refused(s: &AuthorityUnderTest<'_>) -> RuleResult {
    let id = PaymentId::from_u128(fresh());
    refused(s.authority().reserve(id, &order("10000000 EUR")).await, Kind::PaymentRefused);
    s.reserved().await.map(drop)
}
