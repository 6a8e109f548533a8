//! A store handle with restricted access: it sees the rows of one organisation only.
//!
//! Every unit of work of such a handle runs on [`rows::Shown`], which filters the rows by organisation. So no query
//! can forget the filter: to the ledger, other rows do not exist. The id of another organisation's row gets the same
//! answer as an id that was never assigned.
//!
//! The permissions within an organisation are checked in [`crate::ledger`].
mod rows;

use crate::BoxFuture;
use crate::rows::{ReadRows, Rows};
use crate::store::{Backend, Status};
use outlast_vocab::access::{Access, Scope};
use outlast_vocab::{Error, Kind};
use rows::Shown;
use std::any::Any;
use std::sync::Arc;

/// A store handle with restricted access.
pub struct Scoped {
    inner: Arc<dyn Engine>,
    access: Arc<Access>,
}

impl Scoped {
    /// Restricts this store to this access.
    pub(crate) fn new(inner: Arc<impl Backend>, access: Access) -> Self {
        Self { inner, access: Arc::new(access) }
    }
}

impl Backend for Scoped {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        let access = self.access.clone();
        let unit = move |rows: &mut dyn Rows| {
            access.need(Scope::Read)?;
            unit(&mut Shown::new(rows, &access)).map(boxed)
        };
        opened(self.inner.write_boxed(Box::new(unit)))
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn ReadRows) -> Result<T, Error> + Send + 'static,
    {
        let access = self.access.clone();
        let query = move |rows: &dyn ReadRows| {
            access.need(Scope::Read)?;
            query(&Shown::new(rows, &access)).map(boxed)
        };
        opened(self.inner.read_boxed(Box::new(query)))
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        self.inner.changed()
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Error>> {
        self.inner.says()
    }

    fn access(&self) -> Access {
        (*self.access).clone()
    }
}

/// The result of a unit of work, with its type erased.
type Boxed = Box<dyn Any + Send>;
type Unit = Box<dyn FnOnce(&mut dyn Rows) -> Result<Boxed, Error> + Send>;
type Query = Box<dyn FnOnce(&dyn ReadRows) -> Result<Boxed, Error> + Send>;

fn boxed<T: Send + 'static>(answer: T) -> Boxed {
    Box::new(answer)
}

fn opened<T: 'static>(answer: BoxFuture<'_, Result<Boxed, Error>>) -> BoxFuture<'_, Result<T, Error>> {
    Box::pin(async move {
        let answer = answer.await?.downcast::<T>();
        answer
            .map(|answer| *answer)
            .map_err(|_| Error::new(Kind::Internal, "a unit was answered with what it did not come to"))
    })
}

/// A backend as a trait object. Without it, nested handles would be an infinite type.
trait Engine: Send + Sync {
    fn write_boxed(&self, unit: Unit) -> BoxFuture<'_, Result<Boxed, Error>>;
    fn read_boxed(&self, query: Query) -> BoxFuture<'_, Result<Boxed, Error>>;
    fn changed(&self) -> BoxFuture<'_, Result<u64, Error>>;
    fn says(&self) -> BoxFuture<'_, Result<Status, Error>>;
}

impl<B: Backend> Engine for B {
    fn write_boxed(&self, unit: Unit) -> BoxFuture<'_, Result<Boxed, Error>> {
        self.write(unit)
    }

    fn read_boxed(&self, query: Query) -> BoxFuture<'_, Result<Boxed, Error>> {
        self.read(query)
    }

    fn changed(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(self)
    }

    fn says(&self) -> BoxFuture<'_, Result<Status, Error>> {
        Backend::status(self)
    }
}
