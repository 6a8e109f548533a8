//! The in-memory store passes the store conformance suite.
use outlast_conformance::Fixture;
use outlast_ports::memory::Memory;
use outlast_ports::store::Store;
use outlast_vocab::WorkerId;

#[derive(Default)]
struct Fresh(Memory);

impl Fixture for Fresh {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn bury(&self, worker: WorkerId) {
        self.0.bury(worker);
    }
}

outlast_conformance::store_conformance!(Fresh::default);
