//! Delivery of outputs to sinks: every output arrives, and its id makes duplicates detectable, even after crashes.
use crate::common::*;
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::sink::{OutputEvent, Sink, SinkOutput, SubscribedSink};
use outlast_ports::store::{Store, StoreStatus};
use outlast_ports::{BoxFuture, ResultFuture};
use outlast_runtime::RuntimeConfig;
use outlast_views::SinkView;
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Error, Kind, Limits, Millis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The behaviour of a sink.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SinkBehaviour {
    Takes,
    /// Fails the first attempts with this error.
    Fails(Kind, u32),
    /// Asks for this much time before it accepts anything.
    AsksFor(Duration),
    Hangs,
    Panics,
}

/// The attempts that the receiver saw, in order, and what it accepted.
#[derive(Default)]
struct SeenDeliveries {
    attempts: Mutex<Vec<(DeliveryId, u32, Millis)>>,
    took: Mutex<BTreeMap<DeliveryId, Vec<OutputEvent>>>,
}

impl SeenDeliveries {
    /// Returns the ids that it accepted, without duplicates.
    fn ids(&self) -> BTreeSet<DeliveryId> {
        self.took.lock().unwrap().keys().copied().collect()
    }

    /// Returns the pauses between attempts.
    fn pauses(&self) -> Vec<Duration> {
        let attempts = self.attempts.lock().unwrap();
        attempts.windows(2).map(|pair| pair[0].2.until(pair[1].2)).collect()
    }
}

struct Other {
    seen: Arc<SeenDeliveries>,
    habit: SinkBehaviour,
}

impl Sink for Other {
    fn place(&self) -> String {
        "the test".to_owned()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            self.seen.attempts.lock().unwrap().push((output.id, output.attempt, output.sent));
            match self.habit {
                SinkBehaviour::Fails(kind, first) if output.attempt <= first => {
                    return Err(Error::new(kind, "not now"));
                }
                SinkBehaviour::AsksFor(time) if output.attempt == 1 => {
                    return Err(Error::new(Kind::DeliveryFailed, "later").retry_after(time));
                }
                SinkBehaviour::Hangs => std::future::pending().await,
                SinkBehaviour::Panics => panic!("a sink that panics"),
                SinkBehaviour::Takes | SinkBehaviour::Fails(..) | SinkBehaviour::AsksFor(_) => {}
            }
            self.seen.took.lock().unwrap().entry(output.id).or_default().push(output.event.clone());
            Ok(())
        })
    }
}

fn outlet(name: &str, seen: &Arc<SeenDeliveries>, habit: SinkBehaviour) -> SubscribedSink {
    SubscribedSink::new(name, Other { seen: seen.clone(), habit }).unwrap()
}

async fn with_sinks(store: Arc<dyn Store>, number: u128, sinks: Vec<SubscribedSink>) -> Life {
    let lines = vec![Line::Say("hello"), Line::Say("again")];
    live_with(store, lines, Arc::default(), number, |config: &mut RuntimeConfig| config.sinks = sinks)
        .await
        .unwrap()
}

/// Starts a worker with one sink and runs one turn.
async fn one_turn(habit: SinkBehaviour) -> (Life, Arc<SeenDeliveries>) {
    let seen: Arc<SeenDeliveries> = Arc::default();
    let life = with_sinks(Arc::new(MemoryStore::new()), 1, vec![outlet("a", &seen, habit)]).await;
    let turn = life.send("hi").await;
    life.end(turn).await;
    (life, seen)
}

async fn view(life: &Life) -> SinkView {
    life.runtime.store().sinks().await.unwrap().remove(0)
}

/// Waits, in virtual time, until no delivery of a sink is left that will be due.
async fn settled(life: &Life) -> SinkView {
    loop {
        life.runtime.idle().await.unwrap();
        let view = view(life).await;
        if view.due == 0 && view.behind == 0 {
            return view;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Runs two turns over as many processes as needed. The first crashes at `death`. Returns the number of its writes.
async fn play(death: CrashPoint) -> u64 {
    let memory = MemoryStore::new();
    let seen: Arc<SeenDeliveries> = Arc::default();
    let sinks = || vec![outlet("a", &seen, SinkBehaviour::Fails(Kind::DeliveryFailed, 1))];
    // If a worker crashes before it can register the sink, the next one delivers its turns.
    let sinks = || sinks().into_iter().map(SubscribedSink::from_the_beginning).collect::<Vec<_>>();
    let act = async |life: &Life| {
        for key in ["one", "two"] {
            let turn = life.runtime.submit(keyed_input(key, "go")).await.unwrap().turn;
            life.end(turn).await;
        }
        settled(life).await;
    };
    let crashing_store = CrashingStore::new(memory.clone(), death);
    let pulse = crashing_store.pulse();
    let first = async {
        let life = with_sinks(Arc::new(crashing_store), 1, sinks()).await;
        act(&life).await;
    };
    tokio::select! {
        () = first => {}
        () = pulse.stopped() => {}
    }
    memory.bury(outlast_vocab::WorkerId::from_u128(1));
    let second = with_sinks(Arc::new(memory.clone()), 2, sinks()).await;
    act(&second).await;
    let turns = second.runtime.store().turns(SESSION, 0, 10).await.unwrap();
    let ids: BTreeSet<DeliveryId> =
        turns.iter().map(|turn| DeliveryId::derived(&[b"a", &turn.id.to_u128().to_be_bytes()])).collect();
    assert_eq!((turns.len(), seen.ids()), (2, ids), "{death:?}");
    for ends in seen.took.lock().unwrap().values() {
        assert!(ends.iter().all(|end| *end == ends[0]), "one id says one thing: {ends:?}");
        assert!(ends.len() == 1 || death != CrashPoint::Never, "only a death repeats an id: {ends:?}");
    }
    assert_eq!(view(&second).await.dead, 0);
    second.die(&memory).await;
    pulse.writes()
}

#[tokio::test(start_paused = true)]
async fn output_keeps_one_id_across_crashes() {
    let writes = play(CrashPoint::Never).await;
    assert!(writes > 8, "{writes}");
    for at in 0..writes {
        play(CrashPoint::Before(at)).await;
        play(CrashPoint::AfterWrite(at)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failed_output_retries_with_backoff_then_gives_up() {
    let (life, seen) = one_turn(SinkBehaviour::Fails(Kind::DeliveryFailed, u32::MAX)).await;
    let left = settled(&life).await;
    assert_eq!((left.due, left.dead, left.delivered), (0, 1, 0));
    let limits = Limits::default();
    let pauses = seen.pauses();
    assert_eq!(pauses.len() + 1, limits.delivery_attempts as usize);
    for (n, pause) in (0..).zip(pauses) {
        let most = limits.delivery_first.saturating_mul(1 << n).min(limits.delivery_most);
        let slack = Duration::from_millis(20);
        assert!(pause + slack >= most / 2 && pause <= most + slack, "{n}: {pause:?} of {most:?}");
    }
    let ids: BTreeSet<DeliveryId> = seen.attempts.lock().unwrap().iter().map(|(id, ..)| *id).collect();
    assert_eq!(ids.len(), 1);
    let dead = life.runtime.store().deliveries("a".to_owned(), 9).await.unwrap().remove(0);
    assert_eq!((dead.due_at, dead.failure.unwrap().detail), (None, "not now".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn sink_retry_after_is_capped() {
    for (asked, most) in [(Duration::from_mins(20), 20), (Duration::from_hours(999), 180)] {
        let (life, seen) = one_turn(SinkBehaviour::AsksFor(asked)).await;
        assert_eq!(settled(&life).await.delivered, 1);
        let minutes: Vec<u64> = seen.pauses().iter().map(|pause| pause.as_secs() / 60).collect();
        assert_eq!(minutes, [most]);
    }
}

#[tokio::test(start_paused = true)]
async fn permanently_rejected_output_can_be_retried_manually() {
    let (life, seen) = one_turn(SinkBehaviour::Fails(Kind::DeliveryGone, 1)).await;
    assert_eq!(settled(&life).await.dead, 1);
    let now = life.runtime.now();
    assert_eq!(life.runtime.store().redeliver("a".to_owned(), None, now).await.unwrap(), 1);
    life.send("and now").await;
    let left = settled(&life).await;
    // The output of the second turn was rejected the first time, too.
    assert_eq!((left.delivered, left.dead, seen.ids().len()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn hanging_or_panicking_sink_delays_no_other() {
    let [hangs, panics, takes]: [Arc<SeenDeliveries>; 3] = Default::default();
    let sinks = vec![
        outlet("hangs", &hangs, SinkBehaviour::Hangs),
        outlet("panics", &panics, SinkBehaviour::Panics),
        outlet("takes", &takes, SinkBehaviour::Takes),
    ];
    let life = with_sinks(Arc::new(MemoryStore::new()), 1, sinks).await;
    let begun = tokio::time::Instant::now();
    for _ in 0..20 {
        let turn = life.send("hi").await;
        life.end(turn).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(takes.ids().len(), 20);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(hangs.attempts.lock().unwrap().len(), Limits::default().deliveries_at_once);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let store = life.runtime.store();
    for (sink, why) in [("hangs", "it took longer than 30000 ms"), ("panics", "the sink panicked")] {
        let first = store.deliveries(sink.to_owned(), 9).await.unwrap().remove(0);
        assert_eq!(first.failure.map(|failure| failure.detail), Some(why.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn two_workers_deliver_each_output_once() {
    let memory = MemoryStore::new();
    let seen: Arc<SeenDeliveries> = Arc::default();
    let sinks = || vec![outlet("a", &seen, SinkBehaviour::Takes)];
    let one = with_sinks(Arc::new(memory.clone()), 1, sinks()).await;
    let two = with_sinks(Arc::new(memory.clone()), 2, sinks()).await;
    for n in 0..20 {
        let life = if n % 2 == 0 { &one } else { &two };
        let turn = life.send("hi").await;
        life.end(turn).await;
    }
    assert_eq!((settled(&one).await.delivered, settled(&two).await.delivered), (20, 20));
    assert_eq!((seen.ids().len(), seen.attempts.lock().unwrap().len()), (20, 20));
}

/// A store that counts requests.
struct Counting {
    memory: MemoryStore,
    asked: Arc<AtomicU64>,
}

impl Backend for Counting {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.memory.write(unit)
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.memory.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.memory)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.memory)
    }
}

outlast_ledger::implement_store!(Counting);

/// Returns how often a store is queried in fifteen idle minutes.
async fn asked_at_rest(sinks: Vec<SubscribedSink>) -> u64 {
    let asked: Arc<AtomicU64> = Arc::default();
    let store = Counting { memory: MemoryStore::new(), asked: asked.clone() };
    let life = with_sinks(Arc::new(store), 1, sinks).await;
    let turn = life.send("hi").await;
    life.end(turn).await;
    life.runtime.idle().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = asked.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(15)).await;
    asked.load(Ordering::SeqCst) - before
}

#[tokio::test(start_paused = true)]
async fn sinks_add_no_store_polling_at_rest() {
    let seen: Arc<SeenDeliveries> = Arc::default();
    let with = asked_at_rest(vec![outlet("a", &seen, SinkBehaviour::Takes)]).await;
    assert_eq!((seen.ids().len(), with), (1, asked_at_rest(Vec::new()).await));
}

#[tokio::test(start_paused = true)]
async fn duplicate_sink_names_are_refused_at_startup() {
    let seen: Arc<SeenDeliveries> = Arc::default();
    let sinks = vec![outlet("a", &seen, SinkBehaviour::Takes), outlet("a", &seen, SinkBehaviour::Takes)];
    let memory = Arc::new(MemoryStore::new());
    let started =
        live_with(memory, vec![], Arc::default(), 1, |config: &mut RuntimeConfig| config.sinks = sinks).await;
    assert_eq!(started.err().map(|error| error.kind()), Some(Kind::ConfigInvalid));
    assert!(SubscribedSink::new("a b", Other { seen: seen.clone(), habit: SinkBehaviour::Takes }).is_err());
    assert!(outlet("a", &seen, SinkBehaviour::Takes).with_ends(["joined"]).is_err());
}
