//! Organisations and their API keys.
use super::{Tables, page};
use crate::rows::{KeyRow, OrgQueries, OrgRows, OrgWrites};
use outlast_views::Org;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{KeyId, OrgId};

impl OrgRows for Tables {
    fn org(&self, id: OrgId) -> Result<Option<Org>, Error> {
        Ok(self.orgs.0.get(&id).cloned())
    }

    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error> {
        Ok(self.orgs.0.values().find(|org| org.name.as_str() == name).cloned())
    }

    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error> {
        Ok(self.keys.get(&id).cloned())
    }
}

impl OrgQueries for Tables {
    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error> {
        let mut orgs: Vec<&Org> =
            self.orgs.0.values().filter(|org| Some(org.name.as_str()) > after).collect();
        orgs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(page(orgs.into_iter(), limit))
    }

    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error> {
        Ok(page(self.keys.values().filter(|row| of.covers(row.org) && Some(row.id) > after), limit))
    }
}

impl OrgWrites for Tables {
    fn insert_org(&mut self, org: &Org) -> Result<(), Error> {
        self.set(|tables| &mut tables.orgs.0, org.id, Some(org.clone()));
        Ok(())
    }

    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.keys, row.id, Some(row.clone()));
        Ok(())
    }
}
