//! Derives outputs from the records of a turn: how it ended, and which approvals it requests.
//!
//! An approval request is an output once, although its turn may park on it repeatedly. The first record that names
//! the wait produces the output.
use super::{lookup, required_row};
use crate::rows::{ReadRows, RecordRow, SessionRow, TurnRow};
use outlast_ports::outbox::SinkSubscription;
use outlast_ports::sink::{ApprovalNotice, ApprovalRequest, OutputEvent, OutputPosition};
use outlast_ports::votes::call_awaiting_approval;
use outlast_views::SinkTopic;
use outlast_vocab::approval::approval_id;
use outlast_vocab::policy::PolicyDecision;
use outlast_vocab::record::{Fact, Record, Seq};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Kind, ReplayKey};

/// Returns the events in a record that a sink subscribes to.
pub(super) fn moments(
    rows: &dyn ReadRows,
    wanted: &SinkSubscription,
    session: &SessionRow,
    turn: &TurnRow,
    record: RecordRow,
) -> Result<Vec<OutputPosition>, Error> {
    let seq = record.seq;
    if turn.ended == Some(seq) {
        let wants_end = wanted.wants_end(&lookup::end_of(rows, turn)?);
        return Ok(wants_end.then_some(OutputPosition { seq, nth: 0 }).into_iter().collect());
    }
    // Only sinks that subscribe to approvals pay for decoding every record.
    if wanted.on.iter().all(|topic| *topic == SinkTopic::TurnEnded) {
        return Ok(Vec::new());
    }
    let positions = match lookup::decode(rows, record, Some(turn.id))?.fact {
        Fact::Parked { waits } => first_named_approvals(rows, session, turn, seq, &waits)?,
        Fact::Reminded { .. } | Fact::Escalated { .. } => vec![0],
        _ => Vec::new(),
    };
    let mut moments = Vec::new();
    for nth in positions {
        let moment = OutputPosition { seq, nth };
        if wanted.on.contains(&output_event(rows, session, turn, moment)?.topic()) {
            moments.push(moment);
        }
    }
    Ok(moments)
}

/// Returns which of a turn's waits are approval requests that this record is the first to name.
fn first_named_approvals(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
    seq: Seq,
    waits: &[Wait],
) -> Result<Vec<u32>, Error> {
    let questions = || (0..).zip(waits).filter(|(_, wait)| wait.kind == WaitKind::Approval);
    if questions().next().is_none() {
        return Ok(Vec::new());
    }
    let records = lookup::of_turn(rows, session, turn)?;
    let is_new = |wait: &Wait| {
        first_wait(&records, &wait.key).is_some_and(|(first, _)| first == seq)
            && records.iter().any(|record| call_awaiting_approval(record.clone(), &wait.key).is_some())
    };
    Ok(questions().filter(|(_, wait)| is_new(wait)).map(|(nth, _)| nth).collect())
}

/// Returns the wait with this key, and the record that first names it.
pub(super) fn first_wait<'a>(records: &'a [Record], key: &ReplayKey) -> Option<(Seq, &'a Wait)> {
    records.iter().find_map(|record| match &record.fact {
        Fact::Parked { waits } => waits.iter().find(|wait| wait.key == *key).map(|wait| (record.seq, wait)),
        _ => None,
    })
}

/// Returns the output of a turn for an event.
pub(super) fn output_event(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
    moment: OutputPosition,
) -> Result<OutputEvent, Error> {
    if turn.ended == Some(moment.seq) {
        return lookup::end_of(rows, turn).map(OutputEvent::Ended);
    }
    let records = lookup::of_turn(rows, session, turn)?;
    let record = required_row("record", records.iter().find(|record| record.seq == moment.seq))?;
    let (notice, key) = match &record.fact {
        Fact::Parked { waits } => {
            (ApprovalNotice::Requested, required_row("wait", waits.get(moment.nth as usize))?.key.clone())
        }
        Fact::Reminded { key, number } => (ApprovalNotice::Reminded { number: *number }, key.clone()),
        Fact::Escalated { key, to } => (ApprovalNotice::Escalated { to: to.clone() }, key.clone()),
        other => {
            let detail = format!(
                "the record {} of {} is `{}`, which is not delivered",
                moment.seq,
                turn.id,
                other.name()
            );
            return Err(Error::new(Kind::RecordCorrupt, detail));
        }
    };
    let request = required_row("question", approval_request(&records, turn, &key, moment.seq))?;
    Ok(OutputEvent::Approval(notice, Box::new(request)))
}

/// Returns the approval request of a wait, as it was when this record was written.
fn approval_request(records: &[Record], turn: &TurnRow, key: &ReplayKey, by: Seq) -> Option<ApprovalRequest> {
    let (since, call) = records.iter().find_map(|record| call_awaiting_approval(record.clone(), key))?;
    let PolicyDecision::Ask(ask) = call.ruling.as_ref()?.decision.clone() else { return None };
    let expires = first_wait(records, key).and_then(|(_, wait)| wait.deadline);
    let mut who = ask.who.clone();
    for record in records.iter().take_while(|record| record.seq <= by) {
        if let Fact::Escalated { key: escalated, to } = &record.fact
            && escalated == key
        {
            who.extend(to.iter().filter(|name| !ask.who.contains(name)).cloned());
        }
    }
    Some(ApprovalRequest {
        id: approval_id(turn.id, key),
        form: key.approved_form()?,
        call,
        requirement: ask,
        who,
        since,
        expires,
        links: Vec::new(),
    })
}
