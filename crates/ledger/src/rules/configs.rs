//! Stores versions of agents, harnesses and capabilities. A version never changes.
use super::orgs::{AuditedAction, audit_action};
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{ConfigQueries, ConfigRow, ConfigRows, Rows};
use outlast_ports::page::Page;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::access::{AuditAction, Scope};
use outlast_vocab::limits::{self, CONFIG_BYTES, Limits};
use outlast_vocab::{Error, Kind, Millis, canonical_json};
use serde_json::Value;

/// The body of a version that marks a deletion.
const DELETED: &str = "null";

/// Stores a new version, unless the latest one has the same content.
pub fn put_config(
    rows: &mut dyn Rows,
    kind: ConfigKind,
    name: &str,
    body: &Value,
    now: Millis,
) -> Result<StoredConfig, Error> {
    if name.is_empty() || name.chars().any(|c| c.is_control() || c == '/') {
        let detail = format!("expected the name of an {kind} without slashes, got `{name}`");
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    limits::check("key_bytes", name.len(), Limits::default().key_bytes)?;
    kind.check(name, body)?;
    let json = canonical_json::to_string(body);
    limits::check("config_bytes", json.len(), CONFIG_BYTES)?;
    let (org, fingerprint) = (rows.access().visibility.home(), canonical_json::fingerprint(body));
    let last = rows.config(org, kind, name)?;
    if let Some(last) = last.as_ref().filter(|last| last.fingerprint == fingerprint) {
        rows.access().require(Scope::Read)?;
        return stored(last);
    }
    let version = last.map_or(1, |last| last.version + 1);
    let row = ConfigRow { org, kind, name: name.to_owned(), version, fingerprint, body: json, at: now };
    insert(rows, &row, AuditAction::PutConfig)
}

/// Inserts a version and an audit entry.
fn insert(rows: &mut dyn Rows, row: &ConfigRow, act: AuditAction) -> Result<StoredConfig, Error> {
    let ConfigRow { org, kind, name, version, at, .. } = row;
    let (subject, detail) = (format!("{kind} {name}"), format!("version {version}"));
    audit_action(rows, AuditedAction { act, org: *org, subject: &subject, detail }, *at)?;
    rows.insert_config(row)?;
    stored(row)
}

/// Stores a new version if `last` is still the latest one. 0 means that no version may exist.
pub fn replace_config(
    rows: &mut dyn Rows,
    kind: ConfigKind,
    name: &str,
    body: &Value,
    last: u32,
    now: Millis,
) -> Result<StoredConfig, Error> {
    rows.access().require(Scope::Read)?;
    let found = present(rows, kind, name)?.map_or(0, |row| row.version);
    expect_last(kind, name, found, last)?;
    put_config(rows, kind, name, body, now)
}

/// Deletes a configuration by adding a version that marks the deletion. Later versions continue the numbering.
pub fn delete_config(
    rows: &mut dyn Rows,
    kind: ConfigKind,
    name: &str,
    last: Option<u32>,
    now: Millis,
) -> Result<StoredConfig, Error> {
    rows.access().require(Scope::Read)?;
    let Some(found) = present(rows, kind, name)? else {
        let detail = format!("no {kind} in the database is called `{name}`");
        return Err(Error::new(Kind::AgentNotFound, detail));
    };
    if let Some(last) = last {
        expect_last(kind, name, found.version, last)?;
    }
    let (version, fingerprint) = (found.version + 1, canonical_json::fingerprint(&Value::Null));
    let row = ConfigRow { version, fingerprint, body: DELETED.to_owned(), at: now, ..found };
    insert(rows, &row, AuditAction::DeleteConfig)
}

/// Checks that a version is the latest one. 0 stands for no version.
fn expect_last(kind: ConfigKind, name: &str, found: u32, last: u32) -> Result<(), Error> {
    if found == last {
        return Ok(());
    }
    let describe = |version| if version == 0 { "none".to_owned() } else { format!("version {version}") };
    let (expected, found) = (describe(last), describe(found));
    let detail = format!("expected {expected} of the {kind} `{name}` to be the latest, but found {found}");
    Err(Error::new(Kind::ConfigChanged, detail))
}

/// Returns the latest version, unless the configuration is deleted.
fn present(rows: &dyn ConfigRows, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
    Ok(rows.config(rows.access().visibility.home(), kind, name)?.filter(|row| row.body != DELETED))
}

/// Returns the latest version, unless the configuration is deleted.
pub fn config(rows: &dyn ConfigRows, kind: ConfigKind, name: &str) -> Result<Option<StoredConfig>, Error> {
    rows.access().require(Scope::Read)?;
    present(rows, kind, name)?.as_ref().map(stored).transpose()
}

/// Returns the latest version of each configuration that is not deleted, by name.
pub fn configs(
    rows: &dyn ConfigQueries,
    kind: ConfigKind,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<StoredConfig, String>, Error> {
    rows.access().require(Scope::Read)?;
    let found = rows.configs(rows.access().visibility.home(), kind, after, rows_to_read(limit))?;
    let stored_config = |row: ConfigRow| (row.body != DELETED).then(|| stored(&row)).transpose();
    page_from_rows(found, limit, |row| row.name.clone(), stored_config)
}

/// Returns every version, newest first.
pub fn config_versions(
    rows: &dyn ConfigQueries,
    kind: ConfigKind,
    name: &str,
    before: Option<u32>,
    limit: usize,
) -> Result<Page<StoredConfig, u32>, Error> {
    rows.access().require(Scope::Read)?;
    let found =
        rows.config_versions(rows.access().visibility.home(), kind, name, before, rows_to_read(limit))?;
    page_from_rows(found, limit, |row| row.version, |row| stored(&row).map(Some))
}

fn stored(row: &ConfigRow) -> Result<StoredConfig, Error> {
    let ConfigRow { kind, name, version, fingerprint, body, at, .. } = row;
    let body = serde_json::from_str(body).map_err(|cause| {
        Error::new(Kind::RecordCorrupt, format!("version {version} of the {kind} `{name}` is not valid JSON"))
            .because(cause)
    })?;
    let (name, fingerprint) = (name.clone(), *fingerprint);
    Ok(StoredConfig { kind: *kind, name, version: *version, fingerprint, body, at: *at })
}
