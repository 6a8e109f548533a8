//! Files that configure Outlast: [`document`] reads them with the line of every value, [`schema`] says which keys there are,
//! [`keys`] finds those that there are not, [`server`] is what the server is told.
pub(crate) mod document;
pub(crate) mod keys;
pub(crate) mod schema;
pub(crate) mod server;
