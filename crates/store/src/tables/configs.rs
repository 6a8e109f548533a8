//! Agents, harnesses and capabilities, with their versions.
use super::Tables;
use super::column::{count, id, limit, read_count, read_hash, read_id};
use outlast_ledger::rows::{ConfigQueries, ConfigRow, ConfigRows, ConfigWrites};
use outlast_views::ConfigKind;
use outlast_vocab::id::OrgId;
use outlast_vocab::{Error, Millis};
use rusqlite::types::Type;
use rusqlite::{Row, params};

/// The columns of a version of an agent, a harness or a capability, in the order that [`read_config`] takes them.
macro_rules! config {
    ($rest:literal) => {
        concat!("SELECT org, kind, name, version, fingerprint, body, at FROM configs ", $rest)
    };
}

pub(super) const NEXT_CONFIG: &str =
    "SELECT name FROM configs WHERE org = ?1 AND kind = ?2 AND name > ?3 ORDER BY name LIMIT 1";
pub(super) const VERSIONS: &str =
    config!("WHERE org = ?1 AND kind = ?2 AND name = ?3 AND version < ?4 ORDER BY version DESC LIMIT ?5");

impl ConfigRows for Tables<'_> {
    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
        Ok(self.config_versions(org, kind, name, None, 1)?.pop())
    }
}

impl ConfigQueries for Tables<'_> {
    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        // Goes from name to name and skips all versions but the last.
        let mut found: Vec<ConfigRow> = Vec::new();
        while found.len() < most {
            let last = found.last().map_or(after.unwrap_or_default(), |config| config.name.as_str());
            let next: Option<String> =
                self.one(NEXT_CONFIG, params![id(org.to_u128()), kind.name(), last], |row| row.get(0))?;
            let Some(next) = next else { break };
            found.extend(self.config(org, kind, &next)?);
        }
        Ok(found)
    }

    fn config_versions(
        &self,
        org: OrgId,
        kind: ConfigKind,
        name: &str,
        before: Option<u32>,
        most: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        let before = before.map_or(i64::MAX, i64::from);
        let params = params![id(org.to_u128()), kind.name(), name, before, limit(most)];
        self.all(VERSIONS, params, read_config)
    }
}

impl ConfigWrites for Tables<'_> {
    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error> {
        let ConfigRow { org, kind, name, version, fingerprint, body, at } = row;
        self.run(
            "INSERT INTO configs (org, kind, name, version, fingerprint, body, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![id(org.to_u128()), kind.name(), name, version, fingerprint.as_bytes(), body, count(at.0)],
        )?;
        Ok(())
    }
}

fn read_config(row: &Row<'_>) -> rusqlite::Result<ConfigRow> {
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
