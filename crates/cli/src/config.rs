//! Files that configure Outlast: [`document`] reads them with the line of every value, [`schema`] says which keys there are,
//! [`keys`] finds those that there are not.
pub(crate) mod document;
pub(crate) mod keys;
pub(crate) mod schema;
