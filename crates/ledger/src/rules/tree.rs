//! Forks, rewinds and deletes sessions, and settles calls of unknown outcome.
use super::external_content::count_another_use;
use super::orgs::{AuditedAction, audit_action};
use super::payment_outbox::{check_no_pending_payments, decide_payments};
use super::{append, empty_session, lookup, required_row, session_row, turn_by_no};
use crate::rows::{
    AttachmentRow, ClaimRow, ContentWrites, RecordAddress, Rows, SessionNo, SessionRow, ValueWrites,
};
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_views::{BlobLocation, ForkTo, SessionState};
use outlast_vocab::access::AuditAction;
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::{CallId, SessionId};
use outlast_vocab::record::{CallSettled, Fact, OutcomeVerdict, Seq};
use outlast_vocab::{Error, Kind, Limits, Millis, limits};

/// Creates a new head or a new session at a message. No message is copied: the branch refers to the one it follows.
/// Claims are not forked, so a fork never runs a call twice. Values are not versioned, so a session gets its parent's
/// values only if it begins at a head of the parent.
pub fn fork(rows: &mut dyn Rows, fork: ForkRequest) -> Result<SessionId, Error> {
    let ForkRequest { from, at, to, now } = fork;
    let mut parent = session_row(rows, from)?;
    let node = match at {
        Some(seq) => Some(lookup::message(rows, &parent, seq)?),
        None => required_row("head", rows.head(parent.no, MAIN_HEAD)?)?,
    };
    match to {
        ForkTo::Head(name) => {
            limits::check("key_bytes", name.len(), Limits::default().key_bytes)?;
            if rows.head(parent.no, &name)?.is_some() {
                let detail = format!("session {from} has a head `{name}` already; rewind moves it");
                return Err(Error::new(Kind::InputKeyReused, detail));
            }
            let action = AuditedAction {
                act: AuditAction::Fork,
                org: parent.org,
                subject: &from,
                detail: format!("to the head `{name}`"),
            };
            audit_action(rows, action, now)?;
            move_head(rows, &mut parent, &name, node, now)?;
            Ok(parent.id)
        }
        ForkTo::Session { fresh, key } => {
            limits::check("key_bytes", key.as_ref().map_or(0, String::len), Limits::default().key_bytes)?;
            if let Some(key) = &key
                && rows.session_by_key(parent.org, key)?.is_some()
            {
                return Err(Error::new(
                    Kind::InputKeyReused,
                    format!("a session has the key `{key}` already"),
                ));
            }
            let session = open_fork(rows, &parent, node, fresh, key, now)?;
            if rows.heads(parent.no)?.iter().any(|(_, stands)| *stands == node) {
                copy_values(rows, parent.no, session.no)?;
            }
            let action = AuditedAction {
                act: AuditAction::Fork,
                org: parent.org,
                subject: &from,
                detail: format!("to {fresh}"),
            };
            audit_action(rows, action, now)?;
            Ok(session.id)
        }
    }
}

/// Opens a session that branches off another one at a message. It belongs to the organisation of its parent.
fn open_fork(
    rows: &mut dyn Rows,
    parent: &SessionRow,
    node: Option<RecordAddress>,
    fresh: SessionId,
    key: Option<String>,
    now: Millis,
) -> Result<SessionRow, Error> {
    let begun = empty_session(fresh, parent.org, key.clone(), now);
    let mut session = SessionRow { forked_from: node, ..begun };
    session.no = rows.insert_session(&session)?;
    rows.put_head(session.no, MAIN_HEAD, node)?;
    let forked_from = node.map(|node| lookup::node_ref(rows, node)).transpose()?;
    append(rows, &mut session, None, Fact::Opened { key, forked_from }.into(), now)?;
    rows.put_session(&session)?;
    Ok(session)
}

/// Opens the session of a retry. It gets its parent's values, because calls that are not repeated have written them.
/// If it branches off before the first message, it has no link to its parent, so it gets the attachments too.
pub(super) fn fork_session(
    rows: &mut dyn Rows,
    parent: &SessionRow,
    node: Option<RecordAddress>,
    fresh: SessionId,
    now: Millis,
) -> Result<SessionRow, Error> {
    let session = open_fork(rows, parent, node, fresh, None, now)?;
    copy_values(rows, parent.no, session.no)?;
    if node.is_none() {
        copy_attachments(rows, parent.no, session.no)?;
    }
    Ok(session)
}

fn copy_attachments(rows: &mut dyn ContentWrites, from: SessionNo, to: SessionNo) -> Result<(), Error> {
    for row in rows.attachments(from, None, usize::MAX)? {
        let content = row.attachment.content;
        match row.location {
            BlobLocation::Database => {
                let bytes = lookup::blob(rows, content)?;
                rows.put_blob(content, &bytes)?;
            }
            BlobLocation::Outside => count_another_use(rows, content)?,
        }
        rows.insert_attachment(&AttachmentRow { session: to, ..row })?;
    }
    Ok(())
}

fn copy_values(rows: &mut dyn ValueWrites, from: SessionNo, to: SessionNo) -> Result<(), Error> {
    for name in rows.value_names(from, "", usize::MAX)? {
        let json = rows.value(from, &name)?;
        rows.put_value(to, &name, json.as_deref())?;
    }
    Ok(())
}

/// Moves a head to an earlier message, or to the start of the session. The messages after it are kept.
pub fn rewind(
    rows: &mut dyn Rows,
    session: SessionId,
    head: &str,
    to: Option<Seq>,
    now: Millis,
) -> Result<(), Error> {
    let mut session = session_row(rows, session)?;
    check_is_idle(&session)?;
    if rows.head(session.no, head)?.is_none() {
        return Err(Error::new(Kind::NodeNotFound, format!("session {} has no head `{head}`", session.id)));
    }
    let node = match to {
        Some(seq) => Some(lookup::message(rows, &session, seq)?),
        None => session.forked_from,
    };
    let place = to.map_or_else(|| "its beginning".to_owned(), |seq| format!("message {seq}"));
    let detail = format!("the head `{head}` to {place}");
    audit_action(
        rows,
        AuditedAction { act: AuditAction::Rewind, org: session.org, subject: &session.id, detail },
        now,
    )?;
    move_head(rows, &mut session, head, node, now)
}

pub(super) fn move_head(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    head: &str,
    node: Option<RecordAddress>,
    now: Millis,
) -> Result<(), Error> {
    rows.put_head(session.no, head, node)?;
    let to = node.map(|node| lookup::node_ref(rows, node)).transpose()?;
    append(rows, session, None, Fact::HeadMoved { head: head.to_owned(), to }.into(), now)?;
    rows.put_session(session)
}

fn check_is_idle(session: &SessionRow) -> Result<(), Error> {
    if session.state == SessionState::Idle {
        return Ok(());
    }
    let detail =
        format!("session {} is {}; cancel its turn or wait for its end", session.id, session.state.name());
    Err(Error::new(Kind::SessionBusy, detail))
}

/// Deletes a session and everything that only it uses.
pub fn delete(rows: &mut dyn Rows, session: SessionId, now: Millis) -> Result<(), Error> {
    let session = session_row(rows, session)?;
    check_is_idle(&session)?;
    let forks = rows.forks(session.no)?;
    if !forks.is_empty() {
        let names: Vec<String> = forks.iter().map(ToString::to_string).collect();
        let detail =
            format!("{} still need the history of {}; delete them first", names.join(", "), session.id);
        return Err(Error::new(Kind::SessionHasForks, detail));
    }
    check_no_pending_payments(rows, &session)?;
    super::search::unindex_session(rows, &session)?;
    rows.delete_budget_account(session.org, &BudgetAccount::Session(session.id).to_string())?;
    let detail = session.key.map_or_else(String::new, |key| format!("with the key `{key}`"));
    audit_action(
        rows,
        AuditedAction { act: AuditAction::Delete, org: session.org, subject: &session.id, detail },
        now,
    )?;
    rows.delete_session(session.no)
}

/// Records the outcome of a call whose outcome was unknown. The transcript then shows it, and the money that the call
/// reserved is paid or released.
pub fn settle(
    rows: &mut dyn Rows,
    call: CallId,
    verdict: &OutcomeVerdict,
    now: Millis,
) -> Result<SessionId, Error> {
    let claims = rows.unknown(rows.access().visibility, None, usize::MAX)?;
    let claims: Vec<ClaimRow> = claims.into_iter().filter(|claim| claim.call == call).collect();
    let Some(first) = claims.first() else {
        let detail =
            format!("no call with the id {call} has an unknown outcome; `outlast unknown` lists them");
        return Err(Error::new(Kind::ClaimNotFound, detail));
    };
    let session = required_row("session", rows.session(first.session)?)?;
    let detail = match verdict {
        OutcomeVerdict::Happened(_) => "it happened",
        OutcomeVerdict::DidNotHappen => "it did not happen",
    };
    let detail = detail.to_owned();
    audit_action(
        rows,
        AuditedAction { act: AuditAction::Settle, org: session.org, subject: &call, detail },
        now,
    )?;
    // Retries of a turn share its unknown calls. Each is one call, so one verdict settles all its claims.
    for claim in &claims {
        settle_claim(rows, claim, verdict, now)?;
    }
    Ok(session.id)
}

fn settle_claim(
    rows: &mut dyn Rows,
    claim: &ClaimRow,
    verdict: &OutcomeVerdict,
    now: Millis,
) -> Result<(), Error> {
    let mut session = required_row("session", rows.session(claim.session)?)?;
    let mut turn = turn_by_no(rows, claim.turn)?;
    rows.delete_claim(claim.session, claim.claim)?;
    decide_payments(rows, &mut session, &mut turn, claim, verdict, now)?;
    let fact = Fact::Settled(CallSettled { claim: claim.claim, verdict: verdict.clone() });
    append(rows, &mut session, Some(&mut turn), fact.into(), now)?;
    rows.put_turn(&turn)?;
    rows.put_session(&session)
}
