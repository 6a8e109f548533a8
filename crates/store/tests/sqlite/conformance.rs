//! Runs the conformance suite of stores on a real file with real syncs.
use crate::place::Place;
use outlast_conformance::{Fixture, SharedFixture};
use outlast_ports::store::Store;
use outlast_store::SqliteStore;
use outlast_vocab::WorkerId;
use std::sync::Arc;

struct Fresh {
    place: Place,
    store: SqliteStore,
}

fn fresh() -> Fresh {
    let place = Place::new();
    let store = place.open();
    Fresh { place, store }
}

impl Fixture for Fresh {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn bury(&self, worker: WorkerId) {
        self.place.bury(worker);
    }
}

impl SharedFixture for Fresh {
    fn open_again(&self) -> Arc<dyn Store> {
        Arc::new(self.place.open())
    }
}

outlast_conformance::store_conformance!(fresh);
outlast_conformance::shared_store_conformance!(fresh);
