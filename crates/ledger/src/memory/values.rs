//! Values of sessions.
use super::{Tables, page};
use crate::rows::{SessionNo, ValueRows, ValueWrites};
use outlast_vocab::Error;

impl ValueRows for Tables {
    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error> {
        Ok(self.values.get(&(session, name.to_owned())).cloned())
    }

    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error> {
        let ours = self.values.keys().filter(|(no, name)| *no == session && name.starts_with(prefix));
        Ok(page(ours.map(|(_, name)| name), limit))
    }
}

impl ValueWrites for Tables {
    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error> {
        self.set(|tables| &mut tables.values, (session, name.to_owned()), json.map(ToOwned::to_owned));
        Ok(())
    }
}
