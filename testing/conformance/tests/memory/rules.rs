//! The in-memory store passes the store conformance suite.
use outlast_conformance::Fixture;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::store::Store;
use outlast_vocab::WorkerId;

#[derive(Default)]
struct Fresh(MemoryStore);

impl Fixture for Fresh {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn bury(&self, worker: WorkerId) {
        self.0.bury(worker);
    }
}

outlast_conformance::store_conformance!(Fresh::default);
