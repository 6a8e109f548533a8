//! Payments: reserved before the action, settled after it, released if it fails, and never made twice.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::payment::{InMemoryPaymentAuthority, PaymentAuthority, Payments, PaymentsEnabled};
use outlast_ports::service::{Cancellation, Services, Tools};
use outlast_ports::tool::{Call, ProbeResult, Tool, ToolRunOutcome, ToolSpec, Toolbox, done, failed};
use outlast_runtime::RuntimeConfig;
use outlast_vocab::event::Event;
use outlast_vocab::id::PaymentId;
use outlast_vocab::message::ToolResult;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentOrder, PaymentState};
use outlast_vocab::record::{Fact, OutcomeVerdict, Seq, TurnEnd};
use outlast_vocab::{CallId, Error, Kind};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn order(text: &str) -> PaymentOrder {
    let amount = "3.10 EUR".parse().unwrap();
    PaymentOrder { payee: "baker".to_owned(), amount, purpose: text.to_owned() }
}

fn authority() -> Arc<InMemoryPaymentAuthority> {
    Arc::new(InMemoryPaymentAuthority::with_money(["10 EUR".parse().unwrap()]))
}

/// Returns the remaining money and the states of the payments.
fn look(authority: &InMemoryPaymentAuthority) -> (String, Vec<&'static str>) {
    let left = authority.available("EUR".parse().unwrap()).unwrap().to_string();
    let standing = |(_, standing): &(PaymentOrder, AuthorityPaymentState)| match standing {
        AuthorityPaymentState::Reserved => "reserved",
        AuthorityPaymentState::Settled { .. } => "settled",
        AuthorityPaymentState::Released => "released",
    };
    (left, authority.payments().iter().map(standing).collect())
}

/// What was really bought, and the records of it.
#[derive(Default)]
struct Shop {
    bought: AtomicU32,
    recorded: Mutex<String>,
}

/// A tool that buys something. Its text selects what happens.
struct Buy(Arc<Shop>, EffectClassOf);

#[derive(Clone, Copy, PartialEq, Eq)]
enum EffectClassOf {
    Idempotent,
    Probed,
    Lost,
}

impl Tool for Buy {
    type Args = Note;
    type Needs = (Payments, Cancellation);

    fn spec(&self) -> ToolSpec {
        let about = ToolSpec::new("buy", "Buys.").durable();
        if self.1 == EffectClassOf::Idempotent { about.idempotent() } else { about }
    }

    async fn run(
        &self,
        (payments, cancellation): Self::Needs,
        _: Call,
        args: Note,
    ) -> Result<ToolRunOutcome, Error> {
        let hold = payments.reserve("cake", order(&args.text)).await?;
        match args.text.as_str() {
            "broken" => return Err(failed("the oven is broken")),
            "forgotten" => return done("nothing"),
            "later" => return Ok(ToolRunOutcome::Pending),
            "slow" => {
                cancellation.requested().await;
                return Err(failed("stopped when asked"));
            }
            "rude" => std::future::pending().await,
            "given back" => hold.release("changed my mind").await?,
            _ => {
                self.0.bought.fetch_add(1, Ordering::SeqCst);
                hold.settle().await?;
            }
        }
        done(format!("bought {}", args.text))
    }

    async fn probe(&self, _: CallId, args: Note) -> Result<ProbeResult, Error> {
        if self.1 == EffectClassOf::Lost {
            return Ok(ProbeResult::CannotTell);
        }
        Ok(if self.0.bought.load(Ordering::SeqCst) > 0 {
            ProbeResult::Happened(ToolResult::Ok(json!(format!("bought {}", args.text))))
        } else {
            ProbeResult::DidNotHappen
        })
    }
}

/// A tool that buys through another tool.
struct Send;

impl Tool for Send {
    type Args = Note;
    type Needs = (Tools,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("send", "Sends somebody to buy.").idempotent().durable()
    }

    async fn run(&self, (tools,): Self::Needs, _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        done(tools.call("buy", json!({ "text": args.text })).await?)
    }
}

fn paying(
    authority: Arc<dyn PaymentAuthority>,
    shop: Arc<Shop>,
    class: EffectClassOf,
) -> impl FnOnce(&mut RuntimeConfig) {
    move |config| {
        let mut toolbox = Toolbox::new(Services::default().grant(PaymentsEnabled));
        toolbox.add(Buy(shop, class)).unwrap();
        toolbox.add(Send).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        config.payments = Some(authority);
    }
}

async fn with(authority: Arc<dyn PaymentAuthority>, lines: Vec<Line>) -> Life {
    let change = paying(authority, Arc::default(), EffectClassOf::Idempotent);
    live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap()
}

fn buy(text: &str) -> Vec<Line> {
    vec![call("buy", text), Line::Say("done")]
}

async fn states(life: &Life) -> Vec<PaymentState> {
    let state = |fact| match fact {
        Fact::Payment(payment) => Some(payment.state),
        _ => None,
    };
    life.facts().await.into_iter().filter_map(state).collect()
}

#[tokio::test(start_paused = true)]
async fn payment_is_reserved_settled_and_recorded() {
    let authority = authority();
    let life = with(authority.clone(), buy("a cake")).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    assert_eq!(look(&authority), ("6.9 EUR".to_owned(), vec!["settled"]));
    let [PaymentState::Asked, PaymentState::Reserved, PaymentState::Settled { receipt }] =
        &states(&life).await[..]
    else {
        panic!("asked, reserved, settled")
    };
    assert!(receipt.starts_with("receipt of pay_"), "{receipt}");
    // The model sees neither the receipt nor the credentials.
    assert_eq!(life.last_shown().pop().unwrap(), "bought a cake");
}

#[tokio::test(start_paused = true)]
async fn unsettled_payment_is_released_after_call() {
    for (text, reason) in [
        ("broken", "the call failed"),
        ("forgotten", "the call ended without settling it"),
        ("later", "the call failed"),
        ("given back", "changed my mind"),
    ] {
        let authority = authority();
        let life = with(authority.clone(), buy(text)).await;
        let turn = life.send("go").await;
        life.end(turn).await;
        assert_eq!(look(&authority), ("10 EUR".to_owned(), vec!["released"]), "{text}");
        let last = states(&life).await.pop();
        assert_eq!(last, Some(PaymentState::Released { reason: reason.to_owned() }), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_releases_its_payment() {
    let authority = authority();
    let life = with(authority.clone(), buy("slow")).await;
    let turn = life.send("go").await;
    life.until("effect.payment").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    assert_eq!(look(&authority), ("10 EUR".to_owned(), vec!["released"]));
}

#[tokio::test(start_paused = true)]
async fn nested_tool_pays_once() {
    let authority = authority();
    let life =
        with(authority.clone(), vec![call("send", "a cake"), call("send", "broken"), Line::Say("done")])
            .await;
    let turn = life.send("go").await;
    life.end(turn).await;
    assert_eq!(look(&authority).0, "6.9 EUR");
    let mut standings = look(&authority).1;
    standings.sort_unstable();
    assert_eq!(standings, ["released", "settled"]);
}

#[tokio::test(start_paused = true)]
async fn authority_refusal_reaches_tool_and_is_recorded() {
    let poor = Arc::new(InMemoryPaymentAuthority::with_money(["1 EUR".parse().unwrap()]));
    let life = with(poor.clone(), buy("a cake")).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let message = life.last_shown().pop().unwrap();
    assert!(message.contains("payment.refused") && message.contains("is more than there is"), "{message}");
    assert!(matches!(states(&life).await[..], [PaymentState::Asked, PaymentState::Released { .. }]));
}

/// An authority that never answers.
struct Silent;

impl PaymentAuthority for Silent {
    fn reserve<'a>(&'a self, _: PaymentId, _: &'a PaymentOrder) -> ResultFuture<'a, AuthorityPaymentState> {
        Box::pin(std::future::pending())
    }

    fn settle(&self, _: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        Box::pin(std::future::pending())
    }

    fn release(&self, _: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        Box::pin(std::future::pending())
    }

    fn find(&self, _: PaymentId) -> ResultFuture<'_, Option<AuthorityPaymentState>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn unresponsive_authority_does_not_block_turn() {
    let life = with(Arc::new(Silent), buy("a cake")).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    let message = life.last_shown().pop().unwrap();
    assert_eq!(message, "error payment.unavailable: the payment authority did not answer within 30000 ms");
    let releasing = PaymentState::Releasing { reason: "the call failed".to_owned() };
    assert_eq!(
        states(&life).await,
        [PaymentState::Asked, releasing],
        "it is owed, and everybody can see that"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_hanging_authority() {
    let life = with(Arc::new(Silent), buy("a cake")).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    // By now the authority has been called again, and hangs again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = tokio::time::Instant::now();
    life.runtime.shut_down(Duration::from_hours(1)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// An authority that reserves nothing and rejects the release of what was never reserved.
struct Strict;

impl PaymentAuthority for Strict {
    fn reserve<'a>(&'a self, _: PaymentId, _: &'a PaymentOrder) -> ResultFuture<'a, AuthorityPaymentState> {
        Box::pin(std::future::ready(Err(Error::new(Kind::PaymentUnavailable, "the bank is closed"))))
    }

    fn settle(&self, _: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        unreachable!("nothing was reserved")
    }

    fn release(&self, _: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        Box::pin(std::future::ready(Err(Error::new(Kind::PaymentRefused, "there is no such payment"))))
    }

    fn find(&self, _: PaymentId) -> ResultFuture<'_, Option<AuthorityPaymentState>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[tokio::test(start_paused = true)]
async fn refused_release_of_unknown_payment_owes_nothing() {
    let life = with(Arc::new(Strict), buy("a cake")).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    assert_eq!(states(&life).await, [PaymentState::Asked, released("there is no such payment")]);
    assert_eq!(life.runtime.store().pending_payments(10).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn paying_tool_without_authority_is_refused_at_startup() {
    let mut toolbox = Toolbox::new(Services::default());
    let error = toolbox.add(Buy(Arc::default(), EffectClassOf::Idempotent)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "port.missing: a tool requires payments, but no payment authority is configured"
    );
}

/// Runs a purchase to its end over as many processes as needed. The first crashes at `death`.
async fn play(
    class: EffectClassOf,
    lines: &[Line],
    death: CrashPoint,
) -> (Arc<InMemoryPaymentAuthority>, Arc<Shop>, u64) {
    let (memory, authority, shop) = (MemoryStore::new(), authority(), Arc::<Shop>::default());
    let crashing_store = CrashingStore::new(memory.clone(), death);
    let heart = crashing_store.pulse();
    let change = || paying(authority.clone(), shop.clone(), class);
    let first =
        live_with(Arc::new(crashing_store), lines.to_vec(), Arc::default(), 1, change()).await.unwrap();
    let act = async |life: &Life| {
        let input = keyed_input("first", "go");
        let turn = life.runtime.submit(input).await.unwrap().turn;
        life.end(turn).await;
        *shop.recorded.lock().unwrap() = format!("{:?}", life.facts().await);
    };
    let done = tokio::select! {
        () = act(&first) => true,
        () = heart.stopped() => false,
    };
    let witness = first.die(&memory).await;
    if !done {
        let second = live_with(Arc::new(memory.clone()), lines.to_vec(), witness, 2, change()).await.unwrap();
        act(&second).await;
        second.runtime.store().verify(SESSION).await.unwrap();
    }
    (authority, shop, heart.writes())
}

#[tokio::test(start_paused = true)]
async fn crash_neither_double_pays_nor_leaks_reservation() {
    for lines in [buy("a cake"), vec![call("send", "a cake"), Line::Say("done")]] {
        let (whole, _, writes) = play(EffectClassOf::Idempotent, &lines, CrashPoint::Never).await;
        assert_eq!(look(&whole), ("6.9 EUR".to_owned(), vec!["settled"]));
        for at in 0..writes {
            for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
                let (authority, ..) = play(EffectClassOf::Idempotent, &lines, death).await;
                assert_eq!(look(&authority), look(&whole), "{death:?}");
            }
        }
    }
    let lines = buy("broken");
    let (_, _, writes) = play(EffectClassOf::Idempotent, &lines, CrashPoint::Never).await;
    for at in 0..writes {
        for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
            let (authority, ..) = play(EffectClassOf::Idempotent, &lines, death).await;
            assert_eq!(look(&authority), ("10 EUR".to_owned(), vec!["released"]), "{death:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn releasing_call_has_same_result_after_crash() {
    for lines in [buy("given back"), vec![call("send", "given back"), Line::Say("done")]] {
        let (_, _, writes) = play(EffectClassOf::Idempotent, &lines, CrashPoint::Never).await;
        for at in 0..writes {
            for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
                let (authority, shop, _) = play(EffectClassOf::Idempotent, &lines, death).await;
                assert_eq!(look(&authority), ("10 EUR".to_owned(), vec!["released"]), "{death:?}");
                let recorded = shop.recorded.lock().unwrap().clone();
                assert!(recorded.contains("bought given back"), "{death:?}: {recorded}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_once_call_is_paid_iff_executed() {
    let lines = buy("a cake");
    let (_, _, writes) = play(EffectClassOf::Probed, &lines, CrashPoint::Never).await;
    for at in 0..writes {
        for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
            let (authority, shop, _) = play(EffectClassOf::Probed, &lines, death).await;
            let bought = shop.bought.load(Ordering::SeqCst);
            assert!(bought <= 1, "{death:?}");
            let settled = look(&authority).1.iter().filter(|standing| **standing == "settled").count();
            assert_eq!(settled, bought as usize, "{death:?}");
            assert!(!look(&authority).1.contains(&"reserved"), "{death:?}");
        }
    }
}

/// An authority that rejects the end of a payment this many times.
struct RejectingAuthority {
    authority: Arc<InMemoryPaymentAuthority>,
    times: AtomicU32,
    /// The requests that it got, and whether it accepted them.
    calls: Mutex<Vec<(&'static str, PaymentId, bool)>>,
}

impl RejectingAuthority {
    fn new(times: u32) -> Arc<Self> {
        Arc::new(Self { authority: authority(), times: AtomicU32::new(times), calls: Mutex::default() })
    }

    fn hears(&self, what: &'static str, id: PaymentId) -> Result<(), Error> {
        let less = |left: u32| left.checked_sub(1);
        let hears = self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err();
        self.calls.lock().unwrap().push((what, id, hears));
        if hears { Ok(()) } else { Err(Error::new(Kind::PaymentUnavailable, "the bank is closed")) }
    }

    /// Returns the requests for its only payment, and whether it accepted them.
    fn calls(&self) -> Vec<(&'static str, bool)> {
        let calls = self.calls.lock().unwrap();
        assert!(calls.iter().all(|(_, id, _)| *id == calls[0].1), "one payment has one key: {calls:?}");
        calls.iter().map(|(what, _, hears)| (*what, *hears)).collect()
    }
}

impl PaymentAuthority for RejectingAuthority {
    fn reserve<'a>(
        &'a self,
        id: PaymentId,
        order: &'a PaymentOrder,
    ) -> ResultFuture<'a, AuthorityPaymentState> {
        self.authority.reserve(id, order)
    }

    fn settle(&self, id: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        match self.hears("settle", id) {
            Ok(()) => self.authority.settle(id),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn release(&self, id: PaymentId) -> ResultFuture<'_, AuthorityPaymentState> {
        match self.hears("release", id) {
            Ok(()) => self.authority.release(id),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn find(&self, id: PaymentId) -> ResultFuture<'_, Option<AuthorityPaymentState>> {
        self.authority.find(id)
    }
}

/// Waits until the authority has accepted the end of the payment.
async fn concluded(life: &Life) -> PaymentState {
    let mut events = life.runtime.events(SESSION, Seq(0));
    loop {
        if let Event::Durable(record) = events.next().await.unwrap()
            && let Fact::Payment(payment) = record.fact
            && !payment.state.is_open()
            && !payment.state.is_in_outbox()
        {
            return payment.state;
        }
    }
}

fn released(reason: &str) -> PaymentState {
    PaymentState::Released { reason: reason.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn payment_outbox_retries_until_authority_accepts() {
    let authority = RejectingAuthority::new(3);
    let life = with(authority.clone(), buy("broken")).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() }, "nothing waits for it");
    assert_eq!(concluded(&life).await, released("the call failed"));
    assert_eq!(look(&authority.authority), ("10 EUR".to_owned(), vec!["released"]));
    let message = [("release", false), ("release", false), ("release", false), ("release", true)];
    assert_eq!(authority.calls(), message);
    let releasing = PaymentState::Releasing { reason: "the call failed".to_owned() };
    let last = [PaymentState::Asked, PaymentState::Reserved, releasing, released("the call failed")];
    assert_eq!(states(&life).await, last);
    assert_eq!(life.runtime.store().pending_payments(10).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn payment_outbox_lists_failures_with_bounded_backoff() {
    let authority = RejectingAuthority::new(u32::MAX);
    let life = with(authority.clone(), buy("broken")).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let mut pauses = Vec::new();
    while pauses.len() < 14 {
        let pending = life.runtime.store().pending_payments(10).await.unwrap().remove(0);
        let now = life.runtime.now();
        if let Some(failure) = pending.failure
            && pending.due_at > now
        {
            assert_eq!(failure.code, Kind::PaymentUnavailable);
            assert_eq!((pending.turn, pending.payment.order), (turn, order("broken")));
            pauses.push(now.until(pending.due_at).as_secs());
        }
        let due = now.until(pending.due_at).max(Duration::from_millis(1));
        tokio::time::sleep(due).await;
    }
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses.last().is_some_and(|last| (3_590..=3_600).contains(last)), "{pauses:?}");
}

/// Buys something with a tool that hangs, then cancels the turn and settles the call with this verdict.
async fn lose(life: &Life, verdict: &OutcomeVerdict) {
    let input = keyed_input("first", "go");
    let turn = life.runtime.submit(input).await.unwrap().turn;
    // A call that crashed before it requested money ends without a payment.
    tokio::select! {
        () = life.until("effect.payment") => drop(life.runtime.cancel(turn, "enough").await.unwrap()),
        _ = life.end(turn) => {}
    }
    life.end(turn).await;
    for unknown in life.runtime.store().unknown(10).await.unwrap() {
        life.runtime.settle(unknown.call, verdict.clone()).await.unwrap();
    }
}

fn verdicts() -> [OutcomeVerdict; 2] {
    [OutcomeVerdict::Happened(ToolResult::Ok(json!("it did"))), OutcomeVerdict::DidNotHappen]
}

#[tokio::test(start_paused = true)]
async fn settling_unknown_call_settles_or_releases_payment() {
    let ends = [("6.9 EUR", "settled", "settle"), ("10 EUR", "released", "release")];
    for (verdict, (left, standing, message)) in verdicts().into_iter().zip(ends) {
        for times in [0, 2] {
            let authority = RejectingAuthority::new(times);
            let change = paying(authority.clone(), Arc::default(), EffectClassOf::Lost);
            let memory = Arc::new(MemoryStore::new());
            let life = live_with(memory, buy("rude"), Arc::default(), 1, change).await.unwrap();
            lose(&life, &verdict).await;
            concluded(&life).await;
            assert_eq!(look(&authority.authority), (left.to_owned(), vec![standing]));
            let calls = authority.calls();
            assert_eq!(calls.len(), times as usize + 1);
            assert!(calls.iter().all(|(what, _)| *what == message), "{calls:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn settling_call_decides_payment_across_crashes() {
    for verdict in verdicts() {
        let (writes, whole) = word_over_a_death(&verdict, CrashPoint::Never).await;
        for at in 0..writes {
            for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
                let (_, end) = word_over_a_death(&verdict, death).await;
                // If the payment was only requested, nothing may be reserved. Then there is nothing to settle.
                assert!(end == whole || end == ("10 EUR".to_owned(), vec![]), "{death:?}: {end:?}");
            }
        }
    }
}

async fn word_over_a_death(
    verdict: &OutcomeVerdict,
    death: CrashPoint,
) -> (u64, (String, Vec<&'static str>)) {
    let (memory, authority) = (MemoryStore::new(), RejectingAuthority::new(2));
    let crashing_store = CrashingStore::new(memory.clone(), death);
    let heart = crashing_store.pulse();
    let change = || paying(authority.clone(), Arc::default(), EffectClassOf::Lost);
    let act = async |life: &Life| {
        lose(life, verdict).await;
        if !states(life).await.is_empty() {
            concluded(life).await;
        }
    };
    let first = live_with(Arc::new(crashing_store), buy("rude"), Arc::default(), 1, change()).await.unwrap();
    let done = tokio::select! {
        () = act(&first) => true,
        () = heart.stopped() => false,
    };
    let witness = first.die(&memory).await;
    if !done {
        let second = live_with(Arc::new(memory.clone()), buy("rude"), witness, 2, change()).await.unwrap();
        act(&second).await;
        second.runtime.store().verify(SESSION).await.unwrap();
        assert_eq!(second.runtime.store().pending_payments(10).await.unwrap(), []);
    }
    (heart.writes(), look(&authority.authority))
}
