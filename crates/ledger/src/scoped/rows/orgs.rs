//! An organisation sees itself and its API keys.
use super::{VisibleRows, invisible_row_error};
use crate::rows::{KeyRow, OrgQueries, OrgRows, OrgWrites, QueryRows, ReadRows, Rows};
use outlast_views::Org;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{KeyId, OrgId};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> OrgRows for VisibleRows<'_, R> {
    fn org(&self, id: OrgId) -> Result<Option<Org>, Error> {
        Ok(self.rows.org(id)?.filter(|org| self.covers(org.id)))
    }

    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error> {
        Ok(self.rows.org_by_name(name)?.filter(|org| self.covers(org.id)))
    }

    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error> {
        Ok(self.rows.key(id)?.filter(|row| self.covers(row.org)))
    }
}

impl<R: Deref<Target: QueryRows>> OrgQueries for VisibleRows<'_, R> {
    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error> {
        let OrgVisibility::Org(only) = self.access.visibility else { return self.rows.orgs(after, limit) };
        let visible = self.rows.org(only)?.filter(|org| after.is_none_or(|after| org.name.as_str() > after));
        Ok(visible.into_iter().take(limit).collect())
    }

    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error> {
        self.rows.keys(self.narrow(of), after, limit)
    }
}

impl<R: DerefMut<Target: Rows>> OrgWrites for VisibleRows<'_, R> {
    fn insert_org(&mut self, org: &Org) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.insert_org(org)
    }

    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error> {
        if !self.covers(row.org) {
            return Err(invisible_row_error());
        }
        self.rows.put_key(row)
    }
}
