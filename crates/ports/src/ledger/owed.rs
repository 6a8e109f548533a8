//! The payment outbox: decisions that the authority has not yet accepted. [`crate::owed`] explains why none is lost.
use super::{append, lookup, referred, turn_by_no, turn_row};
use crate::owed::{Owed, Pauses};
use crate::rows::{ClaimRow, LATEST, OwedRow, ReadRows, Rows, SessionRow, TurnNo, TurnRow};
use outlast_vocab::effect::Command;
use outlast_vocab::id::TurnId;
use outlast_vocab::payment::{Payment, PaymentState};
use outlast_vocab::record::{Asked, Fact, Seq, Verdict};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey};
use std::collections::BTreeMap;
use std::time::Duration;

/// Updates the payment outbox from a record. A payment is in it while its decision is made but not accepted.
pub(super) fn keep(rows: &mut dyn Rows, turn: TurnNo, payment: &Payment, now: Millis) -> Result<(), Error> {
    if !payment.state.is_owed() {
        return rows.delete_owed(turn, &payment.key);
    }
    let (payment, due_at) = (payment.clone(), now.min(LATEST));
    rows.put_owed(&OwedRow { turn, payment, since: now, attempts: 0, due_at, failure: None })
}

/// Decides the payments of a call after a person stated the call's outcome. Imported payments are skipped: they are
/// decided where they were made.
pub(super) fn decide(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    (claim, verdict): (&ClaimRow, &Verdict),
    now: Millis,
) -> Result<(), Error> {
    let state = match verdict {
        Verdict::Happened(_) => PaymentState::Settling,
        Verdict::DidNotHappen => PaymentState::Releasing { reason: "the call did not happen".to_owned() },
    };
    for payment in open_payments(rows, session, turn, claim)? {
        let fact = Fact::Payment(Payment { state: state.clone(), ..payment });
        let (_, fact) = append(rows, session, Some(turn), fact.into(), now)?;
        if let Fact::Payment(payment) = &fact {
            keep(rows, turn.no, payment, now)?;
        }
    }
    Ok(())
}

/// Returns the payments of a call that are not decided yet.
fn open_payments(
    rows: &dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    claim: &ClaimRow,
) -> Result<Vec<Payment>, Error> {
    let mut call = None;
    let mut payments: BTreeMap<ReplayKey, Payment> = BTreeMap::new();
    for record in lookup::of_turn(rows, session, turn)? {
        match record.fact {
            Fact::Asked(Asked { key, command: Command::ToolBatch(batch) })
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
    let call = referred("call", call)?;
    let open = |payment: &Payment| payment.state.is_open() && payment.key.is_under(&call);
    Ok(payments.into_values().filter(open).collect())
}

/// Refuses to delete a session that has payments in the outbox. Their money would stay reserved forever.
pub(super) fn owes_nothing(rows: &dyn Rows, session: &SessionRow) -> Result<(), Error> {
    let mut owed = 0_usize;
    for row in rows.owed(rows.access().reach, usize::MAX)? {
        owed += usize::from(turn_by_no(rows, row.turn)?.session == session.no);
    }
    if owed == 0 {
        return Ok(());
    }
    let detail = format!(
        "the payment authority has not taken the end of {owed} payments of session {} yet; it is told again by itself",
        session.id
    );
    Err(Error::new(Kind::SessionBusy, detail))
}

/// Returns the payments in the outbox, oldest first.
pub fn owed(rows: &dyn ReadRows, limit: usize) -> Result<Vec<Owed>, Error> {
    rows.owed(rows.access().reach, limit)?.into_iter().map(|row| view(rows, row)).collect()
}

fn view(rows: &(impl ReadRows + ?Sized), row: OwedRow) -> Result<Owed, Error> {
    let OwedRow { turn, payment, since, attempts, due_at, failure } = row;
    let turn = referred("turn", rows.turn(turn)?)?;
    let session = referred("session", rows.session(turn.session)?)?;
    Ok(Owed { session: session.id, turn: turn.id, payment, since, attempts, due_at, failure })
}

/// Returns when the next payment is due.
pub fn next_owed(rows: &dyn ReadRows) -> Result<Option<Millis>, Error> {
    rows.access().need_everything()?;
    rows.next_owed()
}

/// Takes the payments that are due for one attempt.
pub fn take_owed(rows: &mut dyn Rows, pauses: Pauses, now: Millis, limit: usize) -> Result<Vec<Owed>, Error> {
    rows.access().need_everything()?;
    let mut taken = Vec::new();
    for row in rows.owed_due(now, limit)? {
        let due_at = now.after(pauses.after(row.attempts)).min(LATEST);
        let row = OwedRow { attempts: row.attempts.saturating_add(1), due_at, ..row };
        rows.put_owed(&row)?;
        taken.push(view(rows, row)?);
    }
    Ok(taken)
}

impl Pauses {
    /// Returns the pause after an attempt that had this many attempts before it.
    fn after(self, before: u32) -> Duration {
        self.first.saturating_mul(1 << before.min(16)).min(self.most)
    }
}

/// Records the authority's answer on a payment, unless it was already recorded.
pub fn told(rows: &mut dyn Rows, turn: TurnId, payment: Payment, now: Millis) -> Result<Option<Seq>, Error> {
    let Some(row) = owed_here(rows, turn, &payment.key)? else { return Ok(None) };
    let mut turn = turn_by_no(rows, row.turn)?;
    let mut session = referred("session", rows.session(turn.session)?)?;
    rows.delete_owed(turn.no, &payment.key)?;
    let (place, _) = append(rows, &mut session, Some(&mut turn), Fact::Payment(payment).into(), now)?;
    rows.put_turn(&turn)?;
    rows.put_session(&session)?;
    Ok(Some(place.seq))
}

/// Records why the authority did not accept the decision.
pub fn not_told(
    rows: &mut dyn Rows,
    turn: TurnId,
    payment: &ReplayKey,
    failure: Failure,
) -> Result<(), Error> {
    match owed_here(rows, turn, payment)? {
        Some(row) => rows.put_owed(&OwedRow { failure: Some(failure), ..row }),
        None => Ok(()),
    }
}

fn owed_here(rows: &dyn Rows, turn: TurnId, payment: &ReplayKey) -> Result<Option<OwedRow>, Error> {
    rows.access().need_everything()?;
    rows.owed_payment(turn_row(rows, turn)?.no, payment)
}
