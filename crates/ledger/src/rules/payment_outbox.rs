//! The payment outbox: decisions that the authority has not yet accepted. [`outlast_ports::payment_outbox`] explains why none is lost.
use super::{append, lookup, required_row, turn_by_no, turn_row};
use crate::rows::{
    ClaimRow, LATEST, PaymentQueue, PaymentWrites, PendingPaymentRow, ReadRows, Rows, SessionRow, TurnRow,
};
use outlast_ports::payment_outbox::PaymentBackoff;
use outlast_ports::turns::TurnNo;
use outlast_views::PendingPayment;
use outlast_vocab::effect::Command;
use outlast_vocab::id::TurnId;
use outlast_vocab::payment::{Payment, PaymentState};
use outlast_vocab::record::{EffectRequested, Fact, OutcomeVerdict, Seq};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey};
use std::collections::BTreeMap;

/// Updates the payment outbox from a record. A payment is in it while its decision is made but not accepted.
pub(super) fn update_outbox(
    rows: &mut dyn PaymentWrites,
    turn: TurnNo,
    payment: &Payment,
    now: Millis,
) -> Result<(), Error> {
    if !payment.state.is_in_outbox() {
        return rows.delete_pending_payment(turn, &payment.key);
    }
    let (payment, due_at) = (payment.clone(), now.min(LATEST));
    rows.put_pending_payment(&PendingPaymentRow {
        turn,
        payment,
        since: now,
        attempts: 0,
        due_at,
        failure: None,
    })
}

/// Decides the payments of a call after a person stated the call's outcome. Imported payments are skipped: they are
/// decided where they were made.
pub(super) fn decide_payments(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    claim: &ClaimRow,
    verdict: &OutcomeVerdict,
    now: Millis,
) -> Result<(), Error> {
    let state = match verdict {
        OutcomeVerdict::Happened(_) => PaymentState::Settling,
        OutcomeVerdict::DidNotHappen => {
            PaymentState::Releasing { reason: "the call did not happen".to_owned() }
        }
    };
    for payment in open_payments(rows, session, turn, claim)? {
        let fact = Fact::Payment(Payment { state: state.clone(), ..payment });
        let (_, fact) = append(rows, session, Some(turn), fact.into(), now)?;
        if let Fact::Payment(payment) = &fact {
            update_outbox(rows, turn.no, payment, now)?;
        }
    }
    Ok(())
}

/// Returns the payments of a call that are not decided yet.
fn open_payments(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
    claim: &ClaimRow,
) -> Result<Vec<Payment>, Error> {
    let mut call = None;
    let mut payments: BTreeMap<ReplayKey, Payment> = BTreeMap::new();
    for record in lookup::of_turn(rows, session, turn)? {
        match record.fact {
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) })
                if record.seq == claim.claim.asked =>
            {
                let child = usize::try_from(claim.claim.child).unwrap_or(usize::MAX);
                call = batch.calls.get(child).map(|call| key.child(child, call.model_id().as_str()));
            }
            Fact::Payment(payment) if record.seq > session.imported => {
                payments.insert(payment.key.clone(), payment);
            }
            _ => {}
        }
    }
    let call = required_row("call", call)?;
    let open = |payment: &Payment| payment.state.is_open() && payment.key.is_under(&call);
    Ok(payments.into_values().filter(open).collect())
}

/// Refuses to delete a session that has payments in the outbox. Their money would stay reserved forever.
pub(super) fn check_no_pending_payments(rows: &dyn ReadRows, session: &SessionRow) -> Result<(), Error> {
    let mut open_payments = 0_usize;
    for row in rows.pending_payments(rows.access().visibility, usize::MAX)? {
        open_payments += usize::from(turn_by_no(rows, row.turn)?.session == session.no);
    }
    if open_payments == 0 {
        return Ok(());
    }
    let detail = format!(
        "the payment authority has not confirmed {open_payments} payments of session {} yet; Outlast retries them",
        session.id
    );
    Err(Error::new(Kind::SessionBusy, detail))
}

/// Returns the payments in the outbox, oldest first.
pub fn pending_payments(rows: &dyn ReadRows, limit: usize) -> Result<Vec<PendingPayment>, Error> {
    rows.pending_payments(rows.access().visibility, limit)?.into_iter().map(|row| view(rows, row)).collect()
}

fn view(rows: &dyn ReadRows, row: PendingPaymentRow) -> Result<PendingPayment, Error> {
    let PendingPaymentRow { turn, payment, since, attempts, due_at, failure } = row;
    let turn = required_row("turn", rows.turn(turn)?)?;
    let session = required_row("session", rows.session(turn.session)?)?;
    Ok(PendingPayment { session: session.id, turn: turn.id, payment, since, attempts, due_at, failure })
}

/// Returns when the next payment is due.
pub fn next_payment_due(rows: &dyn PaymentQueue) -> Result<Option<Millis>, Error> {
    rows.access().require_operator()?;
    rows.next_payment_due()
}

/// Takes the payments that are due for one attempt.
pub fn take_due_payments(
    rows: &mut dyn Rows,
    pauses: PaymentBackoff,
    now: Millis,
    limit: usize,
) -> Result<Vec<PendingPayment>, Error> {
    rows.access().require_operator()?;
    let mut taken = Vec::new();
    for row in rows.payments_due(now, limit)? {
        let due_at = now.after(pauses.after(row.attempts)).min(LATEST);
        let row = PendingPaymentRow { attempts: row.attempts.saturating_add(1), due_at, ..row };
        rows.put_pending_payment(&row)?;
        taken.push(view(rows, row)?);
    }
    Ok(taken)
}

/// Records the authority's answer on a payment, unless it was already recorded.
pub fn record_payment_result(
    rows: &mut dyn Rows,
    turn: TurnId,
    payment: Payment,
    now: Millis,
) -> Result<Option<Seq>, Error> {
    let Some(row) = pending_payment_row(rows, turn, &payment.key)? else { return Ok(None) };
    let mut turn = turn_by_no(rows, row.turn)?;
    let mut session = required_row("session", rows.session(turn.session)?)?;
    rows.delete_pending_payment(turn.no, &payment.key)?;
    let (place, _) = append(rows, &mut session, Some(&mut turn), Fact::Payment(payment).into(), now)?;
    rows.put_turn(&turn)?;
    rows.put_session(&session)?;
    Ok(Some(place.seq))
}

/// Records why the authority did not accept the decision.
pub fn record_payment_failure(
    rows: &mut dyn Rows,
    turn: TurnId,
    payment: &ReplayKey,
    failure: Failure,
) -> Result<(), Error> {
    match pending_payment_row(rows, turn, payment)? {
        Some(row) => rows.put_pending_payment(&PendingPaymentRow { failure: Some(failure), ..row }),
        None => Ok(()),
    }
}

fn pending_payment_row(
    rows: &dyn ReadRows,
    turn: TurnId,
    payment: &ReplayKey,
) -> Result<Option<PendingPaymentRow>, Error> {
    rows.access().require_operator()?;
    rows.pending_payment(turn_row(rows, turn)?.no, payment)
}
