//! Sends reminders and escalations for pending approval requests, each once.
//!
//! A notice and its record are one write. So a crash neither repeats nor loses a notice. A notice is due only while
//! its turn waits for the decision.
use super::{append, lookup, required_row, turn_by_no};
use crate::rows::{ApprovalRows, ApprovalWrites, NoticeRow, ReadRows, Rows, SessionRow, TurnRow};
use outlast_ports::turns::TurnNo;
use outlast_ports::votes::{SentNotice, call_awaiting_approval};
use outlast_views::SessionState;
use outlast_vocab::approval::SentNotices;
use outlast_vocab::policy::{ApprovalRequirement, PolicyDecision};
use outlast_vocab::record::Fact;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Millis, ReplayKey};

/// Schedules the notices for the approvals that a turn waits for, and deletes those it no longer waits for.
pub(super) fn schedule_notices(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    waits: &[Wait],
    now: Millis,
) -> Result<(), Error> {
    let mut there = rows.notices(turn.no)?;
    let mut approvals = waits.iter().filter(|wait| wait.kind == WaitKind::Approval).peekable();
    if approvals.peek().is_none() && there.is_empty() {
        return Ok(());
    }
    for Wait { key, .. } in approvals {
        let row = match there.iter().position(|row| row.key == *key) {
            Some(known) => Some(there.swap_remove(known)),
            None => ask_of(rows, session, turn, key)?.map(|ask| NoticeRow {
                turn: turn.no,
                key: key.clone(),
                since: now,
                ask,
                given: SentNotices::default(),
                due_at: None,
            }),
        };
        if let Some(row) = row {
            let due_at = row.ask.next_notice(row.since, row.given, u32::MAX);
            rows.put_notice(&NoticeRow { due_at, ..row })?;
        }
    }
    there.iter().try_for_each(|stale| delete_notices(rows, turn.no, &stale.key))
}

/// Returns who is asked, if the request has reminders or an escalation.
fn ask_of(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
    key: &ReplayKey,
) -> Result<Option<ApprovalRequirement>, Error> {
    let records = lookup::of_turn(rows, session, turn)?;
    let call =
        records.into_iter().find_map(|record| call_awaiting_approval(record, key)).map(|(_, call)| call);
    Ok(call.and_then(|call| match call.ruling?.decision {
        PolicyDecision::Ask(ask) if ask.remind.is_some() || ask.escalate.is_some() => Some(ask),
        _ => None,
    }))
}

/// Deletes the notices of a request that is decided or has changed.
pub(super) fn delete_notices(
    rows: &mut dyn ApprovalWrites,
    turn: TurnNo,
    key: &ReplayKey,
) -> Result<(), Error> {
    rows.delete_notice(turn, key)
}

/// Returns the notices of a request that were already sent.
pub(super) fn sent_notices(
    rows: &dyn ApprovalRows,
    turn: TurnNo,
    key: &ReplayKey,
) -> Result<SentNotices, Error> {
    let found = rows.notices(turn)?.into_iter().find(|row| row.key == *key);
    Ok(found.map(|row| row.given).unwrap_or_default())
}

/// Sends the notices that are due. Several reminders that became due without a running worker are sent as one.
pub fn send_due_notices(
    rows: &mut dyn Rows,
    now: Millis,
    reminders_most: u32,
    limit: usize,
) -> Result<Vec<SentNotice>, Error> {
    rows.access().require_operator()?;
    let mut noticed = Vec::new();
    for row in rows.notices_due(now, limit)? {
        let mut turn = turn_by_no(rows, row.turn)?;
        let mut session = required_row("session", rows.session(turn.session)?)?;
        let waits = rows.waits(turn.no)?.iter().any(|wait| wait.key == row.key);
        if session.state != SessionState::Parked || session.active != Some(turn.no) || !waits {
            rows.put_notice(&NoticeRow { due_at: None, ..row })?;
            continue;
        }
        let NoticeRow { key, since, ask, mut given, .. } = row;
        if ask.escalates_at(since, given).is_some_and(|at| at <= now) {
            given.escalated = true;
            let to = ask.escalate.as_ref().map(|escalation| escalation.to.clone()).unwrap_or_default();
            let fact = Fact::Escalated { key: key.clone(), to };
            append(rows, &mut session, Some(&mut turn), fact.into(), now)?;
        }
        let number = ask.reminders_due(since, now, reminders_most);
        if number > given.reminded {
            given.reminded = number;
            let fact = Fact::Reminded { key: key.clone(), number };
            append(rows, &mut session, Some(&mut turn), fact.into(), now)?;
        }
        let due_at = ask.next_notice(since, given, reminders_most);
        rows.put_notice(&NoticeRow { turn: turn.no, key, since, ask, given, due_at })?;
        rows.put_turn(&turn)?;
        rows.put_session(&session)?;
        noticed.push(SentNotice { session: session.id, last: session.last_seq });
    }
    Ok(noticed)
}
