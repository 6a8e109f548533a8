//! A store handle with restricted access: it sees the rows of one organisation only.
//!
//! Every unit of work of such a handle runs on [`rows::VisibleRows`], which filters the rows by organisation. So no query
//! can forget the filter: to the ledger, other rows do not exist. The id of another organisation's row gets the same
//! answer as an id that was never assigned.
//!
//! The permissions within an organisation are checked in [`crate::rules`].
mod rows;

use crate::Backend;
use crate::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::store::StoreStatus;
use outlast_vocab::access::{Access, Scope};
use outlast_vocab::{Error, Kind};
use rows::VisibleRows;
use std::any::Any;
use std::sync::Arc;

/// A store handle with restricted access.
pub struct ScopedStore {
    inner: Arc<dyn DynBackend>,
    access: Arc<Access>,
}

impl ScopedStore {
    /// Restricts this store to this access. The new handle never has more access than `inner`.
    pub fn restrict(inner: Arc<impl Backend>, access: Access) -> Self {
        let access = inner.access().limit_to(access);
        Self { inner, access: Arc::new(access) }
    }
}

impl Backend for ScopedStore {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        let access = self.access.clone();
        let unit = move |rows: &mut dyn Rows| {
            access.require(Scope::Read)?;
            unit(&mut VisibleRows::new(rows, &access)).map(box_result)
        };
        unbox_result(self.inner.write_boxed(Box::new(unit)))
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        let access = self.access.clone();
        let query = move |rows: &dyn QueryRows| {
            access.require(Scope::Read)?;
            query(&VisibleRows::new(rows, &access)).map(box_result)
        };
        unbox_result(self.inner.read_boxed(Box::new(query)))
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        self.inner.dyn_changes()
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        self.inner.dyn_status()
    }

    fn access(&self) -> Access {
        (*self.access).clone()
    }
}

crate::implement_store!(ScopedStore);

/// The result of a unit of work, with its type erased.
type BoxedResult = Box<dyn Any + Send>;
type BoxedUnit = Box<dyn FnOnce(&mut dyn Rows) -> Result<BoxedResult, Error> + Send>;
type BoxedQuery = Box<dyn FnOnce(&dyn QueryRows) -> Result<BoxedResult, Error> + Send>;

fn box_result<T: Send + 'static>(answer: T) -> BoxedResult {
    Box::new(answer)
}

fn unbox_result<T: 'static>(
    answer: BoxFuture<'_, Result<BoxedResult, Error>>,
) -> BoxFuture<'_, Result<T, Error>> {
    Box::pin(async move {
        let answer = answer.await?.downcast::<T>();
        answer
            .map(|answer| *answer)
            .map_err(|_| Error::new(Kind::Internal, "a unit of work returned a value of another type"))
    })
}

/// A backend as a trait object. Without it, nested handles would be an infinite type.
trait DynBackend: Send + Sync {
    fn write_boxed(&self, unit: BoxedUnit) -> BoxFuture<'_, Result<BoxedResult, Error>>;
    fn read_boxed(&self, query: BoxedQuery) -> BoxFuture<'_, Result<BoxedResult, Error>>;
    fn dyn_changes(&self) -> BoxFuture<'_, Result<u64, Error>>;
    fn dyn_status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>>;
}

impl<B: Backend> DynBackend for B {
    fn write_boxed(&self, unit: BoxedUnit) -> BoxFuture<'_, Result<BoxedResult, Error>> {
        self.write(unit)
    }

    fn read_boxed(&self, query: BoxedQuery) -> BoxFuture<'_, Result<BoxedResult, Error>> {
        self.read(query)
    }

    fn dyn_changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(self)
    }

    fn dyn_status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(self)
    }
}
