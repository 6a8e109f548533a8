//! The rules of every write and read, implemented once for all engines.
//!
//! Each `pub` function is one unit of work, which the engine runs as one transaction. The rules include the fence
//! check, the gap-free sequence, the hash chain, claims and their settlement, waits and resolutions, the queue, and
//! the tree of messages. Callers see only rows of their organisation ([`crate::scoped`]). Permissions and audit
//! entries are handled here.
//!
//! Nothing here knows SQL, threads or time: `now` is an argument. [`crate::rows`] has the rows, and [`outlast_ports::store`]
//! the interface for callers.
mod archive;
mod budget;
mod configs;
mod external_content;
mod guard;
mod lookup;
mod notices;
mod orgs;
mod outbox;
mod outputs;
mod payment_outbox;
mod rate;
mod requests;
mod retry;
mod search;
mod tree;
mod turn;
mod votes;

pub use archive::{export_records, import, note_rerun, outlines};
pub use budget::{awaited_budgets, budgets, open_reservations, set_budget};
pub use configs::{config, config_versions, configs, delete_config, put_config, replace_config};
pub use external_content::{
    filter_unreferenced, forget_deleted, mark_for_deletion, unmark_for_deletion, unreferenced,
};
pub use guard::{begin_trial, claim_suspect, end_trial, has_suspect, report_hang, trial_pause, trial_window};
pub use lookup::{
    attached, attachment, attachments, blob, cancel_reason, completion_key, feed, forks, history, joinable,
    load, package, partial_reply, records, session, session_by_key, sessions, turn, turn_records, turns,
    unknown, value, value_names, verify, waiting,
};
pub use notices::send_due_notices;
pub use orgs::{audit, authenticate, create_key, create_org, keys, org, org_by_name, orgs_after, revoke_key};
pub use outbox::{
    collect, delivered, deliveries, delivery_schedule, redeliver, sinks, subscribe, undelivered,
};
pub use payment_outbox::{
    next_payment_due, pending_payments, record_payment_failure, record_payment_result, take_due_payments,
};
pub use rate::rates;
pub use requests::{request_turn_state, request_turns};
pub use retry::retry;
pub use search::find;
pub use tree::{delete, fork, rewind, settle};
pub use turn::{
    StopRequest, accept, agenda, cancel, claim, commit, has_work, next_wake, open, release_lease, renew,
    resolve,
};
pub use votes::{approval_progress, grants, revoke_grant, session_grants, vote};

use crate::rows::{LastEnded, RecordBody, RecordRow, Rows, SessionRow, SessionRows, TurnRow, TurnRows};
use outlast_ports::turns::TurnNo;
use outlast_views::SessionState;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::limits::INLINE_BYTES;
use outlast_vocab::record::{self, Fact, Seq, TurnEndKind};
use outlast_vocab::{Error, Hash, Kind, Millis, OrgId, SessionId, TurnId};

/// A fact with its encoded bytes. Callers encode facts before they reach the writer, because there is one writer and
/// many callers.
pub struct EncodedFact {
    fact: Fact,
    body: Vec<u8>,
}

impl From<Fact> for EncodedFact {
    fn from(fact: Fact) -> Self {
        let body = fact.encode();
        Self { fact, body }
    }
}

/// Appends a fact to a session with the next sequence number and chain hash. The caller writes the session row.
fn append(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: Option<&mut TurnRow>,
    draft: EncodedFact,
    now: Millis,
) -> Result<(JournalPosition, Fact), Error> {
    let EncodedFact { fact, body } = draft;
    let seq = Seq(session.last_seq.0 + 1);
    let turn_id = turn.as_ref().map(|turn| turn.id);
    let hash = record::chain_hash(&session.last_hash, seq, turn_id, now, &body);
    let node = fact.is_node();
    let body = if body.len() <= INLINE_BYTES {
        RecordBody::Inline(body)
    } else {
        let content = Hash::of(&body);
        rows.put_blob(content, &body)?;
        RecordBody::Blob(content)
    };
    let turn_no = turn.as_ref().map(|turn| turn.no);
    rows.append(&RecordRow { session: session.no, seq, turn: turn_no, at: now, node, hash, body })?;
    search::index_record(rows, session, seq, &fact)?;
    (session.last_seq, session.last_hash, session.updated) = (seq, hash, now);
    session.count(&fact);
    if let (true, Some(turn)) = (node, turn) {
        turn.last_node = seq;
    }
    Ok((JournalPosition { seq, hash }, fact))
}

impl SessionRow {
    /// Adds the cost of a fact.
    fn count(&mut self, fact: &Fact) {
        self.cost = self.cost.map(|cost| cost + fact.cost().unwrap_or_default());
    }

    /// Remembers how a turn ended, unless its input joined another turn.
    fn set_last_end(&mut self, turn: TurnNo, end: TurnEndKind) {
        if end != TurnEndKind::Joined {
            self.last_ended = Some(LastEnded { turn, end });
        }
    }
}

/// Creates a session without content.
fn empty_session(id: SessionId, org: OrgId, key: Option<String>, now: Millis) -> SessionRow {
    SessionRow {
        no: crate::rows::SessionNo(0),
        id,
        org,
        key,
        created: now,
        updated: now,
        state: SessionState::Idle,
        fence: outlast_ports::turns::Fence(0),
        worker: None,
        lease_until: Millis(0),
        wake_at: None,
        last_seq: Seq(0),
        last_hash: Hash::ZERO,
        turns: 0,
        active: None,
        queued: 0,
        guard: outlast_ports::turns::CrashGuard::default(),
        forked_from: None,
        imported: Seq(0),
        foreign: Seq(0),
        cost: Some(Cost::ZERO),
        last_ended: None,
    }
}

fn session_row(rows: &dyn SessionRows, id: SessionId) -> Result<SessionRow, Error> {
    rows.session_by_id(id)?
        .ok_or_else(|| Error::new(Kind::SessionNotFound, format!("no session has the id {id}")))
}

fn turn_row(rows: &dyn TurnRows, id: TurnId) -> Result<TurnRow, Error> {
    rows.turn_by_id(id)?.ok_or_else(|| Error::new(Kind::TurnNotFound, format!("no turn has the id {id}")))
}

/// Returns the row that another row refers to, or an error if it is missing.
fn required_row<T>(what: &str, row: Option<T>) -> Result<T, Error> {
    row.ok_or_else(|| Error::new(Kind::StoreCorrupt, format!("a row refers to a {what} that does not exist")))
}

fn turn_by_no(rows: &dyn TurnRows, no: TurnNo) -> Result<TurnRow, Error> {
    required_row("turn", rows.turn(no)?)
}
