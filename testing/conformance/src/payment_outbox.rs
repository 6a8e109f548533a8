//! Payments that are decided but not yet confirmed by their authority: none is forgotten.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, answer, answered, asked, call, refused};
use outlast_ports::payment_outbox::PaymentBackoff;
use outlast_ports::turns::{Lease, TurnTransition};
use outlast_views::PendingPayment;
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::id::PaymentId;
use outlast_vocab::message::ToolResult;
use outlast_vocab::payment::{Payment, PaymentOrder, PaymentState};
use outlast_vocab::record::{ClaimRef, Fact, OutcomeVerdict};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey};
use serde_json::json;
use std::time::Duration;

pub(super) fn backoff() -> PaymentBackoff {
    PaymentBackoff { first: Duration::from_secs(1), pause_max: Duration::from_secs(3) }
}

/// A payment of the first call of a turn.
pub(super) fn payment(state: PaymentState) -> Payment {
    paid_by(&ReplayKey::turn(0).tools(0), "cake", state)
}

fn paid_by(place: &ReplayKey, name: &str, state: PaymentState) -> Payment {
    let amount = "3.10 EUR".parse().expect("it is money");
    let order = PaymentOrder { payee: "baker".to_owned(), amount, purpose: name.to_owned() };
    let key = place.payment(name);
    let id = PaymentId::derived(&[key.as_str().as_bytes()]);
    Payment { key, id, order, state }
}

fn settled() -> PaymentState {
    PaymentState::Settled { receipt: "receipt 1".to_owned() }
}

/// Creates a turn that ended and owes a payment.
async fn turn_with_pending_payment(s: &StoreUnderTest<'_>) -> Result<Lease, Error> {
    let lease = s.begin("pay").await?.lease;
    s.write(&lease, vec![Fact::Payment(payment(PaymentState::Settling))], TurnTransition::End(answer("bye")))
        .await?;
    Ok(lease)
}

/// Returns the payments that the lease's session owes.
async fn pending_payments_of(s: &StoreUnderTest<'_>, lease: &Lease) -> Result<Vec<PendingPayment>, Error> {
    Ok(s.pending_payments(ALL)
        .await?
        .into_iter()
        .filter(|pending| pending.session == lease.session)
        .collect())
}

pub(super) async fn decided_payment_is_pending_until_authority_confirms(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let lease = s.begin("pay").await?.lease;
    s.add(&lease, vec![Fact::Payment(payment(PaymentState::Reserved))]).await?;
    assert_eq!((s.next_payment_due().await?, pending_payments_of(s, &lease).await?), (None, Vec::new()));
    let decided = payment(PaymentState::Settling);
    s.write(&lease, vec![Fact::Payment(decided.clone())], TurnTransition::End(answer("bye"))).await?;
    let (session, turn) = (lease.session, lease.turn);
    let owes = PendingPayment {
        session,
        turn,
        payment: decided,
        since: NOW,
        attempts: 0,
        due_at: NOW,
        failure: None,
    };
    assert_eq!(pending_payments_of(s, &lease).await?, [owes]);
    let seq =
        s.record_payment_result(turn, payment(settled()), NOW).await?.expect("it is the first to say so");
    let last = s.all(session).await?.pop().expect("it has records");
    assert_eq!((last.seq, last.turn, &last.fact), (seq, Some(turn), &Fact::Payment(payment(settled()))));
    assert_eq!(s.turn_records(turn).await?.pop(), Some(last), "its turn knows it, though it is over");
    assert_eq!((s.next_payment_due().await?, pending_payments_of(s, &lease).await?), (None, Vec::new()));
    // Another worker may have reported it as well.
    assert_eq!(s.record_payment_result(turn, payment(settled()), NOW).await?, None);
    s.verify(session).await.map(drop)
}

pub(super) async fn payment_report_is_retried_with_backoff(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = turn_with_pending_payment(s).await?;
    let mut now = NOW;
    for (attempt, pause) in (1..).zip([1, 2, 3, 3]) {
        let taken = s.take_due_payments(backoff(), now, ALL).await?;
        assert_eq!(taken.iter().map(|pending| pending.attempts).collect::<Vec<_>>(), [attempt]);
        assert_eq!(s.take_due_payments(backoff(), now, ALL).await?, []);
        let failure = Failure::new(Kind::PaymentUnavailable, "it is down");
        s.record_payment_failure(lease.turn, payment(settled()).key, failure.clone()).await?;
        now = now.after(Duration::from_secs(pause));
        let pending = pending_payments_of(s, &lease).await?.remove(0);
        assert_eq!((pending.due_at, pending.failure), (now, Some(failure)));
        assert_eq!(s.next_payment_due().await?, Some(now));
    }
    s.record_payment_result(lease.turn, payment(settled()), now).await.map(drop)
}

/// Creates a turn that ended with one call of unknown outcome, which had these payments.
async fn call_with_payments(
    s: &StoreUnderTest<'_>,
    sent: &PreparedCall,
    states: [PaymentState; 3],
) -> Result<Lease, Error> {
    let lease = s.begin("send it").await?.lease;
    let calls = [call("other"), sent.clone()];
    let claimed = s.add(&lease, vec![asked(&calls)]).await?.places[0].seq;
    let Some(Fact::Asked(batch)) = s.all(lease.session).await?.pop().map(|record| record.fact) else {
        panic!("the calls were asked for")
    };
    let [other, place] = [0, 1].map(|n| batch.key.child(n, calls[n].model_id.as_str()));
    let mut facts: Vec<Fact> = ["a", "b", "c"]
        .into_iter()
        .zip(states)
        .map(|(name, state)| Fact::Payment(paid_by(&place, name, state)))
        .collect();
    facts.push(Fact::Payment(paid_by(&other, "d", PaymentState::Reserved)));
    let unknown = |child| answered(ClaimRef { asked: claimed, child }, ToolOutcome::Unknown);
    facts.extend([unknown(0), unknown(1)]);
    s.write(&lease, facts, TurnTransition::End(answer("nobody knows"))).await?;
    Ok(lease)
}

pub(super) async fn operator_verdict_on_unknown_call_decides_its_payments(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let released = PaymentState::Releasing { reason: "the call did not happen".to_owned() };
    let happened = OutcomeVerdict::Happened(ToolResult::Ok(json!("sent")));
    for (verdict, decided) in [(happened, PaymentState::Settling), (OutcomeVerdict::DidNotHappen, released)] {
        let sent = call("send");
        let lease =
            call_with_payments(s, &sent, [PaymentState::Asked, PaymentState::Reserved, settled()]).await?;
        assert_eq!(pending_payments_of(s, &lease).await?, []);
        s.settle(sent.id, verdict.clone(), NOW).await?;
        let owes = pending_payments_of(s, &lease).await?;
        let owes: Vec<_> = owes
            .iter()
            .map(|pending| (pending.payment.order.purpose.as_str(), &pending.payment.state))
            .collect();
        assert_eq!(owes, [("a", &decided), ("b", &decided)]);
        assert!(s.facts(lease.session).await?.ends_with(&[
            "effect.payment",
            "effect.payment",
            "effect.settled"
        ]));
        for pending in pending_payments_of(s, &lease).await? {
            s.record_payment_result(lease.turn, Payment { state: settled(), ..pending.payment }, NOW).await?;
        }
    }
    Ok(())
}

pub(super) async fn session_with_pending_payments_cannot_be_deleted(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = turn_with_pending_payment(s).await?;
    refused(s.delete(lease.session, NOW).await, Kind::SessionBusy);
    s.record_payment_result(lease.turn, payment(settled()), Millis(9_000)).await?;
    s.delete(lease.session, NOW).await
}
