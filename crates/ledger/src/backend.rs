//! The interface that a database implements: units of work over rows.
use crate::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::store::StoreStatus;
use outlast_vocab::Error;
use outlast_vocab::access::Access;

/// The interface that a database implements: run a unit of work as one transaction, and read a consistent state.
///
/// [`implement_store!`](crate::implement_store!) builds everything else on these methods. A wrapper that counts or crashes
/// wraps only these.
pub trait Backend: Send + Sync + 'static {
    /// Runs a unit of work as one durable transaction. An error rolls it back.
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static;

    /// Runs a query on one consistent state.
    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static;

    /// Returns a number that changes when another process changes the database.
    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>>;

    /// Returns the database's status.
    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>>;

    /// Returns the access that this handle has.
    fn access(&self) -> Access {
        Access::operator()
    }
}
