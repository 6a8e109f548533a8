//! Converts values to columns and back. A column that cannot be converted back means that the database is
//! corrupt.
use outlast_ledger::rows::{
    AttachmentRow, BudgetAccountRow, ClaimRow, ConfigRow, DeletionMark, DeliveryRow, ExternalContentRow,
    GrantRow, KeyRow, LastEnded, NoticeRow, PartialRow, PendingPaymentRow, RecordAddress, RecordBody,
    RecordRow, ReservationRow, SessionNo, SessionRow, SinkRow, TurnRow, VoteRow,
};
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::{CrashGuard, Fence, TrialState, TurnNo};
use outlast_views::{AuditRow, BlobLocation, Org, RateView, SessionState, TurnState, Vote, WriteCount};
use outlast_vocab::approval::SentNotices;
use outlast_vocab::budget::Budget;
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{AttachmentId, CallId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::Attachment;
use outlast_vocab::rate::RateState;
use outlast_vocab::record::{ClaimRef, InputDelivery, Seq, TurnEndKind};
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Error, Hash, Millis};
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Result, Row};
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::time::Duration;

/// Encodes an id: 16 bytes in the same order as the id.
pub(super) fn id(raw: u128) -> [u8; 16] {
    raw.to_be_bytes()
}

/// Encodes a count or a time. Columns end at 2⁶³ − 1, which is larger than any real count or time. Larger
/// numbers mean "no limit" or "never".
pub(super) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Encodes a duration, in microseconds.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Encodes a number of rows.
pub(super) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// Encodes the position of a record, as two columns.
pub(super) fn node(node: Option<RecordAddress>) -> (Option<i64>, Option<i64>) {
    (node.map(|node| node.session.0), node.map(|node| count(node.seq.0)))
}

/// Encodes the state of a session. The schema's indexes and the statements contain these numbers.
pub(super) fn session_state(state: SessionState) -> i64 {
    match state {
        SessionState::Idle => 0,
        SessionState::Ready => 1,
        SessionState::Leased => 2,
        SessionState::Parked => 3,
        SessionState::Held => 4,
    }
}

/// Encodes the trial state of a session. The schema's index and the statements contain these numbers.
pub(super) fn trial(trial: TrialState) -> i64 {
    match trial {
        TrialState::NotOnTrial => 0,
        TrialState::Waits => 1,
        TrialState::Runs => 2,
        TrialState::Hung => 3,
    }
}

/// Encodes the state of a turn. The schema's indexes and the statements contain these numbers.
pub(super) fn turn_state(state: TurnState) -> i64 {
    match state {
        TurnState::Queued => 0,
        TurnState::Active => 1,
        TurnState::Ended => 2,
    }
}

/// Returns the owner of a session's messages, as in the full-text index.
pub(super) fn place(session: &SessionRow) -> String {
    crate::schema::place(session.org.to_u128(), session.no.0)
}

/// Encodes how an input is delivered.
pub(super) fn delivery(delivery: InputDelivery) -> i64 {
    match delivery {
        InputDelivery::Next => 0,
        InputDelivery::Join => 1,
    }
}

/// The columns of a session, in the order that [`read_session`] takes them.
macro_rules! session {
    ($rest:literal) => {
        concat!(
            "SELECT no, id, key, created, updated, state, fence, worker, lease_until, wake_at, last_seq, last_hash, ",
            "turns, active, queued, deaths, forked_session, forked_seq, org, imported, cost, deaths_alone, trial, ",
            "last_turn, last_end, foreign_seq ",
            "FROM sessions ",
            $rest
        )
    };
}

/// The columns of a turn, in the order that [`read_turn`] takes them.
macro_rules! turn {
    ($rest:literal) => {
        concat!(
            "SELECT no, id, session, place, key, input, delivery, head, state, accepted, last_node, parent_session, ",
            "parent_seq, ended, cancelled, commits, waited_us, retry_of FROM turns ",
            $rest
        )
    };
}

/// The columns of a record, in the order that [`read_record`] takes them.
macro_rules! record {
    ($rest:literal) => {
        concat!("SELECT pos, session, seq, turn, at, node, hash, body, blob FROM records ", $rest)
    };
}

/// The columns of a claim, in the order that [`read_claim`] takes them.
macro_rules! claim {
    ($rest:literal) => {
        concat!("SELECT session, asked, child, turn, call, fence, unknown, since FROM claims ", $rest)
    };
}

/// The columns of an attachment, in the order that [`read_attachment`] takes them.
macro_rules! attachment {
    ($rest:literal) => {
        concat!("SELECT session, id, content, media_type, name, bytes, outside FROM attachments ", $rest)
    };
}

/// The columns of a sink, in the order that [`read_sink`] takes them.
macro_rules! sink {
    ($rest:literal) => {
        concat!("SELECT name, since, cursor, delivered FROM sinks ", $rest)
    };
}

/// The columns of a version of an agent, a harness or a capability, in the order that [`read_config`] takes them.
macro_rules! config {
    ($rest:literal) => {
        concat!("SELECT org, kind, name, version, fingerprint, body, at FROM configs ", $rest)
    };
}

/// The columns of a delivery of an output, in the order that [`read_delivery_row`] takes them.
macro_rules! outgoing {
    ($rest:literal) => {
        concat!(
            "SELECT sink, turn, attempts, forgiven, due_at, worker, failure, seq, nth FROM deliveries ",
            $rest
        )
    };
}

/// The columns of an organisation, in the order that [`read_org`] takes them.
macro_rules! org {
    ($rest:literal) => {
        concat!("SELECT id, name, created FROM orgs ", $rest)
    };
}

/// The columns of an API key, in the order that [`read_key`] takes them.
macro_rules! key {
    ($rest:literal) => {
        concat!("SELECT id, org, principal, scopes, seal, created, expires, revoked FROM api_keys ", $rest)
    };
}

/// The columns of an audit entry, in the order that [`read_audit`] takes them.
macro_rules! act {
    ($rest:literal) => {
        concat!("SELECT no, at, org, principal, act, subject, detail FROM audit ", $rest)
    };
}

pub(super) use {act, attachment, claim, config, key, org, outgoing, record, session, sink, turn};

pub(super) fn read_session(row: &Row<'_>) -> Result<SessionRow> {
    Ok(SessionRow {
        no: SessionNo(row.get(0)?),
        id: SessionId::from_u128(read_id(row, 1)?),
        key: row.get(2)?,
        created: Millis(read_count(row, 3)?),
        updated: Millis(read_count(row, 4)?),
        state: read_session_state(row, 5)?,
        fence: Fence(read_count(row, 6)?),
        worker: row.get::<_, Option<[u8; 16]>>(7)?.map(|raw| WorkerId::from_u128(u128::from_be_bytes(raw))),
        lease_until: Millis(read_count(row, 8)?),
        wake_at: read_optional_count(row, 9)?.map(Millis),
        last_seq: Seq(read_count(row, 10)?),
        last_hash: read_hash(row, 11)?,
        turns: row.get(12)?,
        active: row.get::<_, Option<i64>>(13)?.map(TurnNo),
        queued: row.get(14)?,
        guard: CrashGuard { deaths: row.get(15)?, alone: row.get(21)?, trial: read_trial(row, 22)? },
        forked_from: read_node(row, 16)?,
        org: OrgId::from_u128(read_id(row, 18)?),
        imported: Seq(read_count(row, 19)?),
        cost: read_optional_count(row, 20)?.map(Cost::of_picodollars),
        last_ended: read_last_ended(row, 23)?,
        foreign: Seq(read_count(row, 25)?),
    })
}

/// Reads how the last turn of a session ended. Returns `None` for an end that only another version of the
/// program knows.
fn read_last_ended(row: &Row<'_>, at: usize) -> Result<Option<LastEnded>> {
    let (turn, end) = (row.get::<_, Option<i64>>(at)?, row.get::<_, Option<String>>(at + 1)?);
    let end = end.as_deref().and_then(TurnEndKind::from_name);
    Ok(turn.zip(end).map(|(turn, end)| LastEnded { turn: TurnNo(turn), end }))
}

pub(super) fn read_turn(row: &Row<'_>) -> Result<TurnRow> {
    Ok(TurnRow {
        no: TurnNo(row.get(0)?),
        id: TurnId::from_u128(read_id(row, 1)?),
        session: SessionNo(row.get(2)?),
        index: row.get(3)?,
        key: row.get(4)?,
        input: read_hash(row, 5)?,
        delivery: read_delivery(row, 6)?,
        head: row.get(7)?,
        state: read_turn_state(row, 8)?,
        accepted: Seq(read_count(row, 9)?),
        last_node: Seq(read_count(row, 10)?),
        parent: read_node(row, 11)?,
        ended: read_optional_count(row, 13)?.map(Seq),
        cancelled: row.get(14)?,
        writes: read_writes(row, 15)?,
        retry_of: row.get::<_, Option<i64>>(17)?.map(TurnNo),
    })
}

fn read_writes(row: &Row<'_>, at: usize) -> Result<Option<WriteCount>> {
    let (commits, waited) = (read_optional_count(row, at)?, read_optional_count(row, at + 1)?);
    Ok(commits
        .zip(waited)
        .map(|(commits, waited)| WriteCount { commits, waited: Duration::from_micros(waited) }))
}

pub(super) fn read_record(row: &Row<'_>) -> Result<(u64, RecordRow)> {
    let body = match row.get::<_, Option<Vec<u8>>>(7)? {
        Some(body) => RecordBody::Inline(body),
        None => RecordBody::Blob(read_hash(row, 8)?),
    };
    let record = RecordRow {
        session: SessionNo(row.get(1)?),
        seq: Seq(read_count(row, 2)?),
        turn: row.get::<_, Option<i64>>(3)?.map(TurnNo),
        at: Millis(read_count(row, 4)?),
        node: row.get(5)?,
        hash: read_hash(row, 6)?,
        body,
    };
    Ok((read_count(row, 0)?, record))
}

pub(super) fn read_claim(row: &Row<'_>) -> Result<ClaimRow> {
    Ok(ClaimRow {
        session: SessionNo(row.get(0)?),
        claim: ClaimRef { asked: Seq(read_count(row, 1)?), child: row.get(2)? },
        turn: TurnNo(row.get(3)?),
        call: CallId::from_u128(read_id(row, 4)?),
        fence: Fence(read_count(row, 5)?),
        unknown: row.get(6)?,
        since: Millis(read_count(row, 7)?),
    })
}

pub(super) fn read_attachment(row: &Row<'_>) -> Result<AttachmentRow> {
    let media_type: String = row.get(3)?;
    let attachment = Attachment {
        id: AttachmentId::from_u128(read_id(row, 1)?),
        content: read_hash(row, 2)?,
        media_type: media_type
            .try_into()
            .map_err(|cause: Error| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, cause.into()))?,
        name: row.get(4)?,
    };
    let lies = if row.get(6)? { BlobLocation::Outside } else { BlobLocation::Database };
    Ok(AttachmentRow {
        session: SessionNo(row.get(0)?),
        attachment,
        bytes: read_count(row, 5)?,
        location: lies,
    })
}

pub(super) fn read_external_content(row: &Row<'_>) -> Result<ExternalContentRow> {
    let condemned = match row.get::<_, Option<i64>>(3)? {
        Some(_) => Some(DeletionMark {
            worker: WorkerId::from_u128(read_id(row, 2)?),
            since: Millis(read_count(row, 3)?),
        }),
        None => None,
    };
    Ok(ExternalContentRow { content: read_hash(row, 0)?, uses: read_count(row, 1)?, deletion: condemned })
}

pub(super) fn read_sink(row: &Row<'_>) -> Result<SinkRow> {
    Ok(SinkRow {
        name: row.get(0)?,
        since: Millis(read_count(row, 1)?),
        cursor: read_count(row, 2)?,
        delivered: read_count(row, 3)?,
    })
}

pub(super) fn read_config(row: &Row<'_>) -> Result<ConfigRow> {
    let kind: String = row.get(1)?;
    Ok(ConfigRow {
        org: OrgId::from_u128(read_id(row, 0)?),
        kind: kind
            .parse()
            .map_err(|error: Error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.into()))?,
        name: row.get(2)?,
        version: row.get(3)?,
        fingerprint: read_hash(row, 4)?,
        body: row.get(5)?,
        at: Millis(read_count(row, 6)?),
    })
}

pub(super) fn read_delivery_row(row: &Row<'_>) -> Result<DeliveryRow> {
    let failure = match row.get_ref(6)? {
        ValueRef::Null => None,
        _ => Some(read_json(row, 6)?),
    };
    Ok(DeliveryRow {
        sink: row.get(0)?,
        turn: TurnNo(row.get(1)?),
        position: OutputPosition { seq: Seq(read_count(row, 7)?), nth: row.get(8)? },
        attempts: row.get(2)?,
        attempts_forgiven: row.get(3)?,
        due_at: read_optional_count(row, 4)?.map(Millis),
        worker: row.get::<_, Option<[u8; 16]>>(5)?.map(|raw| WorkerId::from_u128(u128::from_be_bytes(raw))),
        failure,
    })
}

/// The columns of a budget account.
macro_rules! purse {
    ($rest:literal) => {
        concat!("SELECT name, budget, spent, held, lost, standing, org, brought FROM purses ", $rest)
    };
}
pub(super) use purse;

fn read_budget(row: &Row<'_>, at: usize) -> Result<Option<Budget>> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        _ => read_json(row, at).map(Some),
    }
}

pub(super) fn read_budget_account(row: &Row<'_>) -> Result<BudgetAccountRow> {
    Ok(BudgetAccountRow {
        org: OrgId::from_u128(read_id(row, 6)?),
        name: row.get(0)?,
        operator_budget: read_budget(row, 1)?,
        agent_budget: read_budget(row, 7)?,
        spent: read_json(row, 2)?,
        reserved: read_json(row, 3)?,
        lost: read_json(row, 4)?,
        conversation_cost: read_json(row, 5)?,
    })
}

/// The columns of a rate limit.
macro_rules! rate {
    ($rest:literal) => {
        concat!(
            "SELECT org, name, every_us, burst, next_us, line_us, taken, refused, asked FROM rates ",
            $rest
        )
    };
}
pub(super) use rate;

pub(super) fn read_rate(row: &Row<'_>) -> Result<RateView> {
    Ok(RateView {
        org: OrgId::from_u128(read_id(row, 0)?),
        name: row.get(1)?,
        every: read_count(row, 2)?,
        burst: row.get(3)?,
        state: RateState { next: read_count(row, 4)?, queue_end: read_count(row, 5)? },
        taken: read_count(row, 6)?,
        refused: read_count(row, 7)?,
        asked: Millis(read_count(row, 8)?),
    })
}

pub(super) fn read_reservation(row: &Row<'_>) -> Result<ReservationRow> {
    Ok(ReservationRow {
        turn: TurnNo(row.get(0)?),
        key: read_json(row, 1)?,
        amount_max: read_json(row, 2)?,
        accounts: read_json(row, 3)?,
    })
}

pub(super) fn read_vote(row: &Row<'_>) -> Result<VoteRow> {
    let vote = Vote { by: row.get(2)?, at: Millis(read_count(row, 3)?), verdict: read_json(row, 4)? };
    Ok(VoteRow { turn: TurnNo(row.get(0)?), key: read_json(row, 1)?, vote })
}

/// The columns of an approval notice.
macro_rules! notice {
    ($rest:literal) => {
        concat!("SELECT turn, key, since, ask, reminded, escalated, due_at FROM notices ", $rest)
    };
}
pub(super) use notice;

pub(super) fn read_notice(row: &Row<'_>) -> Result<NoticeRow> {
    Ok(NoticeRow {
        turn: TurnNo(row.get(0)?),
        key: read_json(row, 1)?,
        since: Millis(read_count(row, 2)?),
        ask: read_json(row, 3)?,
        given: SentNotices { reminded: row.get(4)?, escalated: row.get(5)? },
        due_at: read_optional_count(row, 6)?.map(Millis),
    })
}

/// The columns of a payment that its authority has not accepted.
macro_rules! owed {
    ($rest:literal) => {
        concat!("SELECT turn, payment, since, attempts, due_at, failure FROM owed ", $rest)
    };
}
pub(super) use owed;

pub(super) fn read_pending_payment(row: &Row<'_>) -> Result<PendingPaymentRow> {
    Ok(PendingPaymentRow {
        turn: TurnNo(row.get(0)?),
        payment: read_json(row, 1)?,
        since: Millis(read_count(row, 2)?),
        attempts: row.get(3)?,
        due_at: Millis(read_count(row, 4)?),
        failure: read_json(row, 5)?,
    })
}

/// The columns of a grant.
macro_rules! grant {
    ($rest:literal) => {
        concat!("SELECT id, session, form, tool, rule, labels, granters, at FROM grants ", $rest)
    };
}
pub(super) use grant;

pub(super) fn read_grant(row: &Row<'_>) -> Result<GrantRow> {
    Ok(GrantRow {
        id: GrantId::from_u128(read_id(row, 0)?),
        session: SessionNo(row.get(1)?),
        form: read_hash(row, 2)?,
        tool: read_parsed(row, 3)?,
        rule: read_parsed(row, 4)?,
        labels: read_json(row, 5)?,
        by: read_json(row, 6)?,
        at: Millis(read_count(row, 7)?),
    })
}

/// Returns the name of a wait kind in JSON.
pub(super) fn wait_kind(kind: WaitKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(kind)) => kind,
        _ => String::new(),
    }
}

pub(super) fn read_org(row: &Row<'_>) -> Result<Org> {
    let created = Millis(read_count(row, 2)?);
    Ok(Org { id: OrgId::from_u128(read_id(row, 0)?), name: read_parsed(row, 1)?, created })
}

pub(super) fn read_key(row: &Row<'_>) -> Result<KeyRow> {
    Ok(KeyRow {
        id: KeyId::from_u128(read_id(row, 0)?),
        org: OrgId::from_u128(read_id(row, 1)?),
        by: read_parsed(row, 2)?,
        scopes: read_parsed(row, 3)?,
        seal: read_hash(row, 4)?,
        created: Millis(read_count(row, 5)?),
        expires: read_optional_count(row, 6)?.map(Millis),
        revoked: read_optional_count(row, 7)?.map(Millis),
    })
}

pub(super) fn read_audit(row: &Row<'_>) -> Result<AuditRow> {
    Ok(AuditRow {
        no: read_count(row, 0)?,
        at: Millis(read_count(row, 1)?),
        org: OrgId::from_u128(read_id(row, 2)?),
        by: read_parsed(row, 3)?,
        act: row.get(4)?,
        subject: row.get(5)?,
        detail: row.get(6)?,
    })
}

/// Reads a value that is stored in its text form.
fn read_parsed<T: FromStr<Err = Error>>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse()
        .map_err(|cause: Error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, cause.into()))
}

pub(super) fn read_partial(row: &Row<'_>) -> Result<PartialRow> {
    Ok(PartialRow {
        turn: TurnNo(row.get(0)?),
        start: usize::try_from(read_count(row, 1)?).unwrap_or(usize::MAX),
        key: read_json(row, 2)?,
        attempt: row.get(3)?,
        text: row.get(4)?,
    })
}

pub(super) fn read_id(row: &Row<'_>, column: usize) -> Result<u128> {
    row.get(column).map(u128::from_be_bytes)
}

pub(super) fn read_count(row: &Row<'_>, column: usize) -> Result<u64> {
    read_optional_count(row, column)?.ok_or_else(|| unknown_number(column, 0))
}

pub(super) fn read_optional_count(row: &Row<'_>, column: usize) -> Result<Option<u64>> {
    let found: Option<i64> = row.get(column)?;
    found.map(|number| u64::try_from(number).map_err(|_| unknown_number(column, number))).transpose()
}

pub(super) fn read_hash(row: &Row<'_>, column: usize) -> Result<Hash> {
    row.get(column).map(Hash::from_bytes)
}

/// Reads the position of a record from this column and the next.
pub(super) fn read_node(row: &Row<'_>, column: usize) -> Result<Option<RecordAddress>> {
    let session: Option<i64> = row.get(column)?;
    let seq = read_optional_count(row, column + 1)?;
    Ok(session.zip(seq).map(|(session, seq)| RecordAddress { session: SessionNo(session), seq: Seq(seq) }))
}

/// Reads a value that is stored as JSON.
pub(super) fn read_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text)
        .map_err(|cause| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, cause.into()))
}

fn read_session_state(row: &Row<'_>, column: usize) -> Result<SessionState> {
    match row.get(column)? {
        0 => Ok(SessionState::Idle),
        1 => Ok(SessionState::Ready),
        2 => Ok(SessionState::Leased),
        3 => Ok(SessionState::Parked),
        4 => Ok(SessionState::Held),
        other => Err(unknown_number(column, other)),
    }
}

fn read_trial(row: &Row<'_>, column: usize) -> Result<TrialState> {
    match row.get(column)? {
        0 => Ok(TrialState::NotOnTrial),
        1 => Ok(TrialState::Waits),
        2 => Ok(TrialState::Runs),
        3 => Ok(TrialState::Hung),
        other => Err(unknown_number(column, other)),
    }
}

fn read_turn_state(row: &Row<'_>, column: usize) -> Result<TurnState> {
    match row.get(column)? {
        0 => Ok(TurnState::Queued),
        1 => Ok(TurnState::Active),
        2 => Ok(TurnState::Ended),
        other => Err(unknown_number(column, other)),
    }
}

fn read_delivery(row: &Row<'_>, column: usize) -> Result<InputDelivery> {
    match row.get(column)? {
        0 => Ok(InputDelivery::Next),
        1 => Ok(InputDelivery::Join),
        other => Err(unknown_number(column, other)),
    }
}

fn unknown_number(column: usize, number: i64) -> rusqlite::Error {
    rusqlite::Error::IntegralValueOutOfRange(column, number)
}
