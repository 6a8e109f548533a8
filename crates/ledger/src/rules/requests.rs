//! Finds the turns that requests without an idempotency key started, so that a repeated request can join its turn.
use super::{lookup, required_row, turn_row};
use crate::rows::{QueryRows, TurnRow};
use outlast_ports::queries::{RequestTurnState, RequestTurns};
use outlast_ports::turns::TurnNo;
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Hash, TurnId};

/// Returns the turns of requests among `limit` turns after a number, or among the newest turns.
pub fn request_turns(
    rows: &dyn QueryRows,
    after: Option<TurnNo>,
    limit: usize,
) -> Result<RequestTurns, Error> {
    let newest = rows.newest_turn()?;
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let after = after.unwrap_or(TurnNo(newest.0.saturating_sub(limit_rows).max(0)));
    let read = rows.turns_after(after, limit)?;
    let through = read.last().map_or(after, |row| row.no);
    let turns = read.iter().filter(|row| is_of_request(row)).map(|row| (row.id, row.input)).collect();
    Ok(RequestTurns { turns, through, has_more: through < newest })
}

/// Returns whether a request without a key started a turn here. Imported turns have no clients.
fn is_of_request(row: &TurnRow) -> bool {
    row.key.is_none() && row.input != Hash::ZERO && row.writes.is_some()
}

/// Returns how far a turn is that a request started.
pub fn request_turn_state(rows: &dyn QueryRows, turn: TurnId) -> Result<RequestTurnState, Error> {
    let turn = turn_row(rows, turn)?;
    let record = |seq| -> Result<_, Error> { required_row("record", lookup::one(rows, turn.session, seq)?) };
    let accepted = lookup::decode(rows, record(turn.accepted)?, Some(turn.id))?.fact;
    let worker = match accepted {
        Fact::Accepted(accepted) => accepted.worker,
        _ => None,
    };
    // Without a name, the process may be any, so its client may be connected.
    let is_acceptor_running = worker.map(|worker| rows.is_running(worker)).transpose()?.unwrap_or(true);
    let ended = turn.ended.map(record).transpose()?.map(|row| row.at);
    Ok(RequestTurnState { is_acceptor_running, ended })
}
