//! Votes on approval requests, and approvals for the rest of a session.
use super::notices::sent_notices;
use super::orgs::{AuditedAction, audit_action};
use super::outputs::first_wait;
use super::turn::settle_wait;
use super::{lookup, required_row, session_row, turn_row};
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{
    ApprovalRows, ApprovalWrites, GrantRow, QueryRows, ReadRows, Rows, SessionRow, TurnRow, VoteRow,
};
use outlast_ports::page::Page;
use outlast_ports::turns::TurnNo;
use outlast_ports::votes::{VoteRequest, call_awaiting_approval};
use outlast_views::{ApprovalProgress, ResolveResult, SessionGrant, TurnState, Vote, VoteOutcome};
use outlast_vocab::access::{Access, AuditAction, Principal, Scope};
use outlast_vocab::approval::{AppliedGrant, GrantScope, SentNotices};
use outlast_vocab::id::{GrantId, SessionId, TurnId};
use outlast_vocab::label::Labels;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::policy::{
    Approval, ApprovalRequirement, ApprovalVerdict, PolicyDecision, RecordedDecision,
    approved_call_fingerprint,
};
use outlast_vocab::record::Fact;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey, canonical_json, limits};

/// A pending approval request for a call, or for another action in the form of a call.
struct PendingApproval {
    call: PreparedCall,
    is_call: bool,
    ruling: RecordedDecision,
    ask: ApprovalRequirement,
    /// When the request is denied if it is not decided.
    deadline: Option<Millis>,
}

/// Counts a vote, and decides the request if the vote completes it.
pub fn vote(rows: &mut dyn Rows, ballot: VoteRequest) -> Result<VoteOutcome, Error> {
    let VoteRequest { turn, key, edited, approval, session_grants_max: grants_most, now } = ballot;
    let turn = turn_row(rows, turn).map_err(|_| no_pending_approval(&key))?;
    if let Some(first) = rows.resolution(turn.no, &key)? {
        return Ok(VoteOutcome::Decided(ResolveResult { first, is_yours: false }));
    }
    if turn.state == TurnState::Ended {
        return Ok(VoteOutcome::Decided(ResolveResult { first: Resolution::Cancelled, is_yours: false }));
    }
    check_may_vote_as(rows.access(), &approval.by)?;
    let session = required_row("session", rows.session(turn.session)?)?;
    let PendingApproval { call, is_call, ruling, ask, deadline } =
        pending_approval(rows, &session, &turn, &key)?;
    if deadline.is_some_and(|deadline| deadline <= now) {
        // The worker of the turn has not noticed the deadline yet. Votes are no longer accepted.
        let first = Resolution::Timeout;
        settle_wait(rows, turn, &key, first.clone(), now)?;
        return Ok(VoteOutcome::Decided(ResolveResult { first, is_yours: false }));
    }
    check_is_approver(&ask, sent_notices(rows, turn.no, &key)?, &approval.by)?;
    let mut votes = votes_on(rows, turn.no, &key)?;
    check_saw_arguments(&votes, edited)?;
    if let (ApprovalVerdict::Edit { .. }, false) = (&approval.verdict, is_call) {
        let detail = format!(
            "this is about the {}, not a call; only the arguments of a call can be changed",
            call.tool
        );
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    }
    let vote = Vote { by: approval.by, at: now, verdict: approval.verdict };
    let covered = match vote.verdict {
        ApprovalVerdict::ApproveForSession => Some(grant_scope(rows, &turn, &key, &call, &ruling, &ask)?),
        _ => None,
    };
    match &vote.verdict {
        ApprovalVerdict::Deny { .. } => votes.clear(),
        // Earlier approvals were for the call before this edit.
        ApprovalVerdict::Edit { .. } => {
            votes.clear();
            forget_votes(rows, turn.no, &key)?;
        }
        ApprovalVerdict::Approve | ApprovalVerdict::ApproveForSession => {
            if votes.iter().any(|earlier| earlier.by == vote.by) {
                return Ok(VoteOutcome::MoreNeeded { votes: votes.len(), of: ask.approvals_needed() });
            }
        }
    }
    votes.push(vote.clone());
    let (number, of) = (votes.len(), ask.approvals_needed());
    let decides = number >= of || matches!(vote.verdict, ApprovalVerdict::Deny { .. });
    let all_for_session = votes.iter().all(|vote| vote.verdict == ApprovalVerdict::ApproveForSession);
    let (act, mut detail) = audit_of(&vote, all_for_session && decides);
    if of > 1 && act != AuditAction::Deny {
        detail = format!("{detail}; {number} of {of}");
    }
    audit_action(rows, AuditedAction { act, org: session.org, subject: &turn.id, detail }, now)?;
    if !decides {
        rows.put_vote(&VoteRow { turn: turn.no, key, vote })?;
        return Ok(VoteOutcome::MoreNeeded { votes: number, of });
    }
    if let Some(covered) = covered.filter(|_| all_for_session) {
        let by = votes.iter().map(|vote| vote.by.clone()).collect();
        let grant = NewGrant { scope: covered, labels: call.labels.clone(), by, at: now };
        put_grant(rows, &session, grant, grants_most)?;
    }
    let first = resolution_of(votes, vote)?;
    settle_wait(rows, turn, &key, first.clone(), now)?;
    Ok(VoteOutcome::Decided(ResolveResult { first, is_yours: true }))
}

/// Counts a vote that came as the resolution of its wait. If several votes are needed, each must be cast as a vote.
pub(super) fn vote_alone(
    rows: &mut dyn Rows,
    turn: &TurnRow,
    key: &ReplayKey,
    approval: Approval,
    now: Millis,
) -> Result<ResolveResult, Error> {
    let grants_most = limits::Limits::default().grants_per_session;
    let ballot = VoteRequest {
        turn: turn.id,
        key: key.clone(),
        edited: None,
        approval,
        session_grants_max: grants_most,
        now,
    };
    match vote(rows, ballot)? {
        VoteOutcome::Decided(resolved) => Ok(resolved),
        VoteOutcome::MoreNeeded { of, .. } => {
            let detail =
                format!("it requires {of} approvals, each given separately, and none with a completion key");
            Err(Error::new(Kind::ApprovalForbidden, detail))
        }
    }
}

/// Checks that the caller may vote in this name. Agents never approve. Only the program itself may vote in another
/// name.
pub(super) fn check_may_vote_as(access: &Access, by: &str) -> Result<(), Error> {
    if let Principal::Agent(session) = access.by {
        let detail = format!("the agent of {session} may not approve; agents cannot approve calls");
        return Err(Error::new(Kind::AccessDenied, detail));
    }
    access.require(Scope::Approve)?;
    if access.by != Principal::program() && by != access.by.name() {
        let detail = format!("{} cannot approve in the name of `{by}`", access.by);
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    }
    Ok(())
}

fn check_is_approver(ask: &ApprovalRequirement, given: SentNotices, by: &str) -> Result<(), Error> {
    let approvers = ask.approvers(given);
    if approvers.is_empty() || approvers.contains(&by) {
        return Ok(());
    }
    let detail = format!("`{by}` may not approve this; allowed: {}", approvers.join(", "));
    Err(Error::new(Kind::ApprovalForbidden, detail))
}

fn no_pending_approval(key: &ReplayKey) -> Error {
    Error::new(Kind::ApprovalNotFound, format!("no call waits for an approval at {key}"))
}

fn pending_approval(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
    key: &ReplayKey,
) -> Result<PendingApproval, Error> {
    let records = lookup::of_turn(rows, session, turn)?;
    let deadline = first_wait(&records, key).and_then(|(_, wait)| wait.deadline);
    let held = records.into_iter().find_map(|record| {
        let is_call = !matches!(record.fact, Fact::Ruled(_));
        call_awaiting_approval(record, key).map(|(_, call)| (call, is_call))
    });
    let question = held.and_then(|(call, is_call)| {
        let ruling = call.ruling.clone()?;
        match &ruling.decision {
            PolicyDecision::Ask(ask) => {
                Some(PendingApproval { ask: ask.clone(), call, is_call, ruling, deadline })
            }
            _ => None,
        }
    });
    question.ok_or_else(|| no_pending_approval(key))
}

/// Checks that the voter saw the current arguments. An edit makes it another request.
fn check_saw_arguments(votes: &[Vote], shown: Option<Hash>) -> Result<(), Error> {
    let Some((by, arguments)) = edit(votes) else {
        return match shown {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::ApprovalNotFound, "these arguments were not edited")),
        };
    };
    if shown == Some(canonical_json::fingerprint(arguments)) {
        return Ok(());
    }
    let detail = format!("`{by}` has changed the arguments since they were shown; review them again");
    Err(Error::new(Kind::ApprovalNotFound, detail))
}

/// Returns the edit that the votes are for, and who made it.
fn edit(votes: &[Vote]) -> Option<(&str, &serde_json::Value)> {
    votes.iter().find_map(|vote| match &vote.verdict {
        ApprovalVerdict::Edit { arguments } => Some((vote.by.as_str(), arguments)),
        _ => None,
    })
}

fn audit_of(vote: &Vote, grants: bool) -> (AuditAction, String) {
    let by = &vote.by;
    match &vote.verdict {
        ApprovalVerdict::ApproveForSession if grants => {
            (AuditAction::Grant, format!("by {by}, for the rest of the session"))
        }
        ApprovalVerdict::Approve | ApprovalVerdict::ApproveForSession => {
            (AuditAction::Approve, format!("by {by}"))
        }
        ApprovalVerdict::Deny { reason } => (AuditAction::Deny, format!("by {by}: {reason}")),
        ApprovalVerdict::Edit { .. } => (AuditAction::Edit, format!("by {by}, with other arguments")),
    }
}

/// Returns the resolution that these votes decide. `last` is the deciding vote.
fn resolution_of(votes: Vec<Vote>, last: Vote) -> Result<Resolution, Error> {
    let verdict = match (&last.verdict, edit(&votes)) {
        (ApprovalVerdict::Deny { .. }, _) => last.verdict,
        (_, Some((_, arguments))) => ApprovalVerdict::Edit { arguments: arguments.clone() },
        _ if votes.iter().all(|vote| vote.verdict == ApprovalVerdict::ApproveForSession) => last.verdict,
        _ => ApprovalVerdict::Approve,
    };
    let with = votes.into_iter().map(|vote| vote.by).filter(|by| *by != last.by).collect();
    let approval = serde_json::to_value(Approval { by: last.by, verdict, with });
    approval.map(Resolution::Ok).map_err(|cause| {
        Error::new(Kind::InputInvalid, "the approval cannot be written as JSON").because(cause)
    })
}

/// Returns the progress of an approval request that is not decided.
pub fn approval_progress(
    rows: &dyn ReadRows,
    turn: TurnId,
    key: &ReplayKey,
) -> Result<ApprovalProgress, Error> {
    let turn = turn_row(rows, turn)?.no;
    Ok(ApprovalProgress { votes: votes_on(rows, turn, key)?, given: sent_notices(rows, turn, key)? })
}

fn votes_on(rows: &dyn ApprovalRows, turn: TurnNo, key: &ReplayKey) -> Result<Vec<Vote>, Error> {
    let votes = rows.votes(turn)?.into_iter().filter(|row| row.key == *key);
    let mut votes: Vec<Vote> = votes.map(|row| row.vote).collect();
    votes.sort_by(|a, b| (a.at, &a.by).cmp(&(b.at, &b.by)));
    Ok(votes)
}

/// Deletes the votes on a request that is decided or was edited.
pub(super) fn forget_votes(
    rows: &mut dyn ApprovalWrites,
    turn: TurnNo,
    key: &ReplayKey,
) -> Result<(), Error> {
    for row in rows.votes(turn)?.into_iter().filter(|row| row.key == *key) {
        rows.delete_vote(&row)?;
    }
    Ok(())
}

/// Returns what an approval for the rest of the session would cover. The tool's definition must be the one from the
/// start of the turn, because the voter saw that one.
fn grant_scope(
    rows: &dyn ReadRows,
    turn: &TurnRow,
    key: &ReplayKey,
    call: &PreparedCall,
    ruling: &RecordedDecision,
    ask: &ApprovalRequirement,
) -> Result<GrantScope, Error> {
    if ask.each_time {
        let detail =
            format!("the rule `{}` requires an approval for each call; approve only this call", ruling.rule);
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    }
    let pinned: Option<PinnedPackage> = serde_json::from_slice(&lookup::package(rows, turn.id)?).ok();
    let contracts = pinned.and_then(|pinned| pinned.contracts).unwrap_or_default();
    let contract = contracts.iter().find(|contract| contract.name == call.tool);
    let definition = contract.map(canonical_json::fingerprint).filter(|definition| {
        key.as_str().ends_with(&approved_call_fingerprint(call, *definition, ruling.version()).to_string())
    });
    let Some(definition) = definition else {
        let detail = format!(
            "`{}` cannot be approved for the session: it is not a tool, or its definition or the policy has changed since the turn began; approve only this call",
            call.tool
        );
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    };
    Ok(GrantScope::by(call.tool.clone(), definition, ruling))
}

/// An approval for the rest of a session.
struct NewGrant {
    scope: GrantScope,
    /// The labels that the calls may have.
    labels: Labels,
    /// The approvers.
    by: Vec<String>,
    at: Millis,
}

fn put_grant(
    rows: &mut dyn ApprovalWrites,
    session: &SessionRow,
    grant: NewGrant,
    most: usize,
) -> Result<(), Error> {
    let NewGrant { scope, labels, by, at } = grant;
    let id = scope.grant_in(session.id, &labels);
    let there = rows.session_grants(session.no)?;
    let others = there.iter().filter(|row| row.id != id).count();
    limits::check("grants_per_session", others + 1, most)?;
    let form = scope.fingerprint();
    let GrantScope { tool, rule, .. } = scope;
    rows.put_grant(&GrantRow { id, session: session.no, form, tool, rule, labels, by, at })
}

/// Returns the approvals for the rest of a session.
pub fn session_grants(rows: &dyn ReadRows, session: SessionId) -> Result<Vec<SessionGrant>, Error> {
    let session = session_row(rows, session)?;
    let view = |row| view(&session, row);
    Ok(rows.session_grants(session.no)?.into_iter().map(view).collect())
}

/// Returns such approvals of all visible sessions.
pub fn grants(
    rows: &dyn QueryRows,
    after: Option<(Millis, GrantId)>,
    limit: usize,
) -> Result<Page<SessionGrant, (Millis, GrantId)>, Error> {
    let found = rows.grants(rows.access().visibility, after, rows_to_read(limit))?;
    let shown = |row: GrantRow| Ok(Some(view(&required_row("session", rows.session(row.session)?)?, row)));
    page_from_rows(found, limit, |row| (row.at, row.id), shown)
}

fn view(session: &SessionRow, row: GrantRow) -> SessionGrant {
    let GrantRow { id, session: _, form, tool, rule, labels, by, at } = row;
    SessionGrant { id, org: session.org, session: session.id, covers_form: form, tool, rule, labels, by, at }
}

/// Revokes an approval for the rest of a session.
pub fn revoke_grant(rows: &mut dyn Rows, id: GrantId, now: Millis) -> Result<SessionGrant, Error> {
    let row = rows.grant(id)?.ok_or_else(|| {
        Error::new(Kind::GrantNotFound, format!("nothing is approved for a session under the id {id}"))
    })?;
    let session = required_row("session", rows.session(row.session)?)?;
    let detail =
        format!("of `{}` under the rule `{}`, which {} gave", row.tool, row.rule, row.by.join(" and "));
    if let Principal::Agent(session) = rows.access().by {
        let detail = format!("the agent of {session} may not revoke an approval; agents cannot");
        return Err(Error::new(Kind::AccessDenied, detail));
    }
    audit_action(
        rows,
        AuditedAction { act: AuditAction::RevokeGrant, org: session.org, subject: &id, detail },
        now,
    )?;
    rows.delete_grant(id)?;
    Ok(view(&session, row))
}

/// Checks that the approval which allowed a call still exists, in the transaction that claims the call.
pub(super) fn check_grant_exists(
    rows: &dyn ApprovalRows,
    session: &SessionRow,
    granted: &AppliedGrant,
) -> Result<(), Error> {
    let row = rows.grant(granted.id)?;
    if row.is_some_and(|row| row.session == session.no && row.form == granted.form) {
        return Ok(());
    }
    let detail = format!("the approval {} was revoked while the call was prepared", granted.id);
    Err(Error::new(Kind::TurnRaced, detail))
}
