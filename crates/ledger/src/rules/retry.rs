//! Accepts the retry of an ended turn: a new turn with the original's input, in the original's place or in a fork.
use super::orgs::{AuditedAction, audit_action};
use super::tree::{fork_session, move_head};
use super::turn::{NewTurn, add_turn};
use super::{lookup, required_row, turn_by_no, turn_row};
use crate::rows::{ReadRows, RecordAddress, Rows, SessionRow, TurnRow};
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::inbox::{AcceptReceipt, RetryRequest};
use outlast_views::TurnState;
use outlast_vocab::access::{AuditAction, Scope};
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::record::{self, Fact, InputDelivery, TurnEnd};
use outlast_vocab::{Error, Hash, Kind};

/// Retries a turn that ended. If a retry of it is running or was answered, that retry is returned. If the retry ended
/// without an answer too, it is the one that is retried.
pub fn retry(rows: &mut dyn Rows, retry: RetryRequest) -> Result<AcceptReceipt, Error> {
    rows.access().require(Scope::Run)?;
    let mut original = turn_row(rows, retry.turn)?;
    while let Some(newer) = rows.last_retry(original.no)? {
        if newer.state != TurnState::Ended || !lookup::end_of(rows, &newer)?.kind().is_retryable() {
            return duplicate(rows, &newer);
        }
        original = newer;
    }
    check_end(rows, &original)?;
    let session = required_row("session", rows.session(original.session)?)?;
    check_origin(&session, &original)?;
    let action = AuditedAction {
        act: AuditAction::Retry,
        org: session.org,
        subject: &original.id,
        detail: format!("as {}", retry.fresh),
    };
    audit_action(rows, action, retry.now)?;
    let (session, head, stands) = if let Some(fresh) = retry.fork {
        let node = if has_begun(&original) {
            original.parent
        } else {
            required_row("head", rows.head(session.no, &original.head)?)?
        };
        let fork = fork_session(rows, &session, node, fresh, retry.now)?;
        (fork, MAIN_HEAD.to_owned(), node)
    } else {
        let (session, stands) = rewind_head(rows, session, &original, &retry)?;
        (session, original.head.clone(), stands)
    };
    let row = required_row("record", lookup::one(rows, original.session, original.accepted)?)?;
    let Fact::Accepted(input) = lookup::decode(rows, row, Some(original.id))?.fact else {
        let detail = format!("the first record of {} is not its input", original.id);
        return Err(Error::new(Kind::RecordCorrupt, detail));
    };
    // The original's key is in use, and a repeated request continues the original. An input that joined a turn now
    // begins one.
    let accepted = record::TurnAccepted {
        key: None,
        delivery: InputDelivery::Next,
        retry_of: Some(original.id),
        request: None,
        worker: None,
        ..input
    };
    let new = NewTurn {
        id: retry.fresh,
        input: Hash::ZERO,
        head,
        head_node: stands,
        retry_of: Some(original.no),
        accepted,
    };
    add_turn(rows, session, new, retry.lease_request, None, retry.now)
}

/// Refuses a turn that was imported without a signature of this database. The file determines which input, replies
/// and agent the retry would use.
fn check_origin(session: &SessionRow, turn: &TurnRow) -> Result<(), Error> {
    if turn.accepted > session.foreign {
        return Ok(());
    }
    let detail = format!("{} was imported from elsewhere; send the input again", turn.id);
    Err(Error::new(Kind::TurnNotRetryable, detail))
}

fn check_end(rows: &dyn ReadRows, turn: &TurnRow) -> Result<(), Error> {
    if turn.state != TurnState::Ended {
        let detail = format!("{} has not ended; only a turn that ended is retried as a new turn", turn.id);
        return Err(Error::new(Kind::TurnNotRetryable, detail));
    }
    let end = lookup::end_of(rows, turn)?;
    if end.kind().is_retryable() {
        return Ok(());
    }
    let instead = match &end {
        TurnEnd::Joined { into } => format!("its input joined {into}; retry that turn"),
        _ => "send the input again".to_owned(),
    };
    let detail = format!(
        "{} ended as {}; expected failed, cancelled, sealed or out_of_budget; {instead}",
        turn.id,
        end.name()
    );
    Err(Error::new(Kind::TurnNotRetryable, detail))
}

fn duplicate(rows: &dyn ReadRows, turn: &TurnRow) -> Result<AcceptReceipt, Error> {
    let session = required_row("session", rows.session(turn.session)?)?;
    let record = required_row("record", lookup::one(rows, session.no, turn.accepted)?)?;
    let place = JournalPosition { seq: record.seq, hash: record.hash };
    Ok(AcceptReceipt { session: session.id, turn: turn.id, duplicate: true, place, work: None })
}

/// Moves the head back to the message before the original's input, so that the model sees the input once.
fn rewind_head(
    rows: &mut dyn Rows,
    mut session: SessionRow,
    original: &TurnRow,
    retry: &RetryRequest,
) -> Result<(SessionRow, Option<RecordAddress>), Error> {
    if session.queued as usize >= retry.queued_most {
        let most = retry.queued_most;
        let detail = format!("queued_inputs is limited to {most}, and so many are queued for {}", session.id);
        return Err(Error::new(Kind::QueueFull, detail));
    }
    let stands = required_row("head", rows.head(session.no, &original.head)?)?;
    if let Some(later) = later_turn(rows, &session, original, stands)? {
        let detail = format!(
            "{} is not the last turn of the head `{}` ({later}); ask for a fork to retry it in a session of its own",
            original.id, original.head
        );
        return Err(Error::new(Kind::TurnSuperseded, detail));
    }
    if !has_begun(original) {
        return Ok((session, stands));
    }
    move_head(rows, &mut session, &original.head, original.parent, retry.now)?;
    Ok((session, original.parent))
}

fn has_begun(turn: &TurnRow) -> bool {
    turn.last_node.0 > 0
}

/// Describes what came after a turn on its head. Returns `None` if the head is where the turn left it.
fn later_turn(
    rows: &dyn ReadRows,
    session: &SessionRow,
    original: &TurnRow,
    stands: Option<RecordAddress>,
) -> Result<Option<String>, Error> {
    let mut waiting = rows.queued(session.no, usize::MAX)?;
    waiting.extend(session.active.map(|no| turn_by_no(rows, no)).transpose()?);
    if let Some(turn) = waiting.iter().find(|turn| turn.head == original.head) {
        return Ok(Some(format!("{} is running or queued there", turn.id)));
    }
    let last = match stands {
        Some(node) => {
            let row = required_row("record", lookup::one(rows, node.session, node.seq)?)?;
            Some(turn_by_no(rows, required_row("turn", row.turn)?)?)
        }
        None => None,
    };
    Ok(match last {
        Some(turn) if turn.no == original.no => None,
        Some(turn) if has_begun(original) => Some(format!("that head is now at {}", turn.id)),
        Some(turn) if turn.session == session.no && turn.index > original.index => {
            Some(format!("{} came after it", turn.id))
        }
        None if has_begun(original) => Some("that head was moved to its beginning".to_owned()),
        Some(_) | None => None,
    })
}
