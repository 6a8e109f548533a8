//! Organisations, API keys and the audit log.
use super::votes::may_speak;
use crate::orgs::{AuditRange, KeyView, NewKey, Org};
use crate::page::{Page, rows_for};
use crate::rows::{AuditRow, KeyRow, ReadRows, Rows};
use outlast_vocab::access::{Access, Act, ApiKey, Reach, Scope, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::fmt;

/// An action for the audit log.
pub(super) struct Deed<'a> {
    /// The action.
    pub act: Act,
    /// The organisation in which it is done.
    pub org: OrgId,
    /// The object of the action.
    pub subject: &'a dyn fmt::Display,
    /// Further details for people.
    pub detail: String,
}

/// Adds an audit entry in the transaction of the action, and refuses callers without permission.
pub(super) fn note(rows: &mut dyn Rows, deed: Deed<'_>, at: Millis) -> Result<(), Error> {
    let Deed { act, org, subject, detail } = deed;
    let access = rows.access();
    access.need(act.needs())?;
    let by = access.by.clone();
    let (act, subject) = (act.name().to_owned(), subject.to_string());
    rows.note(&AuditRow { no: 0, at, org, by, act, subject, detail })
}

/// Returns the action and the details under which resolving a wait is audited.
pub(super) fn resolving(
    access: &Access,
    key: &ReplayKey,
    resolution: &Resolution,
) -> Result<(Act, String), Error> {
    let how = match resolution {
        Resolution::Ok(_) => "with a value".to_owned(),
        Resolution::Err(failure) => format!("with the error {}", failure.code.code()),
        Resolution::Timeout => "as timed out".to_owned(),
        Resolution::Cancelled => "as cancelled".to_owned(),
    };
    if key.is_stuck() {
        return Ok((Act::Retry, String::new()));
    }
    if !key.is_approval() {
        return Ok((Act::Resolve, format!("{key} {how}")));
    }
    // A resolution that is not an approval is a denial.
    may_speak(access, &access.by.name())?;
    Ok((Act::Deny, how))
}

/// Creates an organisation.
pub fn create_org(rows: &mut dyn Rows, org: &Org) -> Result<(), Error> {
    rows.access().need_everything()?;
    if org.name.as_str().starts_with("org_") {
        let detail = format!("expected a name that does not begin like an id, got `{}`", org.name);
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    if rows.org_by_name(org.name.as_str())?.is_some() {
        let detail = format!("an organisation is called `{}` already", org.name);
        return Err(Error::new(Kind::InputKeyReused, detail));
    }
    if rows.org(org.id)?.is_some() {
        return Err(crate::rows::taken(org.id));
    }
    rows.insert_org(org)?;
    let detail = org.name.to_string();
    note(rows, Deed { act: Act::CreateOrg, org: org.id, subject: &org.id, detail }, org.created)
}

/// Returns the organisation with this id.
pub fn org(rows: &dyn ReadRows, id: OrgId) -> Result<Org, Error> {
    let found = rows.org(id)?;
    found.ok_or_else(|| Error::new(Kind::OrgNotFound, format!("no organisation has the id {id}")))
}

/// Returns the organisation with this name.
pub fn org_by_name(rows: &dyn ReadRows, name: &str) -> Result<Org, Error> {
    let found = rows.org_by_name(name)?;
    found.ok_or_else(|| Error::new(Kind::OrgNotFound, format!("no organisation is called `{name}`")))
}

/// Returns the visible organisations, by name.
pub fn orgs_after(
    rows: &dyn ReadRows,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Org, String>, Error> {
    let orgs = rows.orgs(after, rows_for(limit))?;
    Page::of(orgs, limit, |org| org.name.to_string(), |org| Ok(Some(org)))
}

/// Creates an API key. Its scopes must be within those of the caller.
pub fn create_key(rows: &mut dyn Rows, key: NewKey, now: Millis) -> Result<(), Error> {
    let NewKey { id, org, by, scopes, seal, expires } = key;
    self::org(rows, org)?;
    let most = rows.access().scopes;
    if scopes == Scopes::NONE || !scopes.is_within(most) {
        let detail =
            format!("expected scopes among `{most}`, which is what {} has, got `{scopes}`", rows.access().by);
        return Err(Error::new(Kind::AccessDenied, detail));
    }
    if rows.key(id)?.is_some() {
        return Err(crate::rows::taken(id));
    }
    let detail = format!("for {by}, may {scopes}");
    rows.put_key(&KeyRow { id, org, by, scopes, seal, created: now, expires, revoked: None })?;
    note(rows, Deed { act: Act::CreateKey, org, subject: &id, detail }, now)
}

/// Revokes an API key. A key that was already revoked stays unchanged.
pub fn revoke_key(rows: &mut dyn Rows, id: KeyId, now: Millis) -> Result<KeyView, Error> {
    let found = rows.key(id)?;
    let mut row =
        found.ok_or_else(|| Error::new(Kind::KeyNotFound, format!("no API key has the id {id}")))?;
    if row.revoked.is_none() {
        row.revoked = Some(now);
        rows.put_key(&row)?;
        let detail = format!("of {}", row.by);
        note(rows, Deed { act: Act::RevokeKey, org: row.org, subject: &id, detail }, now)?;
    }
    Ok(row.into())
}

/// Returns the visible API keys.
pub fn keys(rows: &dyn ReadRows, after: Option<KeyId>, limit: usize) -> Result<Page<KeyView, KeyId>, Error> {
    rows.access().need(Scope::Admin)?;
    let keys = rows.keys(rows.access().reach, after, rows_for(limit))?;
    Page::of(keys, limit, |row| row.id, |row| Ok(Some(row.into())))
}

/// Returns the access that an API key gives. Refusing an unknown key takes as long as refusing a wrong one.
pub fn admit(rows: &dyn ReadRows, key: &ApiKey, now: Millis) -> Result<Access, Error> {
    let row = rows.key(key.id)?;
    let kept = row.as_ref().map_or(Hash::ZERO, |row| row.seal);
    let fits = key.seal(&rows.secret()?).same_signature(&kept);
    let counts = |row: &KeyRow| row.revoked.is_none() && row.expires.is_none_or(|end| now < end);
    match row.filter(|row| fits && counts(row)) {
        Some(KeyRow { org, by, scopes, .. }) => Ok(Access { reach: Reach::Org(org), by, scopes }),
        None => Err(ApiKey::invalid()),
    }
}

/// Returns the entries of the audit log, in order.
pub fn audit(rows: &dyn ReadRows, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
    rows.access().need(Scope::Admin)?;
    rows.audit(rows.access().reach, range)
}
