//! Rate limits of tool calls: never exceeded, with several processes and after crashes.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::clock::Clock;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::orgs::OrgStore;
use outlast_ports::queries::Queries;
use outlast_ports::rate::{LimiterRequest, LocalRateLimiter, RateLimiter, RateStore};
use outlast_ports::service::{Services, Tools};
use outlast_ports::tool::{Call, Tool, ToolProvider, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{Org, RateView};
use outlast_vocab::access::Access;
use outlast_vocab::id::OrgId;
use outlast_vocab::rate::{
    RateAdmission, RateLimit, RateLimitOutcome, RateLimited, RatePeriod, WhenDown, WhenFull,
};
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::{Error, Kind, Millis, SessionId};
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The times of outgoing calls, on a clock that all processes of a test share.
#[derive(Clone)]
struct Outside {
    clock: Arc<PausedClock>,
    went: Arc<Mutex<Vec<u64>>>,
}

impl Outside {
    fn new() -> Self {
        Self { clock: PausedClock::new(), went: Arc::default() }
    }

    fn goes(&self) {
        self.went.lock().unwrap().push(self.clock.now().0);
    }

    fn went(&self) -> Vec<u64> {
        self.went.lock().unwrap().clone()
    }

    /// Returns the seconds between consecutive calls.
    fn gaps(&self) -> Vec<u64> {
        self.went().windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect()
    }

    /// Configures tools that make outgoing calls, under these rate limits.
    fn under(&self, rates: Vec<RateLimit>) -> impl Fn(&mut RuntimeConfig) + use<> {
        let outside = self.clone();
        move |config| {
            let mut toolbox = Toolbox::new(Services::default());
            toolbox.add(Post(outside.clone())).unwrap();
            toolbox.add(Mail(outside.clone())).unwrap();
            toolbox.add(Forward).unwrap();
            toolbox.add(Shaky(outside.clone())).unwrap();
            config.package.tools = toolbox.manifests().into_iter().map(|manifest| manifest.name).collect();
            config.tools = vec![Arc::new(toolbox)];
            config.package.rates.clone_from(&rates);
            config.clock = outside.clock.clone();
        }
    }
}

macro_rules! outbound {
    ($($name:ident = $spec:expr;)*) => {$(
        struct $name(Outside);

        impl Tool for $name {
            type Args = Note;
            type Needs = ();

            fn spec(&self) -> ToolSpec { $spec }

            async fn run(&self, (): (), _: Call, _: Note) -> Result<ToolRunOutcome, Error> {
                self.0.goes();
                done("gone")
            }
        }
    )*};
}

outbound! {
    Post = ToolSpec::new("post", "Posts, as often as it takes.").idempotent();
    Mail = ToolSpec::new("mail", "Mails, at most once.");
}

/// A tool that makes an outgoing call through another tool.
struct Forward;

impl Tool for Forward {
    type Args = Note;
    type Needs = (Tools,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("forward", "Posts by another tool, twice.").idempotent().durable()
    }

    async fn run(&self, (tools,): (Tools,), _: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        for _ in 0..2 {
            tools.call("post", json!({ "text": "" })).await?;
        }
        done("forwarded")
    }
}

/// A tool that fails at first.
struct Shaky(Outside);

impl Tool for Shaky {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("shaky", "Fails at first.").idempotent().attempts(3, Duration::from_millis(10))
    }

    async fn run(&self, (): (), call: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        self.0.goes();
        if call.attempt < 3 {
            return Err(Error::new(Kind::ToolUnavailable, "not yet"));
        }
        done("at last")
    }
}

fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn rate(tool: &str, calls: u32, per: RatePeriod) -> RateLimit {
    RateLimit::new("out".parse().unwrap(), tool, count(calls), per)
}

fn calls(tool: &'static str, number: usize) -> Line {
    Line::Call(vec![(tool, json!({ "text": "" })); number])
}

async fn live_in(
    memory: &MemoryStore,
    outside: &Outside,
    lines: Vec<Line>,
    rates: Vec<RateLimit>,
    number: u128,
) -> Life {
    let store = Arc::new(memory.clone());
    live_with(store, lines, Arc::default(), number, outside.under(rates)).await.unwrap()
}

fn paces(facts: &[Fact]) -> Vec<&'static str> {
    let name = |fact: &Fact| match fact {
        Fact::Paced(RateLimited { pace, .. }) => Some(match pace {
            RateLimitOutcome::Waits { .. } => "waits",
            RateLimitOutcome::Goes => "goes",
            RateLimitOutcome::Refused { .. } => "refused",
        }),
        _ => None,
    };
    facts.iter().filter_map(name).collect()
}

fn answered() -> TurnEnd {
    TurnEnd::Answered { text: "done".to_owned() }
}

/// Asserts that no span of time has more calls than the rate plus one burst.
#[track_caller]
fn assert_kept(went: &[u64], rate: &RateLimit) {
    let mut went = went.to_vec();
    went.sort_unstable();
    for (first, from) in went.iter().enumerate() {
        for (last, to) in went.iter().enumerate().skip(first) {
            let calls = u64::try_from(last - first + 1).unwrap();
            let allowed = u64::from(rate.burst.get()) + (to - from) * 1_000 / rate.every();
            assert!(calls <= allowed, "{calls} calls from {from} to {to}, room for {allowed}: {went:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_over_rate_wait_and_are_recorded() {
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let rate = RateLimit { burst: count(2), ..rate("post", 60, RatePeriod::Minute) };
    let life = live_in(&memory, &outside, vec![calls("post", 4), Line::Say("done")], vec![rate], 1).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered());
    assert_eq!(outside.gaps(), [0, 1, 1]);
    assert_eq!(paces(&life.facts().await), ["waits", "waits", "goes", "goes"]);
    // Such short waits do not park the turn.
    assert!(!life.names().await.contains(&"turn.parked"));
    let [RateView { taken, refused, burst, .. }] = &memory.rates(10).await.unwrap()[..] else {
        panic!("one rate was asked")
    };
    assert_eq!((*taken, *refused, *burst), (4, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn long_rate_wait_parks_turn_across_restart() {
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let lines = || vec![calls("mail", 2), Line::Say("done")];
    let rates = || vec![rate("mail", 1, RatePeriod::Minute)];
    let life = live_in(&memory, &outside, lines(), rates(), 1).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!(outside.went().len(), 1);
    life.die(&memory).await;
    let life = live_in(&memory, &outside, lines(), rates(), 2).await;
    assert_eq!(life.end(turn).await, answered());
    assert_eq!(outside.gaps(), [60]);
    assert_eq!(memory.rates(1).await.unwrap()[0].taken, 2);
}

#[tokio::test(start_paused = true)]
async fn denying_rate_reports_to_model_and_sends_nothing() {
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let deny = RateLimit { when_full: WhenFull::Deny, ..rate("po*", 2, RatePeriod::Minute) };
    let lines = vec![calls("post", 1), calls("post", 1), Line::Say("done")];
    let life = live_in(&memory, &outside, lines, vec![deny], 1).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered());
    assert_eq!(outside.went().len(), 1);
    let shown = life.last_shown().join("\n");
    assert!(shown.contains("the rate `out` is exhausted for 30 s; retry then"), "{shown}");
    assert_eq!(paces(&life.facts().await), ["refused"]);
    // A queue that is too long also rejects the call.
    let short = WhenFull::Wait { most: Some(Duration::from_secs(10)) };
    let patient = RateLimit { when_full: short, ..rate("post", 10, RatePeriod::Minute) };
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let life = live_in(&memory, &outside, vec![calls("post", 4), Line::Say("done")], vec![patient], 1).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered());
    assert_eq!(outside.gaps(), [6]);
}

#[tokio::test(start_paused = true)]
async fn immediately_admitted_call_costs_no_extra_write() {
    let mut writes = Vec::new();
    for rates in [vec![], vec![rate("*", 60, RatePeriod::Second)]] {
        let (memory, outside) = (MemoryStore::new(), Outside::new());
        let crashing_store = CrashingStore::new(memory, CrashPoint::Never);
        let pulse = crashing_store.pulse();
        let lines = vec![calls("post", 1), Line::Say("done")];
        let life = live_with(Arc::new(crashing_store), lines, Arc::default(), 1, outside.under(rates))
            .await
            .unwrap();
        let before = pulse.writes();
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered());
        writes.push(pulse.writes() - before);
    }
    assert_eq!(writes, [4, 4]);
}

#[tokio::test(start_paused = true)]
async fn rate_counts_every_attempt_and_nested_call() {
    for (tool, gaps) in [("shaky", vec![60, 60]), ("forward", vec![60])] {
        let (memory, outside) = (MemoryStore::new(), Outside::new());
        let rates = vec![
            rate("*y", 1, RatePeriod::Minute),
            RateLimit { name: "post".parse().unwrap(), ..rate("post", 1, RatePeriod::Minute) },
        ];
        let life = live_in(&memory, &outside, vec![calls(tool, 1), Line::Say("done")], rates, 1).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered(), "{tool}");
        assert_eq!(outside.gaps(), gaps, "{tool}");
    }
}

/// A turn crashes at every write. A queued call has not begun, so an at-most-once call still goes out. A permit taken
/// for a call that crashed is used up and never given back.
#[tokio::test(start_paused = true)]
async fn crash_in_queue_keeps_call_and_rate() {
    for tool in ["mail", "post"] {
        let rate = rate("*", 20, RatePeriod::Minute);
        for at in 0.. {
            let (memory, outside) = (MemoryStore::new(), Outside::new());
            let mut died = false;
            for (number, death) in [(1, CrashPoint::AfterWrite(at)), (2, CrashPoint::Never)] {
                let crashing_store = CrashingStore::new(memory.clone(), death);
                let pulse = crashing_store.pulse();
                let lines = vec![calls(tool, 3), Line::Say("done")];
                let change = outside.under(vec![rate.clone()]);
                let life = live_with(Arc::new(crashing_store), lines, Arc::default(), number, change).await;
                let Ok(life) = life else { continue };
                let input = keyed_input("go", "go");
                let ends = async {
                    if let Ok(taken) = life.runtime.submit(input).await {
                        life.runtime.outcome(taken.turn).await.ok();
                    }
                };
                tokio::select! {
                    biased;
                    () = pulse.stopped() => died = true,
                    () = ends => {}
                }
                life.die(&memory).await;
            }
            let reader = live_in(&memory, &outside, vec![], vec![], 3).await;
            assert_kept(&outside.went(), &rate);
            let unknown = memory.unknown(10).await.unwrap().len();
            let went = outside.went().len();
            assert!(went + unknown >= 3, "{tool} at {at}: {went} went, {unknown} unknown");
            assert!(tool == "post" || went <= 3, "{tool} at {at}: {went} went");
            reader.die(&memory).await;
            if !died {
                assert!(at > 8, "it died {at} times only");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_turns_never_exceed_shared_rate() {
    for seed in 0..6_u64 {
        let (memory, outside) = (MemoryStore::new(), Outside::new());
        let rate = RateLimit { burst: count(5), ..rate("*", 120, RatePeriod::Minute) };
        let target = |n: u64| SessionTarget::Key {
            key: n.to_string(),
            fresh: SessionId::from_u128(u128::from(n) + 1),
        };
        let life = async |number: u64, death: CrashPoint| {
            let crashing_store = CrashingStore::new(memory.clone(), death);
            let pulse = crashing_store.pulse();
            let lines = vec![calls("post", 2), Line::Say("done")];
            let change = outside.under(vec![rate.clone()]);
            let worker =
                live_with(Arc::new(crashing_store), lines, Arc::default(), number.into(), change).await;
            let Ok(worker) = worker else { return };
            let send = async {
                let mut turns = Vec::new();
                for n in 0..64 {
                    let input = Input { key: Some("go".to_owned()), ..Input::text(target(n), "go") };
                    let Ok(accepted) = worker.runtime.submit(input).await else { break };
                    turns.push(accepted.turn);
                }
                for turn in turns {
                    worker.runtime.outcome(turn).await.ok();
                }
            };
            tokio::select! {
                () = send => {}
                () = pulse.stopped() => {}
            }
            worker.die(&memory).await;
        };
        for round in 0..3 {
            let death = |n: u64| CrashPoint::Before(40 + (seed * 31 + round * 17 + n * 13) % 120);
            let number = round * 2 + 1;
            tokio::join!(life(number, death(0)), life(number + 1, death(1)));
        }
        life(99, CrashPoint::Never).await;
        let went = outside.went();
        assert_kept(&went, &rate);
        let RateView { taken, .. } = memory.rates(1).await.unwrap()[0];
        let went = u64::try_from(went.len()).unwrap();
        assert!(went >= 128 && taken >= went, "{went} went, {taken} were taken, seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn organisations_do_not_share_a_rate() {
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let lines = vec![calls("post", 1), Line::Say("done")];
    let life = live_in(&memory, &outside, lines, vec![rate("*", 1, RatePeriod::Hour)], 1).await;
    let org = Org { id: OrgId::from_u128(9), name: "other".parse().unwrap(), created: Millis(0) };
    memory.create_org(org.clone()).await.unwrap();
    for access in [Access::to(OrgId::DEFAULT), Access::to(org.id)] {
        let turn = life
            .runtime
            .serving(access)
            .submit(Input::text(SessionTarget::New(life.runtime.fresh_session()), "go"))
            .await
            .unwrap()
            .turn;
        assert_eq!(life.end(turn).await, answered());
    }
    assert_eq!(outside.gaps(), [0]);
    assert_eq!(memory.rates(10).await.unwrap().len(), 2);
}

/// An external limiter, which may be down.
#[derive(Default)]
struct ExternalLimiter {
    local: LocalRateLimiter,
    down: bool,
    hangs: bool,
}

impl RateLimiter for ExternalLimiter {
    fn admit(&self, take: LimiterRequest) -> ResultFuture<'_, RateAdmission> {
        match (self.hangs, self.down) {
            (true, _) => Box::pin(std::future::pending()),
            (_, true) => Box::pin(async { Err(Error::new(Kind::IoFailed, "connection refused")) }),
            (false, false) => self.local.admit(take),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn custom_limiter_waits_survive_restart() {
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let limiter: Arc<dyn RateLimiter> = Arc::new(ExternalLimiter::default());
    let change = |config: &mut RuntimeConfig| {
        outside.under(vec![rate("mail", 1, RatePeriod::Minute)])(config);
        config.limiter = Some(limiter.clone());
    };
    let lines = || vec![calls("mail", 2), Line::Say("done")];
    let life = live_with(Arc::new(memory.clone()), lines(), Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.die(&memory).await;
    let life = live_with(Arc::new(memory.clone()), lines(), Arc::default(), 2, change).await.unwrap();
    assert_eq!(life.end(turn).await, answered());
    assert_eq!(outside.gaps(), [60]);
    assert_eq!(memory.rates(10).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn unavailable_limiter_denies_unless_rate_fails_open() {
    for (down, hangs) in [(true, false), (false, true)] {
        for (when_down, went) in [(WhenDown::Closed, 0), (WhenDown::Open, 1)] {
            let (memory, outside) = (MemoryStore::new(), Outside::new());
            let rate = RateLimit { when_down, ..rate("post", 1, RatePeriod::Minute) };
            let change = |config: &mut RuntimeConfig| {
                outside.under(vec![rate])(config);
                config.limiter =
                    Some(Arc::new(ExternalLimiter { down, hangs, ..ExternalLimiter::default() }));
            };
            let lines = vec![calls("post", 1), Line::Say("done")];
            let life = live_with(Arc::new(memory), lines, Arc::default(), 1, change).await.unwrap();
            let turn = life.send("go").await;
            assert_eq!(life.end(turn).await, answered());
            assert_eq!(outside.went().len(), went);
            let is_reported = life.last_shown().join("\n").contains("the state of the rate `out` is unknown");
            assert_eq!(is_reported, when_down == WhenDown::Closed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn turn_cancelled_in_queue_makes_no_call() {
    let (memory, outside) = (MemoryStore::new(), Outside::new());
    let rate = rate("mail", 60, RatePeriod::Minute);
    let life = live_in(&memory, &outside, vec![calls("mail", 2), Line::Say("done")], vec![rate], 1).await;
    let turn = life.send("go").await;
    life.until("effect.paced").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
    assert_eq!(outside.went().len(), 1);
    // It never began, so its outcome is not unknown.
    assert_eq!(memory.unknown(10).await.unwrap().len(), 0);
}
