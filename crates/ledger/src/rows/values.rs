//! Values of sessions.
use super::{RowAccess, SessionNo};
use outlast_vocab::Error;

/// Reads values.
pub trait ValueRows: RowAccess {
    /// Returns a value of a session, as JSON.
    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error>;
    /// Returns the names of a session's values that begin with `prefix`, in ascending order.
    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error>;
}

/// Writes values.
pub trait ValueWrites: ValueRows {
    /// Sets or removes a value.
    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error>;
}
