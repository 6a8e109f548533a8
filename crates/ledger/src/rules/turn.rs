//! Accepts inputs and advances turns.
use super::budget::{close, delete_budget_waits, must_wait, reserve_first_call, update_accounts};
use super::external_content::count_use;
use super::guard::{count_death, has_suspect, release, runs_alone, trial_window};
use super::notices::{delete_notices, schedule_notices};
use super::orgs::{AuditedAction, audit_action, resolve_action};
use super::payment_outbox;
use super::rate::apply_rate_limits;
use super::votes::{check_grant_exists, forget_votes, vote_alone};
use super::{EncodedFact, append, empty_session, lookup, required_row, session_row, turn_by_no, turn_row};
use crate::rows::{
    ApprovalWrites, AttachmentRow, CallRows, ClaimRow, ContentWrites, JournalRows, JournalWrites, LATEST,
    LeaseWrites, PartialRow, ReadRows, RecordAddress, ResolutionRow, Rows, SessionNo, SessionQueue,
    SessionRow, SessionRows, SessionWrites, TurnRow, TurnRows,
};
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::budget::{FirstCallReservation, ReservationResult};
use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, SessionTarget};
use outlast_ports::queries::WorkerAgenda;
use outlast_ports::turns::{
    ClaimedTurn, Commit, CommitReceipt, CrashGuard, Fence, Lease, LeaseRequest, PartialReplyChange,
    PartialReplyText, TrialState, TurnAfterCommit, TurnNo, TurnTransition,
};
use outlast_views::{BlobLocation, CancelOutcome, ResolveResult, SessionState, TurnState, WriteCount};
use outlast_vocab::access::{AuditAction, Scope};
use outlast_vocab::effect::{BatchCall, Command, JournalPosition, Outcome, ToolOutcome};
use outlast_vocab::policy::Approval;
use outlast_vocab::record::{
    self, CallReclaimed, ClaimRef, EffectAnswered, EffectPerformed, Fact, Seq, TurnEnd,
};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey, SessionId, TurnId, WorkerId, canonical_json};
use std::time::Duration;

/// Accepts an input. The same key again returns the first turn.
pub fn accept(rows: &mut dyn Rows, accept: AcceptRequest) -> Result<AcceptReceipt, Error> {
    let AcceptRequest { target, turn, head, accepted, request, index, .. } = accept;
    let AcceptRequest { blobs, files, now, lease_request, first, queued_most, .. } = accept;
    rows.access().require(Scope::Run)?;
    let session = open_session(rows, target, now)?;
    // Without a key, a repeated request can be recognised only if the request has a fingerprint.
    let input = if accepted.key.is_some() {
        let said = input_fingerprint(&accepted);
        request.map_or(said, |request| canonical_json::fingerprint(&(said, request)))
    } else {
        accepted.request.unwrap_or(Hash::ZERO)
    };
    if let Some(key) = &accepted.key
        && let Some(first) = rows.turn_by_key(session.no, key)?
    {
        return repeat(rows, &session, &first, key, input);
    }
    if let Some(index) = index.filter(|index| *index != session.turns) {
        let detail = format!(
            "the input was accepted as turn {index} of session {}, which has {} turns",
            session.id, session.turns
        );
        return Err(Error::new(Kind::SessionMoved, detail));
    }
    if session.queued as usize >= queued_most {
        let detail =
            format!("queued_inputs is limited to {queued_most}, and so many are queued for {}", session.id);
        return Err(Error::new(Kind::QueueFull, detail));
    }
    let Some(stands) = rows.head(session.no, &head)? else {
        return Err(Error::new(Kind::NodeNotFound, format!("session {} has no head `{head}`", session.id)));
    };
    put_blobs(rows, &blobs)?;
    attach(rows, session.no, files)?;
    let accepted = record::TurnAccepted { retry_of: None, ..accepted };
    let new = NewTurn { id: turn, input, head, head_node: stands, retry_of: None, accepted };
    add_turn(rows, session, new, lease_request, first, now)
}

/// A turn that is about to be added.
pub(super) struct NewTurn {
    /// Its id.
    pub id: TurnId,
    /// The fingerprint of its input.
    pub input: Hash,
    /// The head that it is for.
    pub head: String,
    /// The message at that head.
    pub head_node: Option<RecordAddress>,
    /// The turn that it retries.
    pub retry_of: Option<TurnNo>,
    /// Its first record.
    pub accepted: record::TurnAccepted,
}

/// Adds a turn to its session. If the session is idle, the requesting worker runs the turn immediately, with a reservation for
/// its first effect.
pub(super) fn add_turn(
    rows: &mut dyn Rows,
    mut session: SessionRow,
    new: NewTurn,
    lease_request: Option<LeaseRequest>,
    first: Option<FirstCallReservation>,
    now: Millis,
) -> Result<AcceptReceipt, Error> {
    let NewTurn { id: turn, input, head, head_node: stands, retry_of, accepted: fact } = new;
    let mut lease_request = lease_request.filter(|_| session.state == SessionState::Idle);
    if let Some(LeaseRequest { worker, .. }) = lease_request
        && runs_alone(rows, worker, session.no)?
    {
        lease_request = None;
    }
    let accepted = Seq(session.last_seq.0 + 1);
    // An input becomes a message of the tree when its turn begins, and not before.
    let (state, last_node, parent) = match lease_request {
        Some(_) => (TurnState::Active, accepted, stands),
        None => (TurnState::Queued, Seq(0), None),
    };
    let mut row = TurnRow {
        no: TurnNo(0),
        id: turn,
        session: session.no,
        index: session.turns,
        key: fact.key.clone(),
        input,
        delivery: fact.delivery,
        head,
        state,
        accepted,
        last_node,
        parent,
        ended: None,
        cancelled: false,
        writes: Some(WriteCount { commits: 1, waited: Duration::ZERO }),
        retry_of,
    };
    row.no = rows.insert_turn(&row)?;
    let (place, fact) = append(rows, &mut session, Some(&mut row), Fact::Accepted(fact).into(), now)?;
    session.turns += 1;
    let work = if let Some(lease_request) = lease_request {
        (session.active, session.guard) = (Some(row.no), CrashGuard::default());
        lease(&mut session, lease_request);
        let accepted = record::Record { seq: place.seq, turn: Some(turn), at: now, hash: place.hash, fact };
        let held = first.map(|first| reserve_first_call(rows, &session, &row, &first, now)).transpose()?;
        Some(ClaimedTurn { hold_result: held, ..work_of(rows, &session, &row, vec![accepted])? })
    } else {
        session.queued += 1;
        if session.state == SessionState::Idle {
            session.state = SessionState::Ready;
        }
        None
    };
    rows.put_session(&session)?;
    Ok(AcceptReceipt { session: session.id, turn, duplicate: false, place, work })
}

/// Returns the fingerprint that two inputs with the same key must share.
fn input_fingerprint(accepted: &record::TurnAccepted) -> Hash {
    let record::TurnAccepted { parts, output, plugins, before, .. } = accepted;
    match output {
        _ if !before.is_empty() => canonical_json::fingerprint(&(parts, output, plugins, before)),
        _ if !plugins.is_empty() => canonical_json::fingerprint(&(parts, output, plugins)),
        Some(output) => canonical_json::fingerprint(&(parts, output)),
        None => canonical_json::fingerprint(parts),
    }
}

/// Stores content that facts refer to by hash. It is never deleted, because turns of any session may have begun under
/// it.
fn put_blobs(rows: &mut dyn ContentWrites, blobs: &[Vec<u8>]) -> Result<(), Error> {
    blobs.iter().try_for_each(|blob| rows.pin_blob(Hash::of(blob), blob))
}

/// Stores attachments. Each is counted once per session that uses it.
fn attach(
    rows: &mut dyn ContentWrites,
    session: SessionNo,
    files: Vec<AttachmentUpload>,
) -> Result<(), Error> {
    for file in files {
        if rows.attachment(session, file.attachment().id)?.is_some() {
            continue;
        }
        let (attachment, bytes) = (file.attachment().clone(), file.bytes());
        let location = match file {
            AttachmentUpload::Inline(upload) => {
                rows.put_blob(attachment.content, &upload.bytes)?;
                BlobLocation::Database
            }
            AttachmentUpload::Outside(outside) => {
                count_use(rows, &outside)?;
                BlobLocation::Outside
            }
        };
        rows.insert_attachment(&AttachmentRow { session, attachment, bytes, location })?;
    }
    Ok(())
}

/// Stores or deletes the text of a partial reply. A reply that starts again replaces the old one.
fn update_partial(
    rows: &mut dyn JournalWrites,
    turn: TurnNo,
    partial: PartialReplyChange,
) -> Result<(), Error> {
    match partial {
        PartialReplyChange::Unchanged => Ok(()),
        PartialReplyChange::Delete => rows.delete_partials(turn),
        PartialReplyChange::Append(PartialReplyText { key, attempt, start, text }) => {
            if start == 0 {
                rows.delete_partials(turn)?;
            }
            rows.put_partial(&PartialRow { turn, key, attempt, start, text })
        }
    }
}

/// Returns the answer to an input whose key was used before.
fn repeat(
    rows: &dyn JournalRows,
    session: &SessionRow,
    first: &TurnRow,
    key: &str,
    input: Hash,
) -> Result<AcceptReceipt, Error> {
    if first.input != input {
        let detail = format!("the idempotency key `{key}` was used for {} with another input", first.id);
        return Err(Error::new(Kind::InputKeyReused, detail));
    }
    let record = required_row("record", lookup::one(rows, session.no, first.accepted)?)?;
    let place = JournalPosition { seq: record.seq, hash: record.hash };
    Ok(AcceptReceipt { session: session.id, turn: first.id, duplicate: true, place, work: None })
}

/// Opens a session without input.
pub fn open(rows: &mut dyn Rows, target: SessionTarget, now: Millis) -> Result<SessionId, Error> {
    rows.access().require(Scope::Run)?;
    let session = open_session(rows, target, now)?;
    rows.put_session(&session)?;
    Ok(session.id)
}

fn open_session(rows: &mut dyn Rows, target: SessionTarget, now: Millis) -> Result<SessionRow, Error> {
    let org = rows.access().visibility.home();
    let (id, key) = match target {
        SessionTarget::Id(id) => return session_row(rows, id),
        SessionTarget::Key { key, fresh } => match rows.session_by_key(org, &key)? {
            Some(session) => return Ok(session),
            None => (fresh, Some(key)),
        },
        SessionTarget::New(id) => (id, None),
    };
    let mut session = empty_session(id, org, key.clone(), now);
    session.no = rows.insert_session(&session)?;
    rows.put_head(session.no, MAIN_HEAD, None)?;
    append(rows, &mut session, None, Fact::Opened { key, forked_from: None }.into(), now)?;
    Ok(session)
}

/// Makes a queued turn the active one. It follows the message that its head is at now.
fn begin(rows: &mut dyn Rows, session: &mut SessionRow, turn: &mut TurnRow) -> Result<(), Error> {
    turn.state = TurnState::Active;
    // The input becomes a message of the tree now, and not before.
    turn.last_node = turn.accepted;
    turn.parent = required_row("head", rows.head(session.no, &turn.head)?)?;
    rows.put_turn(turn)?;
    session.active = Some(turn.no);
    session.queued -= 1;
    session.guard = CrashGuard::default();
    Ok(())
}

/// Leases the session to a worker. The raised fence makes every write of the previous holder fail.
fn lease(session: &mut SessionRow, lease_request: LeaseRequest) {
    session.state = SessionState::Leased;
    session.fence = Fence(session.fence.0 + 1);
    session.worker = Some(lease_request.worker);
    session.lease_until = lease_request.until;
    session.wake_at = None;
}

fn work_of(
    rows: &dyn SessionRows,
    session: &SessionRow,
    turn: &TurnRow,
    records: Vec<record::Record>,
) -> Result<ClaimedTurn, Error> {
    let worker = required_row("worker", session.worker)?;
    Ok(ClaimedTurn {
        lease: Lease { session: session.id, turn: turn.id, worker, fence: session.fence },
        org: session.org,
        index: turn.index,
        head: turn.head.clone(),
        parent: turn.parent.map(|node| lookup::node_ref(rows, node)).transpose()?,
        guard: session.guard,
        trial: (session.guard.trial == TrialState::Waits).then(|| trial_window(session.guard.deaths)),
        records,
        hold_result: None,
        resumed: false,
    })
}

/// Claims sessions that need a worker. A worker that runs a suspect alone gets no session. If the previous worker
/// died, that counts against the turn, which is held back if it becomes a suspect.
pub fn claim(
    rows: &mut dyn Rows,
    lease_request: LeaseRequest,
    now: Millis,
    limit: usize,
) -> Result<Vec<ClaimedTurn>, Error> {
    let found = claimable(rows, lease_request.worker, now, limit)?;
    if found.is_empty() || runs_alone(rows, lease_request.worker, SessionNo(0))? {
        return Ok(Vec::new());
    }
    let mut works = Vec::new();
    for mut session in found {
        if session.state == SessionState::Leased && !count_death(&mut session, lease_request.worker, now) {
            session.updated = now;
            rows.put_session(&session)?;
        } else {
            works.push(take(rows, session, lease_request)?);
        }
    }
    Ok(works)
}

/// Returns whether there is a session that a worker could claim now.
pub fn has_work(rows: &dyn ReadRows, worker: WorkerId, now: Millis) -> Result<bool, Error> {
    Ok(!claimable(rows, worker, now, 1)?.is_empty())
}

/// Returns when the next parked or held turn is due.
pub fn next_wake(rows: &dyn SessionQueue) -> Result<Option<Millis>, Error> {
    rows.access().require_operator()?;
    rows.next_wake()
}

/// Returns the work that a worker can find.
pub fn agenda(rows: &dyn ReadRows, worker: WorkerId, now: Millis) -> Result<WorkerAgenda, Error> {
    Ok(WorkerAgenda {
        has_work: has_work(rows, worker, now)?,
        has_suspect: has_suspect(rows, now)?,
        next_wake: next_wake(rows)?,
        next_notice: rows.next_notice()?,
    })
}

/// Returns sessions that need a worker: ready, due, or left by a dead worker.
fn claimable(
    rows: &dyn ReadRows,
    worker: WorkerId,
    now: Millis,
    limit: usize,
) -> Result<Vec<SessionRow>, Error> {
    rows.access().require_operator()?;
    // Due and abandoned turns come before fresh inputs, so that many fresh inputs cannot starve them.
    let mut found = rows.sessions_due(now, limit)?;
    found.extend(abandoned(rows, worker, now, limit)?);
    found.extend(rows.sessions_in(SessionState::Ready, SessionNo(0), limit)?);
    found.truncate(limit);
    Ok(found)
}

/// Returns leased sessions whose worker is dead or has not renewed its lease in time.
fn abandoned(
    rows: &dyn ReadRows,
    own: WorkerId,
    now: Millis,
    limit: usize,
) -> Result<Vec<SessionRow>, Error> {
    let mut found = Vec::new();
    let mut after = SessionNo(0);
    loop {
        let page = rows.sessions_in(SessionState::Leased, after, limit.max(1))?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.no;
        for session in page {
            let is_gone = match session.worker {
                Some(worker) => worker != own && rows.is_dead(worker)?,
                None => true,
            };
            if is_gone || session.lease_until <= now {
                found.push(session);
            }
        }
        if found.len() >= limit {
            return Ok(found);
        }
    }
}

pub(super) fn take(
    rows: &mut dyn Rows,
    mut session: SessionRow,
    lease_request: LeaseRequest,
) -> Result<ClaimedTurn, Error> {
    let (turn, resumed) = if let Some(no) = session.active {
        // A parked turn keeps its waits until it is claimed again. Any other turn was interrupted.
        (turn_by_no(rows, no)?, rows.waits(no)?.is_empty())
    } else {
        let mut next = required_row("queued turn", rows.queued(session.no, 1)?.into_iter().next())?;
        begin(rows, &mut session, &mut next)?;
        (next, false)
    };
    rows.delete_waits(turn.no)?;
    delete_budget_waits(rows, turn.no)?;
    lease(&mut session, lease_request);
    rows.put_session(&session)?;
    let records = lookup::of_turn(rows, &session, &turn)?;
    Ok(ClaimedTurn { resumed, ..work_of(rows, &session, &turn, records)? })
}

/// Extends all leases of a worker.
pub fn renew(
    rows: &mut dyn LeaseWrites,
    lease_request: LeaseRequest,
) -> Result<Vec<(SessionId, Fence)>, Error> {
    rows.access().require_operator()?;
    rows.extend_leases(lease_request.worker, lease_request.until)
}

/// Releases a session so that another worker can claim it immediately. A suspect is held back. Nothing is counted
/// against the turn.
pub fn release_lease(rows: &mut dyn SessionWrites, lease: &Lease, now: Millis) -> Result<(), Error> {
    let mut session = check_fence(rows, lease)?;
    release(&mut session, now);
    session.updated = now;
    rows.put_session(&session)
}

/// Returns the session of a lease, if the lease is still valid.
pub(super) fn check_fence(rows: &dyn SessionRows, lease: &Lease) -> Result<SessionRow, Error> {
    rows.access().require_operator()?;
    let session = session_row(rows, lease.session)?;
    if session.fence == lease.fence && session.worker == Some(lease.worker) {
        return Ok(session);
    }
    let detail = format!("the write has fence {}, but the session is at {}", lease.fence.0, session.fence.0);
    let at = outlast_vocab::ErrorPlace {
        session: Some(lease.session),
        turn: Some(lease.turn),
        ..outlast_vocab::ErrorPlace::default()
    };
    Err(Error::new(Kind::LeaseLost, detail).at(at))
}

/// Applies a commit whose facts are already encoded. A write with an old fence changes nothing.
pub fn commit(rows: &mut dyn Rows, commit: Commit, drafts: Vec<EncodedFact>) -> Result<CommitReceipt, Error> {
    let Commit {
        lease,
        now,
        values,
        blobs,
        files,
        partial,
        budget_update,
        admissions,
        waited,
        transition,
        ..
    } = commit;
    let mut session = check_fence(rows, &lease)?;
    let mut turn = turn_by_no(rows, required_row("turn", session.active)?)?;
    if turn.id != lease.turn {
        return Err(Error::new(Kind::LeaseLost, format!("{} is no longer the session's turn", lease.turn)));
    }
    if let Some(writes) = &mut turn.writes {
        writes.commits += 1;
        writes.waited += waited;
    }
    put_blobs(rows, &blobs)?;
    attach(rows, session.no, files)?;
    update_partial(rows, turn.no, partial)?;
    let mut places = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let (place, fact) = append(rows, &mut session, Some(&mut turn), draft, now)?;
        project(rows, &mut session, &turn, &fact, place.seq, now)?;
        places.push(place);
    }
    for write in values {
        let json = write.value.map(|value| value.to_string());
        rows.put_value(session.no, &write.name, json.as_deref())?;
    }
    let held = match &budget_update {
        Some(budget_update) => update_accounts(rows, &session, &turn, budget_update, now)?,
        None => None,
    };
    // A call that does not fit its budget does not ask the rate limits.
    let admissions = match &held {
        Some(ReservationResult::Exhausted(_)) => Vec::new(),
        Some(ReservationResult::Reserved { .. }) | None => {
            apply_rate_limits(rows, &mut session, &mut turn, &admissions, now)?
        }
    };
    let input_waits = session.queued > 0 && joins(rows, session.no, &turn.head)?;
    let after = match transition {
        TurnTransition::Continue => TurnAfterCommit::Continues,
        TurnTransition::EndUnlessJoined(_) if input_waits => TurnAfterCommit::Continues,
        TurnTransition::EndUnlessJoined(end) | TurnTransition::End(end) => {
            finish(rows, &mut session, &mut turn, end, now)?;
            close(rows, &session, &turn, budget_update.is_some(), now)?;
            next(rows, &mut session)?
        }
        TurnTransition::Park(waits) => {
            let budget_waits = budget_update.as_ref().filter(|update| !update.waits.is_empty());
            match budget_waits.map(|update| must_wait(rows, &session, &turn, update, now)).transpose()? {
                Some(false) => TurnAfterCommit::Ready,
                Some(true) | None => park(rows, &mut session, &mut turn, waits, now)?,
            }
        }
    };
    rows.put_turn(&turn)?;
    rows.put_session(&session)?;
    let cancelled = if turn.cancelled { lookup::cancel_reason(rows, turn.id)? } else { None };
    let last = JournalPosition { seq: session.last_seq, hash: session.last_hash };
    Ok(CommitReceipt {
        places,
        last,
        has_joining_input: input_waits,
        cancelled,
        hold_result: held,
        admissions,
        after,
    })
}

/// Applies everything that follows from a fact, in the same transaction.
fn project(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &TurnRow,
    fact: &Fact,
    seq: Seq,
    now: Millis,
) -> Result<(), Error> {
    if fact.is_progress() {
        session.guard = CrashGuard::default();
    }
    match fact {
        Fact::Asked(asked) => match &asked.command {
            Command::ToolBatch(batch) => claim_batch(rows, session, turn, &batch.calls, seq, now),
            _ => Ok(()),
        },
        Fact::Answered(EffectAnswered { claim, outcome, .. }) => {
            let mut row = open_claim(rows, session, *claim)?;
            if matches!(outcome, Outcome::ToolCall(ToolOutcome::Unknown)) {
                row.unknown = true;
                return rows.put_claim(&row);
            }
            rows.delete_claim(session.no, *claim)
        }
        Fact::Reclaimed(CallReclaimed { claim, .. }) => {
            let row = rows.claim(session.no, *claim)?.filter(|row| !row.unknown);
            let mut row = row.ok_or_else(|| not_open(*claim))?;
            row.fence = session.fence;
            rows.put_claim(&row)
        }
        Fact::Performed(EffectPerformed { key, outcome: Outcome::AwaitEvent(resolution), .. }) => {
            check_resolution(rows, turn, key, resolution)
        }
        Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
            for input in &joined.inputs {
                join(rows, session, turn, input.turn, now)?;
            }
            Ok(())
        }
        Fact::Payment(payment) => payment_outbox::update_outbox(rows, turn.no, payment, now),
        Fact::Started(_)
        | Fact::Performed(_)
        | Fact::Stuck { .. }
        | Fact::Repaired { .. }
        | Fact::Undoable(_)
        | Fact::Hooked(_)
        | Fact::Ruled(_)
        | Fact::Paced(_)
        | Fact::Resumed(_)
        | Fact::Tried(_)
        | Fact::Interrupted(_)
        | Fact::Compacted(_) => Ok(()),
        Fact::Opened { .. }
        | Fact::HeadMoved { .. }
        | Fact::Accepted(_)
        | Fact::Parked { .. }
        | Fact::Resolved { .. }
        | Fact::Reminded { .. }
        | Fact::Escalated { .. }
        | Fact::CancelRequested { .. }
        | Fact::EnvironmentRequested(_)
        | Fact::Settled(_)
        | Fact::Ended { .. } => Err(forbidden_fact(fact)),
    }
}

/// Returns the error for a fact that a commit may not contain. Such facts are true only with rows that other writes
/// change.
fn forbidden_fact(fact: &Fact) -> Error {
    let detail = format!("a commit cannot contain `{}`, which only the store writes", fact.name());
    Error::new(Kind::Internal, detail)
}

fn claim_batch(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    calls: &[BatchCall],
    asked: Seq,
    since: Millis,
) -> Result<(), Error> {
    for (child, call) in (0..).zip(calls) {
        if let BatchCall::Run(call) = call {
            if let Some(granted) = call.ruling.as_ref().and_then(|ruling| ruling.grant.as_deref()) {
                check_grant_exists(rows, session, granted)?;
            }
            let claim = ClaimRef { asked, child };
            let (session, fence) = (session.no, session.fence);
            rows.put_claim(&ClaimRow {
                session,
                claim,
                turn: turn.no,
                call: call.id,
                fence,
                unknown: false,
                since,
            })?;
        }
    }
    Ok(())
}

/// Returns the claim that is about to be settled. It must be open, and made or renewed under the current fence.
fn open_claim(rows: &dyn CallRows, session: &SessionRow, claim: ClaimRef) -> Result<ClaimRow, Error> {
    let row = rows.claim(session.no, claim)?.filter(|row| !row.unknown && row.fence == session.fence);
    row.ok_or_else(|| not_open(claim))
}

fn not_open(claim: ClaimRef) -> Error {
    let ClaimRef { asked, child } = claim;
    let detail =
        format!("call {child} of record {asked} is not claimed under this lease, or was settled before");
    Error::new(Kind::ClaimMismatch, detail)
}

/// Deletes the votes and notices of an approval request that is decided.
fn delete_approval_rows(rows: &mut dyn ApprovalWrites, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
    delete_notices(rows, turn, key)?;
    forget_votes(rows, turn, key)
}

fn delete_all_approval_rows(rows: &mut dyn ApprovalWrites, turn: TurnNo) -> Result<(), Error> {
    for row in rows.votes(turn)? {
        rows.delete_vote(&row)?;
    }
    rows.notices(turn)?.iter().try_for_each(|row| delete_notices(rows, turn, &row.key))
}

/// Checks that a wait reads the stored resolution. If there is no resolution yet, stores the one that the wait read.
fn check_resolution(
    rows: &mut dyn Rows,
    turn: &TurnRow,
    key: &ReplayKey,
    read: &Resolution,
) -> Result<(), Error> {
    match rows.resolution(turn.no, key)? {
        Some(first) if first == *read => Ok(()),
        Some(_) => {
            let detail = format!("the wait {key} was resolved in another way while the turn read it");
            Err(Error::new(Kind::TurnRaced, detail))
        }
        None => {
            let row = ResolutionRow { turn: turn.no, key: key.clone(), resolution: read.clone() };
            rows.insert_resolution(&row)?;
            if key.is_approval() { delete_approval_rows(rows, turn.no, key) } else { Ok(()) }
        }
    }
}

/// Makes a queued input part of the running turn.
fn join(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    into: &TurnRow,
    input: TurnId,
    now: Millis,
) -> Result<(), Error> {
    let mut joined = turn_row(rows, input)?;
    // The input joined the turn that this one retries.
    if into.retry_of.is_some() && joined.state == TurnState::Ended {
        return Ok(());
    }
    let here = joined.session == session.no && joined.head == into.head;
    if !here || joined.state != TurnState::Queued {
        let detail = format!("{input} is not queued for `{}` any more, so it cannot join", into.head);
        return Err(Error::new(Kind::TurnRaced, detail));
    }
    session.queued -= 1;
    end_turn(rows, session, &mut joined, TurnEnd::Joined { into: into.id }, now)?;
    rows.put_turn(&joined)
}

fn joins(rows: &dyn TurnRows, session: SessionNo, head: &str) -> Result<bool, Error> {
    Ok(rows.queued(session, usize::MAX)?.iter().any(|turn| turn.joins(head)))
}

fn end_turn(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    end: TurnEnd,
    now: Millis,
) -> Result<(), Error> {
    session.set_last_end(turn.no, end.kind());
    let (place, _) = append(rows, session, Some(turn), Fact::Ended { end }.into(), now)?;
    turn.state = TurnState::Ended;
    turn.ended = Some(place.seq);
    // Only a cancelled turn leaves approval requests behind.
    if turn.cancelled {
        delete_all_approval_rows(rows, turn.no)?;
    }
    Ok(())
}

/// Ends the active turn and moves its head to its last message. Every call must have an outcome, which may be
/// unknown.
fn finish(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    end: TurnEnd,
    now: Millis,
) -> Result<(), Error> {
    if let Some(open) = rows.claims(session.no, turn.no)?.into_iter().find(|claim| !claim.unknown) {
        let detail = format!("the turn cannot end while its call {} has no outcome", open.call);
        return Err(Error::new(Kind::ClaimMismatch, detail));
    }
    rows.put_head(session.no, &turn.head, Some(RecordAddress { session: session.no, seq: turn.last_node }))?;
    end_turn(rows, session, turn, end, now)?;
    session.active = None;
    session.guard = CrashGuard::default();
    Ok(())
}

/// Begins the next queued turn under the same worker and a raised fence, or makes the session idle.
fn next(rows: &mut dyn Rows, session: &mut SessionRow) -> Result<TurnAfterCommit, Error> {
    let waiting = if session.queued > 0 { rows.queued(session.no, 1)? } else { Vec::new() };
    let Some(mut turn) = waiting.into_iter().next() else {
        session.state = SessionState::Idle;
        session.worker = None;
        return Ok(TurnAfterCommit::Ended);
    };
    let lease_request =
        LeaseRequest { worker: required_row("worker", session.worker)?, until: session.lease_until };
    if runs_alone(rows, lease_request.worker, session.no)? {
        session.state = SessionState::Ready;
        session.worker = None;
        return Ok(TurnAfterCommit::Ended);
    }
    begin(rows, session, &mut turn)?;
    lease(session, lease_request);
    let records = lookup::of_turn(rows, session, &turn)?;
    Ok(TurnAfterCommit::Next(Box::new(work_of(rows, session, &turn, records)?)))
}

/// Parks the turn, unless one of its waits is already resolved or due. Check and registration are one transaction, so
/// no wake-up in between is missed.
fn park(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    waits: Vec<Wait>,
    now: Millis,
) -> Result<TurnAfterCommit, Error> {
    if turn.cancelled {
        return Ok(TurnAfterCommit::Ready);
    }
    for wait in &waits {
        let due = wait.deadline.is_some_and(|deadline| deadline <= now);
        let resolved = || Ok::<_, Error>(rows.resolution(turn.no, &wait.key)?.is_some());
        if due || (wait.kind != WaitKind::Sleep && resolved()?) {
            return Ok(TurnAfterCommit::Ready);
        }
    }
    for wait in &waits {
        rows.put_wait(turn.no, wait)?;
    }
    schedule_notices(rows, session, turn, &waits, now)?;
    session.state = SessionState::Parked;
    session.worker = None;
    session.guard = CrashGuard::default();
    session.wake_at = waits.iter().filter_map(|wait| wait.deadline).min().filter(|due| *due <= LATEST);
    append(rows, session, Some(turn), Fact::Parked { waits }.into(), now)?;
    Ok(TurnAfterCommit::Parked)
}

/// A request to stop a turn.
pub struct StopRequest {
    /// The reason.
    pub reason: String,
    /// Whether to undo what the turn did.
    pub undo: bool,
}

/// Asks a turn to stop. The request is recorded as a fact, so it survives a crash.
pub fn cancel(
    rows: &mut dyn Rows,
    turn: TurnId,
    stop: StopRequest,
    now: Millis,
) -> Result<CancelOutcome, Error> {
    let StopRequest { reason, undo } = stop;
    let mut turn = turn_row(rows, turn)?;
    let mut session = required_row("session", rows.session(turn.session)?)?;
    let (act, detail) = (if undo { AuditAction::Abort } else { AuditAction::Cancel }, reason.clone());
    match turn.state {
        TurnState::Ended => return lookup::end_of(rows, &turn).map(CancelOutcome::AlreadyEnded),
        TurnState::Active if turn.cancelled => return Ok(CancelOutcome::Requested),
        TurnState::Queued => {
            let request = Fact::CancelRequested { reason: reason.clone(), undo, abandon: false };
            append(rows, &mut session, Some(&mut turn), request.into(), now)?;
            end_turn(rows, &mut session, &mut turn, TurnEnd::Cancelled { reason }, now)?;
            session.queued -= 1;
            if session.active.is_none() && session.queued == 0 {
                session.state = SessionState::Idle;
            }
        }
        TurnState::Active => {
            let request = Fact::CancelRequested { reason, undo, abandon: false };
            append(rows, &mut session, Some(&mut turn), request.into(), now)?;
            turn.cancelled = true;
            wake(&mut session);
            if session.state == SessionState::Held {
                session.wake_at = Some(now);
            }
        }
    }
    audit_action(rows, AuditedAction { act, org: session.org, subject: &turn.id, detail }, now)?;
    rows.put_turn(&turn)?;
    rows.put_session(&session)?;
    Ok(if turn.state == TurnState::Ended {
        CancelOutcome::EndedBeforeStart
    } else {
        CancelOutcome::Requested
    })
}

/// Makes a parked session ready to be claimed.
fn wake(session: &mut SessionRow) {
    if session.state == SessionState::Parked {
        session.state = SessionState::Ready;
        session.wake_at = None;
    }
}

/// Resolves a wait. The first resolution takes effect, and later calls return it.
pub fn resolve(
    rows: &mut dyn Rows,
    turn: TurnId,
    key: &ReplayKey,
    resolution: Resolution,
    now: Millis,
) -> Result<ResolveResult, Error> {
    let turn = turn_row(rows, turn).map_err(|_| outlast_vocab::wait::CompletionKey::not_found())?;
    if let Some(first) = rows.resolution(turn.no, key)? {
        return Ok(ResolveResult { first, is_yours: false });
    }
    if turn.state == TurnState::Ended {
        return Ok(ResolveResult { first: Resolution::Cancelled, is_yours: false });
    }
    if let Some(approval) = approval_in(key, &resolution) {
        return vote_alone(rows, &turn, key, approval, now);
    }
    let session = required_row("session", rows.session(turn.session)?)?;
    let (act, detail) = resolve_action(rows.access(), key, &resolution)?;
    audit_action(rows, AuditedAction { act, org: session.org, subject: &turn.id, detail }, now)?;
    settle_wait(rows, turn, key, resolution.clone(), now)?;
    Ok(ResolveResult { first: resolution, is_yours: true })
}

/// Returns the vote in a resolution, if the wait is for an approval.
fn approval_in(key: &ReplayKey, resolution: &Resolution) -> Option<Approval> {
    match resolution {
        Resolution::Ok(word) if key.is_approval() => serde_json::from_value(word.clone()).ok(),
        _ => None,
    }
}

/// Resolves a wait that is not resolved yet, of a turn that has not ended.
pub(super) fn settle_wait(
    rows: &mut dyn Rows,
    mut turn: TurnRow,
    key: &ReplayKey,
    resolution: Resolution,
    now: Millis,
) -> Result<(), Error> {
    let mut session = required_row("session", rows.session(turn.session)?)?;
    let fact = Fact::Resolved { key: key.clone(), resolution: resolution.clone() };
    append(rows, &mut session, Some(&mut turn), fact.into(), now)?;
    rows.insert_resolution(&ResolutionRow { turn: turn.no, key: key.clone(), resolution })?;
    if key.is_approval() {
        delete_approval_rows(rows, turn.no, key)?;
    }
    let waits_for_it =
        rows.waits(turn.no)?.iter().any(|wait| wait.key == *key && wait.kind != WaitKind::Sleep);
    if waits_for_it && session.active == Some(turn.no) {
        wake(&mut session);
    }
    rows.put_turn(&turn)?;
    rows.put_session(&session)
}
