//! Votes on approval requests, and approvals for the rest of a session.
use super::notices::given;
use super::orgs::{Deed, note};
use super::outputs::first_wait;
use super::turn::settle_wait;
use super::{lookup, referred, session_row, turn_row};
use crate::page::{Page, rows_for};
use crate::rows::{GrantRow, ReadRows, Rows, SessionRow, TurnNo, TurnRow, VoteRow};
use crate::store::{Resolved, TurnState};
use crate::votes::{Ballot, Grant, Standing, Vote, Voted, held_up};
use outlast_vocab::access::{Access, Act, Principal, Scope};
use outlast_vocab::approval::{Covered, Given, Granted};
use outlast_vocab::id::{GrantId, SessionId, TurnId};
use outlast_vocab::package::Pinned;
use outlast_vocab::policy::{Approval, Ask, Decision, Ruling, Verdict, approved_form};
use outlast_vocab::record::Fact;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey, canon, limits};

/// A pending approval request for a call, or for another action in the form of a call.
struct Question {
    call: PreparedCall,
    is_call: bool,
    ruling: Ruling,
    ask: Ask,
    /// When the request is denied if it is not decided.
    deadline: Option<Millis>,
}

/// Counts a vote, and decides the request if the vote completes it.
pub fn vote(rows: &mut dyn Rows, ballot: Ballot) -> Result<Voted, Error> {
    let Ballot { turn, key, edited, approval, grants_most, now } = ballot;
    let turn = turn_row(rows, turn).map_err(|_| nobody_asks(&key))?;
    if let Some(first) = rows.resolution(turn.no, &key)? {
        return Ok(Voted::Decided(Resolved { first, yours: false }));
    }
    if turn.state == TurnState::Ended {
        return Ok(Voted::Decided(Resolved { first: Resolution::Cancelled, yours: false }));
    }
    may_speak(rows.access(), &approval.by)?;
    let session = referred("session", rows.session(turn.session)?)?;
    let Question { call, is_call, ruling, ask, deadline } = question(rows, &session, &turn, &key)?;
    if deadline.is_some_and(|deadline| deadline <= now) {
        // The worker of the turn has not noticed the deadline yet. Votes are no longer accepted.
        let first = Resolution::Timeout;
        settle_wait(rows, turn, &key, first.clone(), now)?;
        return Ok(Voted::Decided(Resolved { first, yours: false }));
    }
    may_decide(&ask, given(rows, turn.no, &key)?, &approval.by)?;
    let mut votes = votes_on(rows, turn.no, &key)?;
    is_as_shown(&votes, edited)?;
    if let (Verdict::Edit { .. }, false) = (&approval.verdict, is_call) {
        let detail = format!(
            "this is about the {}, not a call; only the arguments of a call can be changed",
            call.tool
        );
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    }
    let vote = Vote { by: approval.by, at: now, verdict: approval.verdict };
    let covered = match vote.verdict {
        Verdict::ApproveForSession => Some(covered(rows, &turn, &key, (&call, &ruling, &ask))?),
        _ => None,
    };
    match &vote.verdict {
        Verdict::Deny { .. } => votes.clear(),
        // Earlier approvals were for the call before this edit.
        Verdict::Edit { .. } => {
            votes.clear();
            forget_votes(rows, turn.no, &key)?;
        }
        Verdict::Approve | Verdict::ApproveForSession => {
            if votes.iter().any(|earlier| earlier.by == vote.by) {
                return Ok(Voted::Counted { votes: votes.len(), of: ask.needed() });
            }
        }
    }
    votes.push(vote.clone());
    let (number, of) = (votes.len(), ask.needed());
    let decides = number >= of || matches!(vote.verdict, Verdict::Deny { .. });
    let all_for_session = votes.iter().all(|vote| vote.verdict == Verdict::ApproveForSession);
    let (act, mut detail) = deed(&vote, all_for_session && decides);
    if of > 1 && act != Act::Deny {
        detail = format!("{detail}; {number} of {of}");
    }
    note(rows, Deed { act, org: session.org, subject: &turn.id, detail }, now)?;
    if !decides {
        rows.put_vote(&VoteRow { turn: turn.no, key, vote })?;
        return Ok(Voted::Counted { votes: number, of });
    }
    if let Some(covered) = covered.filter(|_| all_for_session) {
        let by = votes.iter().map(|vote| vote.by.clone()).collect();
        grant(rows, &session, &covered, (&call, by), grants_most, now)?;
    }
    let first = word(votes, vote)?;
    settle_wait(rows, turn, &key, first.clone(), now)?;
    Ok(Voted::Decided(Resolved { first, yours: true }))
}

/// Counts a vote that came as the resolution of its wait. If several votes are needed, each must be cast as a vote.
pub(super) fn vote_alone(
    rows: &mut dyn Rows,
    turn: &TurnRow,
    key: &ReplayKey,
    approval: Approval,
    now: Millis,
) -> Result<Resolved, Error> {
    let grants_most = limits::Limits::default().grants_per_session;
    let ballot = Ballot { turn: turn.id, key: key.clone(), edited: None, approval, grants_most, now };
    match vote(rows, ballot)? {
        Voted::Decided(resolved) => Ok(resolved),
        Voted::Counted { of, .. } => {
            let detail =
                format!("it takes {of} approvals, each given by itself, and none with a completion key");
            Err(Error::new(Kind::ApprovalForbidden, detail))
        }
    }
}

/// Checks that the caller may vote in this name. Agents never approve. Only the program itself may vote in another
/// name.
pub(super) fn may_speak(access: &Access, by: &str) -> Result<(), Error> {
    if let Principal::Agent(session) = access.by {
        let detail = format!("the agent of {session} may not approve; agents never do");
        return Err(Error::new(Kind::AccessDenied, detail));
    }
    access.need(Scope::Approve)?;
    if access.by != Principal::program() && by != access.by.name() {
        let detail = format!("{} cannot approve in the name of `{by}`", access.by);
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    }
    Ok(())
}

fn may_decide(ask: &Ask, given: Given, by: &str) -> Result<(), Error> {
    let heard = ask.heard(given);
    if heard.is_empty() || heard.contains(&by) {
        return Ok(());
    }
    let detail = format!("`{by}` may not approve this; it takes one of: {}", heard.join(", "));
    Err(Error::new(Kind::ApprovalForbidden, detail))
}

fn nobody_asks(key: &ReplayKey) -> Error {
    Error::new(Kind::ApprovalNotFound, format!("no call waits for an approval at {key}"))
}

fn question(
    rows: &dyn ReadRows,
    session: &SessionRow,
    turn: &TurnRow,
    key: &ReplayKey,
) -> Result<Question, Error> {
    let records = lookup::of_turn(rows, session, turn)?;
    let deadline = first_wait(&records, key).and_then(|(_, wait)| wait.deadline);
    let held = records.into_iter().find_map(|record| {
        let is_call = !matches!(record.fact, Fact::Ruled(_));
        held_up(record, key).map(|(_, call)| (call, is_call))
    });
    let question = held.and_then(|(call, is_call)| {
        let ruling = call.ruling.clone()?;
        match &ruling.decision {
            Decision::Ask(ask) => Some(Question { ask: ask.clone(), call, is_call, ruling, deadline }),
            _ => None,
        }
    });
    question.ok_or_else(|| nobody_asks(key))
}

/// Checks that the voter saw the current arguments. An edit makes it another request.
fn is_as_shown(votes: &[Vote], shown: Option<Hash>) -> Result<(), Error> {
    let Some((by, arguments)) = edit(votes) else {
        return match shown {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::ApprovalNotFound, "nobody has changed these arguments")),
        };
    };
    if shown == Some(canon::fingerprint(arguments)) {
        return Ok(());
    }
    let detail = format!("`{by}` has changed the arguments since they were shown; look at them again");
    Err(Error::new(Kind::ApprovalNotFound, detail))
}

/// Returns the edit that the votes are for, and who made it.
fn edit(votes: &[Vote]) -> Option<(&str, &serde_json::Value)> {
    votes.iter().find_map(|vote| match &vote.verdict {
        Verdict::Edit { arguments } => Some((vote.by.as_str(), arguments)),
        _ => None,
    })
}

fn deed(vote: &Vote, grants: bool) -> (Act, String) {
    let by = &vote.by;
    match &vote.verdict {
        Verdict::ApproveForSession if grants => (Act::Grant, format!("by {by}, for the rest of the session")),
        Verdict::Approve | Verdict::ApproveForSession => (Act::Approve, format!("by {by}")),
        Verdict::Deny { reason } => (Act::Deny, format!("by {by}: {reason}")),
        Verdict::Edit { .. } => (Act::Edit, format!("by {by}, with other arguments")),
    }
}

/// Returns the resolution that these votes decide. `last` is the deciding vote.
fn word(votes: Vec<Vote>, last: Vote) -> Result<Resolution, Error> {
    let verdict = match (&last.verdict, edit(&votes)) {
        (Verdict::Deny { .. }, _) => last.verdict,
        (_, Some((_, arguments))) => Verdict::Edit { arguments: arguments.clone() },
        _ if votes.iter().all(|vote| vote.verdict == Verdict::ApproveForSession) => last.verdict,
        _ => Verdict::Approve,
    };
    let with = votes.into_iter().map(|vote| vote.by).filter(|by| *by != last.by).collect();
    let word = serde_json::to_value(Approval { by: last.by, verdict, with });
    word.map(Resolution::Ok)
        .map_err(|cause| Error::new(Kind::InputInvalid, "the approval does not fit JSON").because(cause))
}

/// Returns the progress of an approval request that is not decided.
pub fn standing(rows: &dyn ReadRows, turn: TurnId, key: &ReplayKey) -> Result<Standing, Error> {
    let turn = turn_row(rows, turn)?.no;
    Ok(Standing { votes: votes_on(rows, turn, key)?, given: given(rows, turn, key)? })
}

fn votes_on(rows: &(impl ReadRows + ?Sized), turn: TurnNo, key: &ReplayKey) -> Result<Vec<Vote>, Error> {
    let votes = rows.votes(turn)?.into_iter().filter(|row| row.key == *key);
    let mut votes: Vec<Vote> = votes.map(|row| row.vote).collect();
    votes.sort_by(|a, b| (a.at, &a.by).cmp(&(b.at, &b.by)));
    Ok(votes)
}

/// Deletes the votes on a request that is decided or was edited.
pub(super) fn forget_votes(rows: &mut dyn Rows, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
    for row in rows.votes(turn)?.into_iter().filter(|row| row.key == *key) {
        rows.delete_vote(&row)?;
    }
    Ok(())
}

/// Returns what an approval for the rest of the session would cover. The tool's definition must be the one from the
/// start of the turn, because the voter saw that one.
fn covered(
    rows: &dyn ReadRows,
    turn: &TurnRow,
    key: &ReplayKey,
    (call, ruling, ask): (&PreparedCall, &Ruling, &Ask),
) -> Result<Covered, Error> {
    if ask.each_time {
        let detail = format!("the rule `{}` asks each time; approve this call alone", ruling.rule);
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    }
    let pinned: Option<Pinned> = serde_json::from_slice(&lookup::package(rows, turn.id)?).ok();
    let contracts = pinned.and_then(|pinned| pinned.contracts).unwrap_or_default();
    let contract = contracts.iter().find(|contract| contract.name == call.tool);
    let definition = contract.map(canon::fingerprint).filter(|definition| {
        key.as_str().ends_with(&approved_form(call, *definition, ruling.version()).to_string())
    });
    let Some(definition) = definition else {
        let detail = format!(
            "`{}` cannot be approved for the session: it is no tool, or its definition or the policy is another than when the \
             turn began; approve it alone",
            call.tool
        );
        return Err(Error::new(Kind::ApprovalForbidden, detail));
    };
    Ok(Covered::by(call.tool.clone(), definition, ruling))
}

fn grant(
    rows: &mut dyn Rows,
    session: &SessionRow,
    covered: &Covered,
    (call, by): (&PreparedCall, Vec<String>),
    most: usize,
    at: Millis,
) -> Result<(), Error> {
    let labels = call.labels.clone();
    let id = covered.grant_in(session.id, &labels);
    let there = rows.session_grants(session.no)?;
    let others = there.iter().filter(|row| row.id != id).count();
    limits::check("grants_per_session", others + 1, most)?;
    let Covered { tool, rule, .. } = covered.clone();
    rows.put_grant(&GrantRow { id, session: session.no, form: covered.form(), tool, rule, labels, by, at })
}

/// Returns the approvals for the rest of a session.
pub fn grants_in(rows: &dyn ReadRows, session: SessionId) -> Result<Vec<Grant>, Error> {
    let session = session_row(rows, session)?;
    let view = |row| view(&session, row);
    Ok(rows.session_grants(session.no)?.into_iter().map(view).collect())
}

/// Returns such approvals of all visible sessions.
pub fn grants(
    rows: &dyn ReadRows,
    after: Option<(Millis, GrantId)>,
    limit: usize,
) -> Result<Page<Grant, (Millis, GrantId)>, Error> {
    let found = rows.grants(rows.access().reach, after, rows_for(limit))?;
    let shown = |row: GrantRow| Ok(Some(view(&referred("session", rows.session(row.session)?)?, row)));
    Page::of(found, limit, |row| (row.at, row.id), shown)
}

fn view(session: &SessionRow, row: GrantRow) -> Grant {
    let GrantRow { id, session: _, form, tool, rule, labels, by, at } = row;
    Grant { id, org: session.org, session: session.id, form, tool, rule, labels, by, at }
}

/// Revokes an approval for the rest of a session.
pub fn revoke_grant(rows: &mut dyn Rows, id: GrantId, now: Millis) -> Result<Grant, Error> {
    let row = rows.grant(id)?.ok_or_else(|| {
        Error::new(Kind::GrantNotFound, format!("nothing is approved for a session under the id {id}"))
    })?;
    let session = referred("session", rows.session(row.session)?)?;
    let detail =
        format!("of `{}` under the rule `{}`, which {} gave", row.tool, row.rule, row.by.join(" and "));
    if let Principal::Agent(session) = rows.access().by {
        let detail = format!("the agent of {session} may not take back what was approved; agents never do");
        return Err(Error::new(Kind::AccessDenied, detail));
    }
    note(rows, Deed { act: Act::RevokeGrant, org: session.org, subject: &id, detail }, now)?;
    rows.delete_grant(id)?;
    Ok(view(&session, row))
}

/// Checks that the approval which allowed a call still exists, in the transaction that claims the call.
pub(super) fn still_granted(rows: &dyn Rows, session: &SessionRow, granted: &Granted) -> Result<(), Error> {
    let row = rows.grant(granted.id)?;
    if row.is_some_and(|row| row.session == session.no && row.form == granted.form) {
        return Ok(());
    }
    let detail = format!("the approval {} was revoked while the call was prepared", granted.id);
    Err(Error::new(Kind::TurnRaced, detail))
}
