//! Differential tests: the same random operations on SQLite and in memory give the same answers.
//!
//! `OUTLAST_SEEDS=FROM..TO cargo test -p outlast-store --test sqlite differential` runs other seeds than the
//! default ones.
use crate::place::Place;
use outlast_conformance::{Fixture, differential};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::store::Store;
use outlast_store::{SqliteOptions, SqliteStore};
use outlast_vocab::WorkerId;
use std::env;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

const OPERATIONS: usize = 150;

#[derive(Default)]
struct InMemory(MemoryStore);

impl Fixture for InMemory {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn bury(&self, worker: WorkerId) {
        self.0.bury(worker);
    }
}

/// One file that is open several times, as by several processes. Each operation uses the next handle.
struct OnDisk {
    // Before the place, so that the file is closed before it is removed.
    handles: Vec<SqliteStore>,
    place: Place,
    asked: AtomicUsize,
}

impl OnDisk {
    fn open(times: usize) -> Self {
        let place = Place::new();
        // The comparison does not depend on when the disk syncs.
        let options = SqliteOptions { unsafe_durability: true, ..SqliteOptions::default() };
        let open = || SqliteStore::open_with(&place.path(), options).expect("the database opens");
        let handles = (0..times).map(|_| open()).collect();
        Self { handles, place, asked: AtomicUsize::new(0) }
    }
}

impl Fixture for OnDisk {
    fn store(&self) -> &dyn Store {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        &self.handles[asked % self.handles.len()]
    }

    fn bury(&self, worker: WorkerId) {
        self.place.bury(worker);
    }
}

#[track_caller]
fn check(usual: Range<u64>, handles: usize) {
    let seeds = match env::var("OUTLAST_SEEDS") {
        Ok(wanted) => parsed(&wanted).unwrap_or_else(|| {
            panic!("OUTLAST_SEEDS must be two numbers like 0..500, but is `{wanted}`");
        }),
        Err(_) => usual,
    };
    for seed in seeds {
        differential(seed, OPERATIONS, || (InMemory::default(), OnDisk::open(handles)))
            .unwrap_or_else(|difference| panic!("{difference}"));
    }
}

fn parsed(range: &str) -> Option<Range<u64>> {
    let (from, to) = range.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

#[test]
fn memory_and_sqlite_give_the_same_answers() {
    check(0..60, 1);
}

#[test]
fn memory_and_two_sqlite_processes_give_same_answers() {
    check(1_000..1_020, 2);
}
