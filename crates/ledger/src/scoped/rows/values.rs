//! Values are visible with their session.
use super::VisibleRows;
use crate::rows::{ReadRows, Rows, SessionNo, ValueRows, ValueWrites};
use outlast_vocab::Error;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> ValueRows for VisibleRows<'_, R> {
    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error> {
        self.of(session, || self.rows.value(session, name))
    }

    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error> {
        self.of(session, || self.rows.value_names(session, prefix, limit))
    }
}

impl<R: DerefMut<Target: Rows>> ValueWrites for VisibleRows<'_, R> {
    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error> {
        self.may_write(session)?;
        self.rows.put_value(session, name, json)
    }
}
