//! A full disk delays a turn and does nothing else.
use crate::common::*;
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::store::StoreStatus;
use outlast_vocab::budget::{Budget, Budgets};
use outlast_vocab::event::{Event, LiveEventKind};
use outlast_vocab::record::{Seq, TurnEnd};
use outlast_vocab::{Error, Kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store that accepts this many writes.
#[derive(Clone)]
struct LimitedStore {
    inner: MemoryStore,
    writes_left: Arc<AtomicU64>,
}

impl Backend for LimitedStore {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        let less = |writes_left: u64| writes_left.checked_sub(1);
        match self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => self.inner.write(unit),
            Err(_) => Box::pin(async { Err(Error::new(Kind::StoreFull, "no room")) }),
        }
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.inner.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.inner)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.inner)
    }
}

outlast_ledger::implement_store!(LimitedStore);

async fn with_writes_left(writes: u64) -> (Arc<AtomicU64>, Life) {
    let writes_left = Arc::new(AtomicU64::new(writes));
    let store = LimitedStore { inner: MemoryStore::new(), writes_left: writes_left.clone() };
    let lines = vec![call("pay", "ann"), Line::Say("done")];
    (writes_left, live(Arc::new(store), lines, Arc::default(), 1).await)
}

#[tokio::test(start_paused = true)]
async fn full_store_refuses_input_and_writes_nothing() {
    let (writes_left, life) = with_writes_left(0).await;
    assert_eq!(life.runtime.submit(input("go")).await.unwrap_err().kind(), Kind::StoreFull);
    assert!(life.runtime.store().sessions(None, 10).await.unwrap().is_empty());
    writes_left.store(u64::MAX, Ordering::SeqCst);
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".into() });
}

/// However long the disk is full, what the turn has done is neither lost nor repeated.
#[tokio::test(start_paused = true)]
async fn turn_on_full_store_resumes_without_loss() {
    // The writes are its input, its claim and its answer. After those, only the last reply is missing.
    for writes in 1..=3 {
        let (writes_left, life) = with_writes_left(writes).await;
        let mut events = life.runtime.events(SESSION, Seq(0));
        let turn = life.send("go").await;
        let held = async {
            loop {
                if let Event::Live(live) = events.next().await.unwrap()
                    && let LiveEventKind::Held { failure } = live.what
                {
                    return (live.turn, failure.code);
                }
            }
        };
        let outcome = tokio::time::timeout(Duration::from_mins(10), held).await.expect("it is held");
        assert_eq!(outcome, (turn, Kind::StoreFull));
        // This is longer than a lease, which cannot be renewed either. The worker must not treat its own session as
        // abandoned. It checks sessions once a second, so space becomes free between two checks.
        tokio::time::sleep(Duration::from_millis(600_500)).await;
        writes_left.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".into() });
        assert_eq!(life.witness.count("pay"), 1);
        assert_eq!(life.script.calls.load(Ordering::SeqCst), 2, "the model is asked once for each reply");
        assert!(life.runtime.store().unknown(10).await.unwrap().is_empty());
    }
}

/// A turn that is cancelled while the disk is full loses nothing. Its pending facts are written first.
#[tokio::test(start_paused = true)]
async fn cancelled_turn_on_full_store_records_its_start() {
    // Two inputs and the end of the first turn fit. Nothing is reserved for the second one yet.
    let writes_left = Arc::new(AtomicU64::new(3));
    let store = LimitedStore { inner: MemoryStore::new(), writes_left: writes_left.clone() };
    let counted = |config: &mut outlast_runtime::RuntimeConfig| {
        let most = Budget { tokens: Some(1_000_000), ..Budget::default() };
        config.package.budgets = Budgets { agent: Some(most), ..Budgets::default() };
    };
    let lines = vec![Line::Say("one"), Line::Hang];
    let life = live_with(Arc::new(store), lines, Arc::default(), 1, counted).await.unwrap();
    life.send("go").await;
    let turn = life.send("more").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    writes_left.store(1, Ordering::SeqCst);
    life.runtime.cancel(turn, "enough").await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    writes_left.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
    let names = life.names().await;
    assert_eq!(names.iter().filter(|name| **name == "turn.started").count(), 2, "{names:?}");
}
