//! Reads records, history, sessions, turns and content.
use super::{required_row, session_row, turn_by_no, turn_row};
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{
    AttachmentRow, ClaimRow, ContentRows, JournalRows, LastEnded, PartialRow, QueryRows, ReadRows,
    RecordAddress, RecordBody, RecordRange, RecordRow, SessionNo, SessionRow, SessionRows, TurnRow, TurnRows,
};
use outlast_ports::journal::{FeedCursor, FeedRecord};
use outlast_ports::page::Page;
use outlast_ports::queries::StoreLoad;
use outlast_ports::turns::{PartialReplyText, TurnNo};
use outlast_views::{
    AttachmentView, HistoryTurn, LastEnd, LastTurn, SessionState, SessionView, TurnState, TurnView,
    UnknownCall, WaitingTurn,
};
use outlast_vocab::access::Scope;
use outlast_vocab::effect::{BatchCall, Command, JournalPosition};
use outlast_vocab::id::{AttachmentId, CallId};
use outlast_vocab::message::Part;
use outlast_vocab::package::StoredPackage;
use outlast_vocab::record::{self, EffectRequested, Fact, NodeRef, Record, Seq, TurnEnd, TurnEndKind};
use outlast_vocab::wait::{CompletionKey, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey, SessionId, TurnId, canonical_json};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The maximum number of sessions that [`load`] counts.
const COUNTED: usize = 1_000;

/// Returns the records of a session after a cursor.
pub fn records(
    rows: &dyn ReadRows,
    session: SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<Record>, Error> {
    let session = session_row(rows, session)?;
    let mut names = TurnNames::default();
    let range = RecordRange { from: Seq(after.0.saturating_add(1)), limit, ..full_range(&session) };
    rows.records(range)?.into_iter().map(|row| names.record(rows, row)).collect()
}

/// Returns the records of one turn.
pub fn turn_records(rows: &dyn ReadRows, turn: TurnId) -> Result<Vec<Record>, Error> {
    let turn = turn_row(rows, turn)?;
    let session = required_row("session", rows.session(turn.session)?)?;
    of_turn(rows, &session, &turn)
}

/// Returns the records of one turn. The cost depends on the turn, not on the length of the session after it.
pub(super) fn of_turn(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
) -> Result<Vec<Record>, Error> {
    let to = turn.ended.map_or(session.last_seq, |ended| ended.max(turn.last_node));
    let range = RecordRange { turn: Some(turn.no), from: turn.accepted, to, ..full_range(session) };
    let read = |range| {
        let rows_of_turn = rows.records(range)?.into_iter();
        rows_of_turn.map(|row| decode(rows, row, Some(turn.id))).collect::<Result<Vec<_>, Error>>()
    };
    let mut records = read(range)?;
    // The end of a payment may be recorded anywhere after the turn's end. Few turns leave a payment open.
    if to < session.last_seq && has_open_payment(&records) {
        let rest = RecordRange { from: Seq(to.0 + 1), to: session.last_seq, ..range };
        records.extend(read(rest)?);
    }
    Ok(records)
}

/// Returns whether a payment has no end among the records of its turn.
fn has_open_payment(records: &[Record]) -> bool {
    let mut left = BTreeSet::new();
    for record in records {
        match &record.fact {
            Fact::Payment(payment) if payment.state.is_over() => drop(left.remove(&payment.key)),
            Fact::Payment(payment) => drop(left.insert(&payment.key)),
            _ => {}
        }
    }
    !left.is_empty()
}

/// Returns records of all visible sessions after a cursor.
pub fn feed(rows: &dyn ReadRows, after: FeedCursor, limit: usize) -> Result<Vec<FeedRecord>, Error> {
    let mut names = TurnNames::default();
    let mut sessions: BTreeMap<SessionNo, SessionId> = BTreeMap::new();
    let mut out = Vec::new();
    for (position, row) in rows.feed(rows.access().visibility, after.0, limit)? {
        let session = match sessions.get(&row.session) {
            Some(id) => *id,
            None => required_row("session", rows.session(row.session)?)?.id,
        };
        sessions.insert(row.session, session);
        let record = names.record(rows, row)?;
        out.push(FeedRecord { cursor: FeedCursor(position), session, record });
    }
    Ok(out)
}

/// Returns the turns up to and including this message, newest first, until `bytes` of records are read. The cost
/// depends on what is read, not on the length of the session.
pub fn history(rows: &dyn ReadRows, node: NodeRef, bytes: usize) -> Result<Vec<HistoryTurn>, Error> {
    let mut turns = Vec::new();
    let mut read = 0;
    let mut next = Some(message(rows, &session_row(rows, node.session)?, node.seq)?);
    while let Some(RecordAddress { session, seq }) = next {
        let row = required_row("record", one(rows, session, seq)?)?;
        let turn = turn_by_no(rows, required_row("turn", row.turn)?)?;
        let range = RecordRange {
            session,
            turn: Some(turn.no),
            nodes_only: true,
            from: turn.accepted,
            to: turn.last_node,
            limit: usize::MAX,
        };
        let mut records = Vec::new();
        for row in rows.records(range)? {
            let (seq, at, hash) = (row.seq, row.at, row.hash);
            let body = body_of(rows, row.body)?;
            read += body.len();
            records.push(Record { seq, turn: Some(turn.id), at, hash, fact: Fact::decode(&body)? });
        }
        if read > bytes && !turns.is_empty() {
            break;
        }
        turns.push(HistoryTurn { records, last_in_branch: seq });
        next = turn.parent;
    }
    Ok(turns)
}

/// Returns the address of a message: a record of a begun turn that is part of the transcript.
pub(super) fn message(rows: &dyn ReadRows, session: &SessionRow, seq: Seq) -> Result<RecordAddress, Error> {
    let row = one(rows, session.no, seq)?.filter(|row| row.node);
    let turn = row.and_then(|row| row.turn).map(|no| turn_by_no(rows, no)).transpose()?;
    if turn.is_some_and(|turn| seq <= turn.last_node) {
        return Ok(RecordAddress { session: session.no, seq });
    }
    let detail = format!(
        "session {} has no message at {seq}; `outlast sessions show {}` lists them",
        session.id, session.id
    );
    Err(Error::new(Kind::NodeNotFound, detail))
}

/// Returns the inputs that are queued to join the running turn, in order of arrival.
pub fn joinable(rows: &dyn ReadRows, session: SessionId) -> Result<Vec<(TurnId, Vec<Part>)>, Error> {
    let session = session_row(rows, session)?;
    let mut inputs = Vec::new();
    let Some(active) = session.active else { return Ok(inputs) };
    let head = turn_by_no(rows, active)?.head;
    for turn in rows.queued(session.no, usize::MAX)? {
        if turn.joins(&head) {
            let row = required_row("record", one(rows, session.no, turn.accepted)?)?;
            if let Fact::Accepted(accepted) = decode(rows, row, Some(turn.id))?.fact {
                inputs.push((turn.id, accepted.parts));
            }
        }
    }
    Ok(inputs)
}

/// Recomputes the hash chain of a session from its rows, and returns the number of records.
pub fn verify(rows: &dyn ReadRows, session: SessionId) -> Result<u64, Error> {
    const PAGE: usize = 256;
    let session = session_row(rows, session)?;
    let mut names = TurnNames::default();
    let mut end = JournalPosition { seq: Seq(0), hash: Hash::ZERO };
    loop {
        let page =
            rows.records(RecordRange { from: Seq(end.seq.0 + 1), limit: PAGE, ..full_range(&session) })?;
        if page.is_empty() {
            break;
        }
        for row in page {
            let expected = Seq(end.seq.0 + 1);
            if row.seq != expected {
                return Err(broken(&session, expected, &format!("the next one found is {}", row.seq)));
            }
            let turn = row.turn.map(|no| names.id(rows, no)).transpose()?;
            let (seq, at, hash, node) = (row.seq, row.at, row.hash, row.node);
            let body = body_of(rows, row.body)?;
            if record::chain_hash(&end.hash, seq, turn, at, &body) != hash {
                return Err(broken(&session, seq, "its content does not match its hash"));
            }
            if Fact::decode(&body)?.is_node() != node {
                return Err(broken(&session, seq, "its kind does not match its content"));
            }
            end = JournalPosition { seq, hash };
        }
    }
    if end != (JournalPosition { seq: session.last_seq, hash: session.last_hash }) {
        return Err(broken(
            &session,
            Seq(end.seq.0 + 1),
            &format!("the session's last record is {}", session.last_seq),
        ));
    }
    Ok(end.seq.0)
}

fn broken(session: &SessionRow, seq: Seq, how: &str) -> Error {
    let at = outlast_vocab::ErrorPlace { session: Some(session.id), ..outlast_vocab::ErrorPlace::default() };
    Error::new(Kind::RecordCorrupt, format!("record {seq} breaks the chain: {how}")).at(at)
}

/// Returns sessions, newest first.
pub fn sessions(
    rows: &dyn QueryRows,
    before: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionView>, Error> {
    let before = before.map(|id| session_row(rows, id)).transpose()?.map(|session| session.no);
    let visibility = rows.access().visibility;
    rows.sessions(visibility, before, limit)?.into_iter().map(|session| session_view(rows, session)).collect()
}

/// Returns one session.
pub fn session(rows: &dyn ReadRows, id: SessionId) -> Result<SessionView, Error> {
    session_view(rows, session_row(rows, id)?)
}

/// Returns the session with a caller's key.
pub fn session_by_key(rows: &dyn ReadRows, key: &str) -> Result<SessionView, Error> {
    let session = rows.session_by_key(rows.access().visibility.home(), key)?;
    let session = session
        .ok_or_else(|| Error::new(Kind::SessionNotFound, format!("no session has the key `{key}`")))?;
    session_view(rows, session)
}

fn session_view(rows: &dyn ReadRows, session: SessionRow) -> Result<SessionView, Error> {
    let heads = rows.heads(session.no)?.into_iter();
    let heads = heads.map(|(name, node)| Ok((name, node.map(|node| node_ref(rows, node)).transpose()?)));
    let active = session.active.map(|no| turn_by_no(rows, no)).transpose()?.map(|turn| turn.id);
    let waits = session.active.map(|no| rows.waits(no)).transpose()?.unwrap_or_default();
    let is_stuck = session.state == SessionState::Parked && waits.iter().any(|wait| wait.key.is_stuck());
    let last_turn = match (active.filter(|_| is_stuck), session.last_ended) {
        (Some(id), _) => Some(LastTurn { id, end: LastEnd::Stuck }),
        (None, Some(LastEnded { turn, end })) => {
            Some(LastTurn { id: turn_by_no(rows, turn)?.id, end: LastEnd::Ended(end) })
        }
        (None, None) => None,
    };
    Ok(SessionView {
        id: session.id,
        org: session.org,
        key: session.key,
        state: session.state,
        created: session.created,
        updated: session.updated,
        turns: session.turns,
        last: JournalPosition { seq: session.last_seq, hash: session.last_hash },
        heads: heads.collect::<Result<_, Error>>()?,
        forked_from: session.forked_from.map(|node| node_ref(rows, node)).transpose()?,
        active,
        worker: session.worker,
        waits,
        wake_at: session.wake_at,
        deaths: session.guard.deaths,
        cost: session.cost,
        last_turn,
    })
}

/// Returns one turn.
pub fn turn(rows: &dyn ReadRows, id: TurnId) -> Result<TurnView, Error> {
    let turn = turn_row(rows, id)?;
    let session = required_row("session", rows.session(turn.session)?)?;
    turn_view(rows, &session, &turn)
}

/// Returns how much work is outstanding, counted up to [`COUNTED`].
pub fn load(rows: &dyn QueryRows) -> Result<StoreLoad, Error> {
    rows.access().require_operator()?;
    let count = |state| Ok::<_, Error>(rows.sessions_in(state, SessionNo(0), COUNTED)?.len());
    let pending_payments = rows.pending_payments(rows.access().visibility, COUNTED)?.len();
    // A turn with fallback models waits for several providers at once.
    let waiting = rows.waiting(rows.access().visibility, WaitKind::Provider, COUNTED)?;
    let provider_waits = waiting.into_iter().map(|(turn, _)| turn).collect::<BTreeSet<_>>().len();
    let (ready, leased, held) =
        (count(SessionState::Ready)?, count(SessionState::Leased)?, count(SessionState::Held)?);
    Ok(StoreLoad { ready, leased, held, pending_payments, provider_waits, last_ends: last_ends(rows)? })
}

/// Counts sessions by how their last turn ended, without those that were answered.
fn last_ends(rows: &dyn QueryRows) -> Result<Vec<(LastEnd, usize)>, Error> {
    let mut counts = Vec::new();
    for end in LastEnd::all() {
        let count = match end {
            LastEnd::Ended(TurnEndKind::Answered) => continue,
            LastEnd::Ended(kind) => rows.count_last_ended(kind, COUNTED)?,
            LastEnd::Stuck => {
                // Several tool calls of one turn may be stuck.
                let events = rows.waiting(rows.access().visibility, WaitKind::Event, COUNTED)?.into_iter();
                let stuck = events.filter(|(_, wait)| wait.key.is_stuck());
                stuck.map(|(turn, _)| turn).collect::<BTreeSet<_>>().len()
            }
        };
        counts.push((end, count));
    }
    Ok(counts)
}

/// Returns turns of a session, in the order they were accepted.
pub fn turns(
    rows: &dyn ReadRows,
    session: SessionId,
    from: u32,
    limit: usize,
) -> Result<Vec<TurnView>, Error> {
    let session = session_row(rows, session)?;
    rows.turns(session.no, from, limit)?.iter().map(|turn| turn_view(rows, &session, turn)).collect()
}

fn turn_view(rows: &dyn ReadRows, session: &SessionRow, turn: &TurnRow) -> Result<TurnView, Error> {
    Ok(TurnView {
        id: turn.id,
        session: session.id,
        index: turn.index,
        state: turn.state,
        parent: turn.parent.map(|node| node_ref(rows, node)).transpose()?,
        span: (turn.accepted, turn.last_node.max(turn.accepted)),
        end: (turn.state == TurnState::Ended).then(|| end_of(rows, turn)).transpose()?,
        writes: turn.writes,
        retry_of: turn.retry_of.map(|no| rows.turn(no)).transpose()?.flatten().map(|turn| turn.id),
        foreign: turn.accepted <= session.foreign,
    })
}

/// Returns how a turn ended, from its terminal record.
pub(super) fn end_of(rows: &dyn ReadRows, turn: &TurnRow) -> Result<TurnEnd, Error> {
    let row = required_row("record", one(rows, turn.session, required_row("record", turn.ended)?)?)?;
    match decode(rows, row, Some(turn.id))?.fact {
        Fact::Ended { end } => Ok(end),
        other => {
            let detail = format!("the terminal record of {} is `{}`", turn.id, other.name());
            Err(Error::new(Kind::RecordCorrupt, detail))
        }
    }
}

/// Returns the reason given for cancelling a turn, if it is to stop.
pub fn cancel_reason(rows: &dyn ReadRows, turn: TurnId) -> Result<Option<String>, Error> {
    let turn = turn_row(rows, turn)?;
    if !turn.cancelled {
        return Ok(None);
    }
    let session = required_row("session", rows.session(turn.session)?)?;
    let records = of_turn(rows, &session, &turn)?;
    Ok(records.into_iter().find_map(|record| match record.fact {
        Fact::CancelRequested { reason, .. } => Some(reason),
        _ => None,
    }))
}

/// Returns the completion key of a wait. The holder of the key can resolve the wait.
pub fn completion_key(rows: &dyn ReadRows, turn: TurnId, wait: ReplayKey) -> Result<CompletionKey, Error> {
    rows.access().require(Scope::Run)?;
    rows.sign(turn_row(rows, turn)?.id, wait)
}

/// Returns the sessions that were forked from this one.
pub fn forks(rows: &dyn SessionRows, session: SessionId) -> Result<Vec<SessionId>, Error> {
    rows.forks(session_row(rows, session)?.no)
}

/// Returns calls of unknown outcome, with their details from the journal.
pub fn unknown(
    rows: &dyn ReadRows,
    after: Option<(Millis, CallId)>,
    limit: usize,
) -> Result<Page<UnknownCall, (Millis, CallId)>, Error> {
    let claims = rows.unknown(rows.access().visibility, after, rows_to_read(limit))?;
    page_from_rows(claims, limit, |claim| (claim.since, claim.call), |claim| unknown_call(rows, &claim))
}

fn unknown_call(rows: &dyn ReadRows, claim: &ClaimRow) -> Result<Option<UnknownCall>, Error> {
    let session = required_row("session", rows.session(claim.session)?)?;
    let turn = turn_by_no(rows, claim.turn)?;
    let row = required_row("record", one(rows, claim.session, claim.claim.asked)?)?;
    let Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) =
        decode(rows, row, None)?.fact
    else {
        return Err(Error::new(Kind::RecordCorrupt, "a claim refers to a record without claims"));
    };
    let child = usize::try_from(claim.claim.child).unwrap_or(usize::MAX);
    let Some(BatchCall::Run(call)) = batch.calls.into_iter().nth(child) else { return Ok(None) };
    Ok(Some(UnknownCall {
        call: claim.call,
        tool: call.tool,
        arguments: call.arguments,
        session: session.id,
        turn: turn.id,
        claim: claim.claim,
        since: claim.since,
    }))
}

/// Returns turns that wait for something of this kind.
pub fn waiting(rows: &dyn ReadRows, kind: WaitKind, limit: usize) -> Result<Vec<WaitingTurn>, Error> {
    let waiting = |(turn, wait)| {
        let turn = turn_by_no(rows, turn)?;
        let session = required_row("session", rows.session(turn.session)?)?;
        Ok(WaitingTurn { session: session.id, turn: turn.id, wait })
    };
    rows.waiting(rows.access().visibility, kind, limit)?.into_iter().map(waiting).collect()
}

/// Returns an attachment of a session or of the sessions it was forked from, whose messages it shares.
pub fn attachment(
    rows: &dyn ReadRows,
    session: SessionId,
    id: AttachmentId,
) -> Result<AttachmentView, Error> {
    attachment_row(rows, session, id).map(attachment_view)
}

fn attachment_row(rows: &dyn ReadRows, session: SessionId, id: AttachmentId) -> Result<AttachmentRow, Error> {
    let mut row = session_row(rows, session)?;
    loop {
        if let Some(found) = rows.attachment(row.no, id)? {
            return Ok(found);
        }
        let Some(parent) = row.forked_from else {
            let detail = format!("session {session} has no attachment {id}");
            return Err(Error::new(Kind::AttachmentNotFound, detail));
        };
        row = required_row("session", rows.session(parent.session)?)?;
    }
}

/// Returns the attachments that a session itself uses.
pub fn attachments(
    rows: &dyn ReadRows,
    session: SessionId,
    after: Option<AttachmentId>,
    limit: usize,
) -> Result<Page<AttachmentView, AttachmentId>, Error> {
    let session = session_row(rows, session)?;
    let found = rows.attachments(session.no, after, rows_to_read(limit))?;
    page_from_rows(found, limit, |row| row.attachment.id, |row| Ok(Some(attachment_view(row))))
}

fn attachment_view(row: AttachmentRow) -> AttachmentView {
    let AttachmentRow { attachment, bytes, location, .. } = row;
    AttachmentView { attachment, bytes, location }
}

/// Returns the stored text of the reply that a turn was receiving. Adjacent pieces are joined.
pub fn partial_reply(rows: &dyn ReadRows, turn: TurnId) -> Result<Option<PartialReplyText>, Error> {
    let row = turn_row(rows, turn)?;
    let mut whole: Option<PartialReplyText> = None;
    for PartialRow { key, attempt, start, text, .. } in rows.partials(row.no)? {
        match &mut whole {
            None if start == 0 => whole = Some(PartialReplyText { key, attempt, start, text }),
            Some(said) if said.text.len() == start && said.attempt == attempt => said.text.push_str(&text),
            _ => break,
        }
    }
    Ok(whole)
}

/// Returns the bytes with this hash, after verifying them.
pub fn blob(rows: &dyn ContentRows, hash: Hash) -> Result<Vec<u8>, Error> {
    let bytes = rows.blob(hash)?.ok_or_else(|| no_blob(hash))?;
    if Hash::of(&bytes) != hash {
        return Err(Error::new(Kind::RecordCorrupt, format!("the blob {hash} does not match its hash")));
    }
    Ok(bytes)
}

/// Returns a range of the bytes of an attachment stored in the database. They are not verified against the hash.
pub fn attached(
    rows: &dyn ReadRows,
    session: SessionId,
    id: AttachmentId,
    range: Range<u64>,
) -> Result<Vec<u8>, Error> {
    let hash = attachment_row(rows, session, id)?.attachment.content;
    rows.blob_range(hash, range)?.ok_or_else(|| no_blob(hash))
}

/// Returns the configuration under which a turn began. Before it began, returns the one for which it was accepted.
pub fn package(rows: &dyn ReadRows, turn: TurnId) -> Result<Vec<u8>, Error> {
    let records = turn_records(rows, turn)?;
    let named = records.iter().rev().find_map(|record| match &record.fact {
        Fact::Started(started) => Some(started.package),
        Fact::Accepted(accepted) => accepted.package,
        _ => None,
    });
    let fingerprint =
        named.ok_or_else(|| Error::new(Kind::BlobNotFound, format!("{turn} has no configuration")))?;
    let part = |hash| rows.package(hash)?.ok_or_else(|| no_blob(hash));
    let json = part(fingerprint)?;
    let stored =
        StoredPackage::read(fingerprint, &json).ok().filter(|stored| stored.sidecars().next().is_some());
    let Some(stored) = stored else { return Ok(json) };
    let sidecars = stored.sidecars().map(|(_, hash)| part(hash)).collect::<Result<Vec<_>, Error>>()?;
    Ok(canonical_json::to_string(&stored.with_sidecars(sidecars)?).into_bytes())
}

fn no_blob(hash: Hash) -> Error {
    Error::new(Kind::BlobNotFound, format!("no blob has the hash {hash}"))
}

/// Returns a value of a session.
pub fn value(rows: &dyn ReadRows, session: SessionId, name: &str) -> Result<Option<Value>, Error> {
    let session = session_row(rows, session)?;
    let json = rows.value(session.no, name)?;
    json.map(|json| serde_json::from_str(&json)).transpose().map_err(|cause| {
        Error::new(Kind::RecordCorrupt, format!("the value `{name}` does not decode")).because(cause)
    })
}

/// Returns the names of a session's values.
pub fn value_names(
    rows: &dyn ReadRows,
    session: SessionId,
    prefix: &str,
    limit: usize,
) -> Result<Vec<String>, Error> {
    rows.value_names(session_row(rows, session)?.no, prefix, limit)
}

/// Returns the row of one record.
pub(super) fn one(rows: &dyn JournalRows, session: SessionNo, seq: Seq) -> Result<Option<RecordRow>, Error> {
    let range = RecordRange { session, turn: None, nodes_only: false, from: seq, to: seq, limit: 1 };
    Ok(rows.records(range)?.pop())
}

/// Converts a row address to a reference with the session's id.
pub(super) fn node_ref(rows: &dyn SessionRows, node: RecordAddress) -> Result<NodeRef, Error> {
    let session = required_row("session", rows.session(node.session)?)?;
    Ok(NodeRef { session: session.id, seq: node.seq })
}

fn full_range(session: &SessionRow) -> RecordRange {
    let (session, to) = (session.no, session.last_seq);
    RecordRange { session, turn: None, nodes_only: false, from: Seq(1), to, limit: usize::MAX }
}

pub(super) fn body_of(rows: &dyn ContentRows, body: RecordBody) -> Result<Vec<u8>, Error> {
    match body {
        RecordBody::Inline(body) => Ok(body),
        RecordBody::Blob(hash) => blob(rows, hash),
    }
}

pub(super) fn decode(rows: &dyn ContentRows, row: RecordRow, turn: Option<TurnId>) -> Result<Record, Error> {
    let (seq, at, hash) = (row.seq, row.at, row.hash);
    let fact = Fact::decode(&body_of(rows, row.body)?)?;
    Ok(Record { seq, turn, at, hash, fact })
}

/// A cache of turn ids by number.
#[derive(Default)]
pub(super) struct TurnNames(BTreeMap<TurnNo, TurnId>);

impl TurnNames {
    pub(super) fn id(&mut self, rows: &dyn TurnRows, no: TurnNo) -> Result<TurnId, Error> {
        if let Some(id) = self.0.get(&no) {
            return Ok(*id);
        }
        let id = turn_by_no(rows, no)?.id;
        self.0.insert(no, id);
        Ok(id)
    }

    fn record(&mut self, rows: &dyn ReadRows, row: RecordRow) -> Result<Record, Error> {
        let turn = row.turn.map(|no| self.id(rows, no)).transpose()?;
        decode(rows, row, turn)
    }
}
