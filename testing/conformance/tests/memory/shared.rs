//! The conformance suite for stores that several processes open, run on an in-memory store with several handles.
//!
//! Processes cannot share memory. This test shows that the rules can be satisfied.
use outlast_conformance::{Fixture, SharedFixture};
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::store::{Store, StoreStatus};
use outlast_vocab::{Error, WorkerId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One of several handles on the same memory. It counts the writes of all handles.
#[derive(Clone, Default)]
struct Handle {
    memory: MemoryStore,
    writes: Arc<AtomicU64>,
}

impl Backend for Handle {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.memory.write(unit)
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.memory.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(std::future::ready(Ok(self.writes.load(Ordering::Relaxed))))
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.memory)
    }
}

outlast_ledger::implement_store!(Handle);

impl Fixture for Handle {
    fn store(&self) -> &dyn Store {
        self
    }

    fn bury(&self, worker: WorkerId) {
        self.memory.bury(worker);
    }
}

impl SharedFixture for Handle {
    fn open_again(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}

outlast_conformance::shared_store_conformance!(Handle::default);
