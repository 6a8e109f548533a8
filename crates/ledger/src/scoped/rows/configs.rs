//! Configurations are visible within their organisation.
use super::{VisibleRows, invisible_row_error};
use crate::rows::{ConfigQueries, ConfigRow, ConfigRows, ConfigWrites, QueryRows, ReadRows, Rows};
use outlast_views::ConfigKind;
use outlast_vocab::Error;
use outlast_vocab::id::OrgId;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> ConfigRows for VisibleRows<'_, R> {
    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
        if self.covers(org) { self.rows.config(org, kind, name) } else { Ok(None) }
    }
}

impl<R: Deref<Target: QueryRows>> ConfigQueries for VisibleRows<'_, R> {
    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        if self.covers(org) { self.rows.configs(org, kind, after, limit) } else { Ok(Vec::new()) }
    }

    fn config_versions(
        &self,
        org: OrgId,
        kind: ConfigKind,
        name: &str,
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        if self.covers(org) {
            self.rows.config_versions(org, kind, name, before, limit)
        } else {
            Ok(Vec::new())
        }
    }
}

impl<R: DerefMut<Target: Rows>> ConfigWrites for VisibleRows<'_, R> {
    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error> {
        if self.covers(row.org) { self.rows.insert_config(row) } else { Err(invisible_row_error()) }
    }
}
