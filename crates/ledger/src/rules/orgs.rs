//! Organisations, API keys and the audit log.
use super::votes::check_may_vote_as;
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{AuditQueries, AuditWrites, KeyRow, OrgQueries, OrgRows, ReadRows, Rows};
use outlast_ports::orgs::SealedApiKey;
use outlast_ports::page::Page;
use outlast_views::{AuditRange, AuditRow, KeyView, Org};
use outlast_vocab::access::{Access, ApiKey, AuditAction, OrgVisibility, Scope, Scopes};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::fmt;

/// An action for the audit log.
pub(super) struct AuditedAction<'a> {
    /// The action.
    pub act: AuditAction,
    /// The organisation in which it is done.
    pub org: OrgId,
    /// The object of the action.
    pub subject: &'a dyn fmt::Display,
    /// Further details for people.
    pub detail: String,
}

/// Adds an audit entry in the transaction of the action, and refuses callers without permission.
pub(super) fn audit_action(
    rows: &mut dyn AuditWrites,
    action: AuditedAction<'_>,
    at: Millis,
) -> Result<(), Error> {
    let AuditedAction { act, org, subject, detail } = action;
    let access = rows.access();
    access.require(act.required_scope())?;
    let by = access.by.clone();
    let (act, subject) = (act.name().to_owned(), subject.to_string());
    rows.append_audit(&AuditRow { no: 0, at, org, by, act, subject, detail })
}

/// Returns the action and the details under which resolving a wait is audited.
pub(super) fn resolve_action(
    access: &Access,
    key: &ReplayKey,
    resolution: &Resolution,
) -> Result<(AuditAction, String), Error> {
    let how = match resolution {
        Resolution::Ok(_) => "with a value".to_owned(),
        Resolution::Err(failure) => format!("with the error {}", failure.code.code()),
        Resolution::Timeout => "as timed out".to_owned(),
        Resolution::Cancelled => "as cancelled".to_owned(),
    };
    if key.is_stuck() {
        return Ok((AuditAction::Retry, String::new()));
    }
    if !key.is_approval() {
        return Ok((AuditAction::Resolve, format!("{key} {how}")));
    }
    // A resolution that is not an approval is a denial.
    check_may_vote_as(access, &access.by.name())?;
    Ok((AuditAction::Deny, how))
}

/// Creates an organisation.
pub fn create_org(rows: &mut dyn Rows, org: &Org) -> Result<(), Error> {
    rows.access().require_operator()?;
    if org.name.as_str().starts_with("org_") {
        let detail = format!("expected a name that does not start like an id, got `{}`", org.name);
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
    audit_action(
        rows,
        AuditedAction { act: AuditAction::CreateOrg, org: org.id, subject: &org.id, detail },
        org.created,
    )
}

/// Returns the organisation with this id.
pub fn org(rows: &dyn OrgRows, id: OrgId) -> Result<Org, Error> {
    let found = rows.org(id)?;
    found.ok_or_else(|| Error::new(Kind::OrgNotFound, format!("no organisation has the id {id}")))
}

/// Returns the organisation with this name.
pub fn org_by_name(rows: &dyn OrgRows, name: &str) -> Result<Org, Error> {
    let found = rows.org_by_name(name)?;
    found.ok_or_else(|| Error::new(Kind::OrgNotFound, format!("no organisation is called `{name}`")))
}

/// Returns the visible organisations, by name.
pub fn orgs_after(
    rows: &dyn OrgQueries,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Org, String>, Error> {
    let orgs = rows.orgs(after, rows_to_read(limit))?;
    page_from_rows(orgs, limit, |org| org.name.to_string(), |org| Ok(Some(org)))
}

/// Creates an API key. Its scopes must be within those of the caller.
pub fn create_key(rows: &mut dyn Rows, key: SealedApiKey, now: Millis) -> Result<(), Error> {
    let SealedApiKey { id, org, by, scopes, seal, expires } = key;
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
    audit_action(rows, AuditedAction { act: AuditAction::CreateKey, org, subject: &id, detail }, now)
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
        audit_action(
            rows,
            AuditedAction { act: AuditAction::RevokeKey, org: row.org, subject: &id, detail },
            now,
        )?;
    }
    Ok(row.into())
}

/// Returns the visible API keys.
pub fn keys(
    rows: &dyn OrgQueries,
    after: Option<KeyId>,
    limit: usize,
) -> Result<Page<KeyView, KeyId>, Error> {
    rows.access().require(Scope::Admin)?;
    let keys = rows.keys(rows.access().visibility, after, rows_to_read(limit))?;
    page_from_rows(keys, limit, |row| row.id, |row| Ok(Some(row.into())))
}

/// Returns the access that an API key gives. Refusing an unknown key takes as long as refusing a wrong one.
pub fn authenticate(rows: &dyn ReadRows, key: &ApiKey, now: Millis) -> Result<Access, Error> {
    let row = rows.key(key.id)?;
    let seal = row.as_ref().map_or(Hash::ZERO, |row| row.seal);
    let fits = key.seal(&rows.secret()?).eq_constant_time(&seal);
    let counts = |row: &KeyRow| row.revoked.is_none() && row.expires.is_none_or(|end| now < end);
    match row.filter(|row| fits && counts(row)) {
        Some(KeyRow { org, by, scopes, .. }) => {
            Ok(Access { visibility: OrgVisibility::Org(org), by, scopes })
        }
        None => Err(ApiKey::invalid()),
    }
}

/// Returns the entries of the audit log, in order.
pub fn audit(rows: &dyn AuditQueries, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
    rows.access().require(Scope::Admin)?;
    rows.audit(rows.access().visibility, range)
}
