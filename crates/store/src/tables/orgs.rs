//! Organisations and their API keys.
use super::Tables;
use super::column::{
    count, id, id_lower_bound, limit, read_count, read_hash, read_id, read_optional_count, read_parsed,
};
use outlast_ledger::rows::{KeyRow, OrgQueries, OrgRows, OrgWrites};
use outlast_views::Org;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

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

pub(super) const ORGS: &str = org!("WHERE name > ?1 ORDER BY name LIMIT ?2");
pub(super) const KEYS: &str = key!("WHERE id > ?1 ORDER BY id LIMIT ?2");
pub(super) const KEYS_OF: &str = key!("WHERE org = ?3 AND id > ?1 ORDER BY id LIMIT ?2");

impl OrgRows for Tables<'_> {
    fn org(&self, org: OrgId) -> Result<Option<Org>, Error> {
        self.one(org!("WHERE id = ?1"), [id(org.to_u128())], read_org)
    }

    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error> {
        self.one(org!("WHERE name = ?1"), [name], read_org)
    }

    fn key(&self, key: KeyId) -> Result<Option<KeyRow>, Error> {
        self.one(key!("WHERE id = ?1"), [id(key.to_u128())], read_key)
    }
}

impl OrgQueries for Tables<'_> {
    fn orgs(&self, after: Option<&str>, most: usize) -> Result<Vec<Org>, Error> {
        self.all(ORGS, params![after.unwrap_or_default(), limit(most)], read_org)
    }

    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, most: usize) -> Result<Vec<KeyRow>, Error> {
        let (after, most) = (id_lower_bound(after.map(KeyId::to_u128)), limit(most));
        match of {
            OrgVisibility::Everything => self.all(KEYS, params![after, most], read_key),
            OrgVisibility::Org(org) => self.all(KEYS_OF, params![after, most, id(org.to_u128())], read_key),
        }
    }
}

impl OrgWrites for Tables<'_> {
    fn insert_org(&mut self, org: &Org) -> Result<(), Error> {
        self.run(
            "INSERT INTO orgs (id, name, created) VALUES (?1, ?2, ?3)",
            params![id(org.id.to_u128()), org.name.as_str(), count(org.created.0)],
        )?;
        Ok(())
    }

    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO api_keys (id, org, principal, scopes, seal, created, expires, revoked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (id)
             DO UPDATE SET org = ?2, principal = ?3, scopes = ?4, seal = ?5, created = ?6, expires = ?7, revoked = ?8",
            params![
                id(row.id.to_u128()),
                id(row.org.to_u128()),
                row.by.to_string(),
                row.scopes.to_string(),
                row.seal.as_bytes(),
                count(row.created.0),
                row.expires.map(|at| count(at.0)),
                row.revoked.map(|at| count(at.0)),
            ],
        )?;
        Ok(())
    }
}

fn read_org(row: &Row<'_>) -> rusqlite::Result<Org> {
    let created = Millis(read_count(row, 2)?);
    Ok(Org { id: OrgId::from_u128(read_id(row, 0)?), name: read_parsed(row, 1)?, created })
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
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
