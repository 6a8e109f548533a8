//! Aborted turns and the calls that undo their work.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::service::{Completion, Services, Tools};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done, failed};
use outlast_runtime::RuntimeConfig;
use outlast_views::CancelOutcome;
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::tool::UndoCall;
use outlast_vocab::{Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The bookings in the outside world, and a log of changes to them.
#[derive(Default)]
struct BookingService {
    booked: Mutex<Vec<String>>,
    log: Mutex<Vec<String>>,
}

impl BookingService {
    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn booked(&self) -> Vec<String> {
        self.booked.lock().unwrap().clone()
    }
}

#[derive(Deserialize, JsonSchema)]
struct BookingArgs {
    what: String,
}

/// A tool that books. A booking is undone by its number, which only the result contains.
struct Book(Arc<BookingService>);

impl Tool for Book {
    type Args = BookingArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("book", "Books.").idempotent()
    }

    async fn run(&self, (): (), _: Call, args: BookingArgs) -> Result<ToolRunOutcome, Error> {
        let number = format!("N-{}", args.what);
        let mut booked = self.0.booked.lock().unwrap();
        if !booked.contains(&number) {
            booked.push(number.clone());
            self.0.log.lock().unwrap().push(format!("book {}", args.what));
        }
        done(json!({ "number": number }))
    }

    fn undo(&self, args: BookingArgs, result: &Value) -> Option<UndoCall> {
        if args.what == "gift" {
            return None;
        }
        Some(UndoCall { tool: "unbook".parse().unwrap(), arguments: result.clone() })
    }
}

#[derive(Deserialize, JsonSchema)]
struct Number {
    number: String,
}

/// A tool that undoes a booking.
struct Unbook(Arc<BookingService>);

impl Tool for Unbook {
    type Args = Number;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("unbook", "Takes a booking back.").idempotent()
    }

    async fn run(&self, (): (), _: Call, args: Number) -> Result<ToolRunOutcome, Error> {
        if args.number == "N-final" {
            return Err(failed("a final booking stays"));
        }
        let mut booked = self.0.booked.lock().unwrap();
        if let Some(at) = booked.iter().position(|number| *number == args.number) {
            booked.remove(at);
            self.0.log.lock().unwrap().push(format!("unbook {}", args.number));
        }
        done("gone")
    }
}

/// A tool that orders and is completed externally later. The completion contains the number.
struct Order(Arc<Witness>);

impl Tool for Order {
    type Args = BookingArgs;
    type Needs = Completion;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("order", "Orders.").idempotent().durable().undone_by("unbook")
    }

    async fn run(&self, completion: Completion, _: Call, args: BookingArgs) -> Result<ToolRunOutcome, Error> {
        self.0.keys.lock().unwrap().insert(args.what, completion.key()?);
        Ok(ToolRunOutcome::Pending)
    }
}

/// A tool that books a flight and a hotel, or neither.
struct Trip(&'static str);

impl Tool for Trip {
    type Args = BookingArgs;
    type Needs = Tools;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("trip", "Books a trip.").idempotent().durable()
    }

    async fn run(&self, tools: Tools, _: Call, args: BookingArgs) -> Result<ToolRunOutcome, Error> {
        tools.call("book", json!({ "what": "flight" })).await?;
        tools.call("book", json!({ "what": self.0 })).await?;
        if args.what == "too dear" {
            tools.undo().await?;
            return Err(failed("too dear"));
        }
        done("booked")
    }
}

fn with_bookings(
    bookings: &Arc<BookingService>,
    witness: &Arc<Witness>,
) -> impl FnOnce(&mut RuntimeConfig) + use<> {
    let (bookings, witness) = (bookings.clone(), witness.clone());
    move |config| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Book(bookings.clone())).unwrap();
        toolbox.add(Unbook(bookings)).unwrap();
        toolbox.add(Order(witness.clone())).unwrap();
        toolbox.add(Trip("hotel")).unwrap();
        toolbox.add(Wait(witness)).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
    }
}

fn book(what: &[&str]) -> Line {
    Line::Call(what.iter().map(|what| ("book", json!({ "what": what }))).collect())
}

fn ask(tool: &'static str, what: &str) -> Line {
    Line::Call(vec![(tool, json!({ "what": what }))])
}

/// Returns the lines of a turn that books and then waits.
fn story() -> Vec<Line> {
    vec![book(&["flight"]), book(&["hotel", "gift"]), call("wait", "x"), Line::Say("done")]
}

async fn begin(lines: Vec<Line>) -> (Arc<BookingService>, Life) {
    let (counter, witness): (Arc<BookingService>, Arc<Witness>) = Default::default();
    let change = with_bookings(&counter, &witness);
    let life = live_with(Arc::new(MemoryStore::new()), lines, witness, 1, change).await.unwrap();
    (counter, life)
}

fn aborted(undone: u32, left: u32) -> TurnEnd {
    TurnEnd::Aborted { reason: "enough".to_owned(), undone, left }
}

#[tokio::test(start_paused = true)]
async fn abort_undoes_calls_newest_first() {
    let (bookings, life) = begin(story()).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!(life.runtime.abort(turn, "enough").await.unwrap(), CancelOutcome::Requested);
    assert_eq!(life.end(turn).await, aborted(2, 0));
    assert_eq!(
        bookings.log(),
        ["book flight", "book hotel", "book gift", "unbook N-hotel", "unbook N-flight"]
    );
    // The model sees that they are gone.
    let next = life.send("and now?").await;
    life.end(next).await;
    assert_eq!(life.last_shown().iter().filter(|shown| *shown == "gone").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_undoes_nothing() {
    let (bookings, life) = begin(story()).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
    assert_eq!(bookings.booked(), ["N-flight", "N-hotel", "N-gift"]);
    // The first request wins, and a turn that has ended is not undone.
    assert!(matches!(life.runtime.abort(turn, "late").await.unwrap(), CancelOutcome::AlreadyEnded(_)));
}

#[tokio::test(start_paused = true)]
async fn irreversible_call_is_counted_and_others_undone() {
    let (bookings, life) = begin(vec![book(&["flight"]), book(&["final"]), call("wait", "x")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.abort(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, aborted(1, 1));
    assert_eq!(bookings.booked(), ["N-final"]);
}

#[tokio::test(start_paused = true)]
async fn undo_of_external_call_uses_its_completion() {
    let (bookings, life) = begin(vec![ask("order", "x"), call("wait", "y")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    bookings.booked.lock().unwrap().push("N-x".to_owned());
    let key = life.witness.keys.lock().unwrap()["x"].clone();
    life.runtime
        .resolve(&key, outlast_vocab::wait::Resolution::Ok(json!({ "number": "N-x" })))
        .await
        .unwrap();
    while !life.witness.keys.lock().unwrap().contains_key("y") {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    life.until("turn.parked").await;
    life.runtime.abort(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, aborted(1, 0));
    assert_eq!(bookings.log(), ["unbook N-x"]);
}

#[tokio::test(start_paused = true)]
async fn tool_undoes_nested_calls_as_group() {
    let (bookings, life) = begin(vec![ask("trip", "too dear"), call("wait", "x")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!(bookings.log(), ["book flight", "book hotel", "unbook N-hotel", "unbook N-flight"]);
    // Calls that were undone are not undone again.
    life.runtime.abort(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, aborted(0, 0));
}

#[tokio::test(start_paused = true)]
async fn abort_undoes_nested_calls() {
    let (bookings, life) = begin(vec![ask("trip", "fine"), call("wait", "x")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.abort(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, aborted(2, 0));
    assert_eq!(bookings.booked(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn abort_undo_survives_crashes() {
    let lines = || vec![book(&["car"]), ask("trip", "too dear"), book(&["boat", "gift"]), call("wait", "x")];
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let (counter, witness): (Arc<BookingService>, Arc<Witness>) = Default::default();
        let first = live_with(
            Arc::new(crashing_store),
            lines(),
            witness.clone(),
            1,
            with_bookings(&counter, &witness),
        )
        .await
        .unwrap();
        let all = async {
            let turn = first.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            first.until("turn.parked").await;
            first.runtime.abort(turn, "enough").await.unwrap();
            first.end(turn).await
        };
        let done = tokio::select! {
            end = all => Some(end),
            () = pulse.stopped() => None,
        };
        if let Some(end) = done {
            assert_eq!(end, aborted(2, 0));
            break;
        }
        deaths += 1;
        first.die(&memory).await;
        let second =
            live_with(Arc::new(memory), lines(), witness.clone(), 2, with_bookings(&counter, &witness))
                .await
                .unwrap();
        let turn = second.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
        if !second.facts().await.iter().any(|fact| matches!(fact, Fact::CancelRequested { .. })) {
            second.until("turn.parked").await;
        }
        second.runtime.abort(turn, "enough").await.unwrap();
        assert_eq!(second.end(turn).await, aborted(2, 0), "{death:?}");
        assert_eq!(counter.booked(), ["N-gift"], "{death:?}");
        let log = counter.log();
        let tail = log.iter().rev().take(2).rev().cloned().collect::<Vec<_>>();
        assert_eq!(tail, ["unbook N-boat", "unbook N-car"], "{death:?}");
    }
    assert!(deaths > 20, "died {deaths} times");
}

#[tokio::test(start_paused = true)]
async fn missing_undo_tool_is_refused_at_startup() {
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Order(Arc::default())).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
    };
    let error =
        live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.err().unwrap();
    assert_eq!(error.kind(), Kind::ToolUnknown);
    assert!(error.detail().contains("`order` is undone by `unbook`"), "{error}");
}
