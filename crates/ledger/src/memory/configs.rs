//! Agents, harnesses and capabilities, with their versions.
use super::{Tables, page};
use crate::rows::{ConfigQueries, ConfigRow, ConfigRows, ConfigWrites, taken};
use outlast_views::ConfigKind;
use outlast_vocab::Error;
use outlast_vocab::id::OrgId;
use std::collections::BTreeMap;

impl ConfigRows for Tables {
    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
        Ok(self.config_versions(org, kind, name, None, 1)?.pop())
    }
}

impl ConfigQueries for Tables {
    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        let visible =
            |row: &&ConfigRow| row.org == org && row.kind == kind && Some(row.name.as_str()) > after;
        let of_kind = self.configs.values().filter(visible);
        let last: BTreeMap<&str, &ConfigRow> = of_kind.map(|row| (row.name.as_str(), row)).collect();
        Ok(page(last.into_values(), limit))
    }

    fn config_versions(
        &self,
        org: OrgId,
        kind: ConfigKind,
        name: &str,
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        let at = |version| (org, kind, name.to_owned(), version);
        let below = self.configs.range(at(0)..=at(u32::MAX)).rev().map(|(_, row)| row);
        Ok(page(below.filter(|row| before.is_none_or(|before| row.version < before)), limit))
    }
}

impl ConfigWrites for Tables {
    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error> {
        let at = (row.org, row.kind, row.name.clone(), row.version);
        if self.configs.contains_key(&at) {
            return Err(taken(format!("version {} of `{}`", row.version, row.name)));
        }
        self.set(|tables| &mut tables.configs, at, Some(row.clone()));
        Ok(())
    }
}
