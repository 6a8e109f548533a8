//! The differential test works: it tells stores with an injected fault from healthy ones.
use outlast_conformance::{AnswerCounts, Fixture, differential};
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::store::{Store, StoreStatus};
use outlast_vocab::{Error, Kind, WorkerId};
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The fault of a store.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// It acknowledges every third write and forgets it.
    Forgets,
    /// It panics in its third write.
    Panics,
    /// It reports corruption, starting with its third write.
    SaysDamaged,
}

/// A store in memory with a fault.
struct Faulty {
    fault: Fault,
    memory: MemoryStore,
    writes: AtomicU64,
}

fn store(fault: Fault) -> Faulty {
    Faulty { fault, memory: MemoryStore::new(), writes: AtomicU64::new(0) }
}

impl Backend for Faulty {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        match self.fault {
            Fault::Forgets if writes.is_multiple_of(3) => {
                let acknowledged = Arc::new(Mutex::new(None));
                let last_acknowledged = Arc::clone(&acknowledged);
                // The error rolls the unit back, but its answer is returned anyway.
                let undone = self.memory.write::<(), _>(move |rows| {
                    *last_acknowledged.lock().expect("nobody panicked") = Some(unit(rows));
                    Err(Error::new(Kind::Internal, "forgotten"))
                });
                drop(undone);
                let said = acknowledged.lock().expect("nobody panicked").take();
                Box::pin(ready(said.expect("the unit was run")))
            }
            Fault::Panics if writes == 3 => panic!("the third write"),
            Fault::SaysDamaged if writes >= 3 => {
                Box::pin(ready(Err(Error::new(Kind::StoreCorrupt, "the file is damaged"))))
            }
            _ => self.memory.write(unit),
        }
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.memory.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.memory)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.memory)
    }
}

outlast_ledger::implement_store!(Faulty);

impl Fixture for Faulty {
    fn store(&self) -> &dyn Store {
        self
    }

    fn bury(&self, worker: WorkerId) {
        self.memory.bury(worker);
    }
}

/// Returns the difference that the test reports for two stores with these faults.
fn difference(seed: u64, one: Fault, other: Fault) -> String {
    let difference = differential(seed, 100, || (store(one), store(other)));
    difference.expect_err("one of them has a fault").to_string()
}

#[test]
fn lost_acknowledged_write_is_found_and_shrunk() {
    for seed in 0..5 {
        let report = difference(seed, Fault::None, Fault::Forgets);
        let first = format!("seed {seed} with 100 operations makes the stores differ; these ");
        let shrunk = report.strip_prefix(&first).and_then(|rest| rest.split_once(' '));
        let operations: usize = shrunk.and_then(|(number, _)| number.parse().ok()).expect("it counts them");
        assert!(operations <= 6, "{report}");
    }
}

#[test]
fn panicking_store_is_reported_with_its_operation() {
    let report = difference(1, Fault::None, Fault::Panics);
    assert!(report.ends_with("other: panicked: Some(\"the third write\")"), "{report}");
}

#[test]
fn equally_corrupt_stores_are_reported() {
    let report = difference(1, Fault::SaysDamaged, Fault::SaysDamaged);
    let said = "store.corrupt: the file is damaged";
    assert!(report.ends_with(&format!("one:   {said}\nother: {said}")), "{report}");
}

#[test]
fn differential_run_covers_all_operations_and_refusals() {
    let mut all = AnswerCounts::new();
    for seed in 0..40 {
        let tally = differential(seed, 150, || (store(Fault::None), store(Fault::None)));
        for (case, times) in tally.unwrap_or_else(|difference| panic!("{difference}")) {
            *all.entry(case).or_default() += times;
        }
    }
    let answered = [
        "accept",
        "open",
        "cancel",
        "resolve",
        "claim",
        "renew",
        "commit",
        "hand_back",
        "fork",
        "rewind",
        "delete",
        "settle",
        "bury",
        "records",
        "turn_records",
        "feed",
        "history",
        "joinable",
        "verify",
        "sessions",
        "session",
        "session_by_key",
        "turn",
        "turns",
        "unknown",
        "cancel_reason",
        "has_work",
        "next_wake",
        "agenda",
        "blob",
        "sweeps",
        "left",
        "mark_for_deletion",
        "unmark_for_deletion",
        "forget",
        "value",
        "value_names",
        "secret",
    ];
    let refused = [
        ("accept", Kind::InputKeyReused),
        ("accept", Kind::QueueFull),
        ("accept", Kind::NodeNotFound),
        ("accept", Kind::SessionNotFound),
        ("accept", Kind::AttachmentSwept),
        ("cancel", Kind::TurnNotFound),
        ("commit", Kind::ClaimMismatch),
        ("commit", Kind::LeaseLost),
        ("commit", Kind::TurnRaced),
        ("delete", Kind::SessionBusy),
        ("delete", Kind::SessionHasForks),
        ("fork", Kind::InputKeyReused),
        ("fork", Kind::NodeNotFound),
        ("hand_back", Kind::LeaseLost),
        ("history", Kind::NodeNotFound),
        ("open", Kind::InputKeyReused),
        ("resolve", Kind::WaitNotFound),
        ("rewind", Kind::NodeNotFound),
        ("rewind", Kind::SessionBusy),
        ("settle", Kind::ClaimNotFound),
    ];
    let wanted =
        answered.map(|name| (name, "ok")).into_iter().chain(refused.map(|(name, kind)| (name, kind.code())));
    let missing: Vec<_> = wanted.filter(|case| !all.contains_key(case)).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}\nhappened: {all:?}");
}
