//! The crashing store behaves like any other store until it crashes.
use futures_util::FutureExt;
use outlast_conformance::Fixture;
use outlast_ledger::crashing_store::{CrashPoint, CrashingStore, SimulatedProcess};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::queries::Queries;
use outlast_ports::store::Store;
use outlast_vocab::record::Fact;
use outlast_vocab::{Millis, SessionId, WorkerId};

struct CrashingFixture {
    memory: MemoryStore,
    crashing_store: CrashingStore<MemoryStore>,
}

impl CrashingFixture {
    fn new() -> Self {
        let memory = MemoryStore::new();
        Self { crashing_store: CrashingStore::new(memory.clone(), CrashPoint::Never), memory }
    }
}

impl Fixture for CrashingFixture {
    fn store(&self) -> &dyn Store {
        &self.crashing_store
    }

    fn bury(&self, worker: WorkerId) {
        self.memory.bury(worker);
    }
}

outlast_conformance::store_conformance!(CrashingFixture::new);

/// Opens sessions until the store crashes. Returns how many were acknowledged, how many exist, and how it ended.
fn open_three(dies: CrashPoint) -> (usize, usize, String) {
    let memory = MemoryStore::new();
    let crashing_store = CrashingStore::new(memory.clone(), dies);
    let opened = (1..=3).filter(|id| open(&crashing_store, *id)).count();
    let there = memory.sessions(None, 10).now_or_never().unwrap().unwrap().len();
    (opened, there, summary(&crashing_store.pulse()))
}

fn open(store: &dyn Store, id: u128) -> bool {
    store
        .open(SessionTarget::New(SessionId::from_u128(id)), Millis(1))
        .now_or_never()
        .map(Result::unwrap)
        .is_some()
}

fn summary(pulse: &SimulatedProcess) -> String {
    let written: Vec<Vec<&str>> = pulse
        .written()
        .iter()
        .map(|records| records.iter().map(|record| Fact::name(&record.fact)).collect())
        .collect();
    let over = pulse.stopped().now_or_never().is_some();
    format!("{written:?}, over: {over}")
}

#[test]
fn crash_leaves_none_or_all_of_a_write() {
    let opened = r#"["session.opened"]"#;
    let of = |writes: usize, over: bool| format!("[{}], over: {over}", vec![opened; writes].join(", "));
    assert_eq!(open_three(CrashPoint::Never), (3, 3, of(3, false)));
    assert_eq!(open_three(CrashPoint::Before(0)), (0, 0, of(1, true)));
    assert_eq!(open_three(CrashPoint::AfterWrite(0)), (0, 1, of(1, true)));
    assert_eq!(open_three(CrashPoint::Before(1)), (1, 1, of(2, true)));
    assert_eq!(open_three(CrashPoint::AfterWrite(1)), (1, 2, of(2, true)));
}

#[test]
fn stopped_store_writes_nothing_more() {
    let memory = MemoryStore::new();
    let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::Never);
    assert!(open(&crashing_store, 1));
    crashing_store.pulse().stop();
    assert!(!open(&crashing_store, 2));
    assert_eq!(memory.sessions(None, 10).now_or_never().unwrap().unwrap().len(), 1);
    assert_eq!(summary(&crashing_store.pulse()), r#"[["session.opened"]], over: true"#);
}

#[test]
fn crashing_store_lists_only_its_own_writes() {
    let memory = MemoryStore::new();
    assert!(open(&memory, 1));
    let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::Never);
    assert!(open(&crashing_store, 2));
    assert!(open(&memory, 3));
    assert!(open(&crashing_store, 4));
    assert_eq!(summary(&crashing_store.pulse()), r#"[["session.opened"], ["session.opened"]], over: false"#);
}
