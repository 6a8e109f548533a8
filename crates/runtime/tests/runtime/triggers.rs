//! An external event starts exactly one turn, even after crashes.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::plugin::{InstalledPlugin, Plugin, PluginParts};
use outlast_ports::trigger::{ExternalEvent, TriggerSource};
use outlast_runtime::agents::plugins::Plugins;
use outlast_vocab::id::TurnId;
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Kind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The events that are not settled yet, in order.
#[derive(Default)]
struct Outside {
    queue: Mutex<VecDeque<&'static str>>,
    /// How many calls fail first.
    faults: AtomicU32,
    settled: Mutex<Vec<(String, Result<TurnId, String>)>>,
    change: Notify,
}

impl Outside {
    fn with(ids: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { queue: Mutex::new(ids.iter().copied().collect()), ..Self::default() })
    }

    fn fault(&self) -> Result<(), Error> {
        let take = |left: u32| left.checked_sub(1);
        let Ok(left) = self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) else {
            return Ok(());
        };
        assert!(left.is_multiple_of(2), "it breaks down");
        Err(Error::new(Kind::PluginInvalid, "the line is down"))
    }

    async fn until_settled(&self, count: usize) {
        while self.settled.lock().unwrap().len() < count {
            self.change.notified().await;
        }
    }
}

struct Wire(Arc<Outside>);

impl TriggerSource for Wire {
    fn next(&self) -> ResultFuture<'_, ExternalEvent> {
        Box::pin(async {
            self.0.fault()?;
            let next = self.0.queue.lock().unwrap().front().copied();
            match next {
                Some("long") => Ok(ExternalEvent::new("long", "ann", "x".repeat(10_000_000))),
                Some(id) => Ok(ExternalEvent::new(id, "ann", format!("{id} happened"))),
                None => std::future::pending().await,
            }
        })
    }

    fn settled<'a>(&'a self, id: &'a str, came: Result<TurnId, &'a Error>) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            self.0.fault()?;
            let mut queue = self.0.queue.lock().unwrap();
            assert_eq!(queue.pop_front(), Some(id));
            let came = came.map_err(|error| error.kind().code().to_owned());
            self.0.settled.lock().unwrap().push((id.to_owned(), came));
            self.0.change.notify_one();
            Ok(())
        })
    }
}

struct Listening(Arc<Outside>);

impl Plugin for Listening {
    const NAME: &'static str = "listening";
    type Options = ();
    type Input = ();
    type State = ();

    fn start(self, (): ()) -> Result<PluginParts<Self>, Error> {
        PluginParts::new().trigger("line", Wire(self.0))
    }
}

fn plugins(outside: &Arc<Outside>) -> Plugins {
    let installed = InstalledPlugin::new(Listening(outside.clone()), ()).unwrap();
    Plugins::new("agent", [&installed]).unwrap()
}

async fn life(store: Arc<dyn outlast_ports::store::Store>, outside: &Arc<Outside>, worker: u128) -> Life {
    let lines = vec![Line::Say("one"), Line::Say("two"), Line::Say("three")];
    let change = |config: &mut outlast_runtime::RuntimeConfig| {
        "agent".clone_into(&mut config.package.agent);
        config.plugins = plugins(outside);
    };
    let life = live_with(store, lines, Arc::default(), worker, change).await.unwrap();
    life.runtime.listen();
    life
}

/// Returns the idempotency keys of the inputs of the session, in order.
async fn keys(store: &dyn outlast_ports::store::Store) -> Vec<String> {
    let session = store.session_by_key("ann".to_owned()).await.unwrap();
    let records = store.records(session.id, outlast_vocab::record::Seq(0), 1_000).await.unwrap();
    let key = |fact| match fact {
        Fact::Accepted(accepted) => accepted.key,
        _ => None,
    };
    records.into_iter().filter_map(|record| key(record.fact)).collect()
}

#[tokio::test(start_paused = true)]
async fn occurrence_starts_one_turn_across_crashes() {
    let play = async |death: CrashPoint| {
        let (memory, outside) = (MemoryStore::new(), Outside::with(&["a", "b"]));
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let heart = crashing_store.pulse();
        let first = life(Arc::new(crashing_store), &outside, 1).await;
        let done = async {
            outside.until_settled(2).await;
            first.runtime.idle().await.unwrap();
        };
        tokio::select! {
            () = done => {}
            () = heart.stopped() => {}
        }
        first.die(&memory).await;
        let second = life(Arc::new(memory.clone()), &outside, 2).await;
        outside.until_settled(2).await;
        second.runtime.idle().await.unwrap();
        assert_eq!(keys(&memory).await, ["trigger/line/a", "trigger/line/b"], "{death:?}");
        heart.writes()
    };
    for at in 0..play(CrashPoint::Never).await {
        play(CrashPoint::Before(at)).await;
        play(CrashPoint::AfterWrite(at)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_or_panicking_source_is_polled_again() {
    let (memory, outside) = (MemoryStore::new(), Outside::with(&["a"]));
    outside.faults.store(7, Ordering::SeqCst);
    let life = life(Arc::new(memory.clone()), &outside, 1).await;
    outside.until_settled(1).await;
    life.runtime.idle().await.unwrap();
    assert_eq!(keys(&memory).await, ["trigger/line/a"]);
}

#[tokio::test(start_paused = true)]
async fn rejected_occurrence_is_reported_and_next_proceeds() {
    let (memory, outside) = (MemoryStore::new(), Outside::with(&["long", "b"]));
    let life = life(Arc::new(memory.clone()), &outside, 1).await;
    outside.until_settled(2).await;
    life.runtime.idle().await.unwrap();
    let settled = outside.settled.lock().unwrap().clone();
    assert_eq!(settled[0], ("long".to_owned(), Err("limit.exceeded".to_owned())));
    assert!(settled[1].1.is_ok());
    assert_eq!(keys(&memory).await, ["trigger/line/b"]);
}

#[test]
fn duplicate_trigger_names_are_refused_at_startup() {
    let outside = Outside::with(&[]);
    let error = plugins(&outside).and(plugins(&outside)).err().unwrap();
    assert_eq!(error.to_string(), "config.invalid: two triggers are called `line`; names must be unique");
}
