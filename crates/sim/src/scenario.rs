//! The catalogue: what agents and their users do, one small story each.
//!
//! A story is told from outside: who says what when. Whoever gets no answer says it again with the same key, as a client
//! does, so a story is the same however often the system dies in it.
use crate::bank::QUESTION;
use crate::bounds;
use outlast_vocab::package::Package;
use outlast_vocab::{Kind, Limits};
use std::sync::OnceLock;
use std::time::Duration;

/// One story of one session.
pub(crate) struct Scenario {
    /// Its name; the first message of its session begins with it.
    pub(crate) name: &'static str,
    /// What the model says, call by call.
    pub(crate) lines: Vec<Line>,
    /// What happens outside.
    pub(crate) acts: Vec<Act>,
    /// Bounds it needs.
    pub(crate) limits: fn(&mut Limits),
    /// What is special about its agent.
    pub(crate) agent: fn(&mut Package),
    /// Whether it ends the same whenever its acts fall: if not, only the promises that always hold are checked.
    pub(crate) settled: bool,
    /// Whether the worker dies in it by itself.
    pub(crate) deadly: bool,
    /// Whether its bounds or its agent are its own, so that it shares its worker with no other.
    pub(crate) alone: bool,
}

/// What the model does in one call.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Say(&'static str),
    /// Asks for tools, each with a text.
    Call(&'static [(&'static str, &'static str)]),
    Fail(Kind),
    /// The provider is down until the world is so many milliseconds old; then the model says this.
    SayOnceUp(u64, &'static str),
    /// The same, and then it asks for tools.
    CallOnceUp(u64, &'static [(&'static str, &'static str)]),
}

/// Something that happens outside, once its time has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) when: When,
    pub(crate) what: What,
}

/// When an act's time has come. Acts are named by their place in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    AtOnce,
    /// That act was acknowledged.
    Acked(usize),
    /// A turn waits for something outside; one that only lets time pass before it asks its model again does not count.
    Parked,
    /// So many records of this name are durable.
    Recorded(&'static str, usize),
    /// A tool acted.
    Did(&'static str),
    /// That act was acknowledged so many milliseconds ago.
    Later(usize, u64),
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// An input.
    Say(&'static str),
    /// An input whose answer must be a number.
    AskNumber(&'static str),
    /// An input that wants to join the running turn.
    Steer(&'static str),
    /// An input on another head.
    SayOn(&'static str, &'static str),
    /// Somebody completes what a tool waits for under this name; `false` is a refusal.
    Resolve(&'static str, bool),
    /// Somebody decides what waits for an approval; `false` is a no.
    Approve(bool),
    /// Somebody wants the turn of that act to stop.
    Cancel(usize),
    /// Somebody wants the turn of that act to stop and what it did to be taken back.
    Abort(usize),
    /// The session is forked into a new one, which is then spoken to.
    Fork(&'static str),
    /// A new head is made where the main one stands.
    Branch(&'static str),
    /// The main head goes back to where the session began.
    Rewind,
    /// A person says that the call of unknown outcome happened.
    Settle,
    /// An operator raises the budget of the agent.
    Raise,
}

const fn at_once(what: What) -> Act {
    Act { when: When::AtOnce, what }
}

const fn after(when: When, what: What) -> Act {
    Act { when, what }
}

impl Scenario {
    pub(crate) fn new(name: &'static str, lines: Vec<Line>) -> Self {
        let acts = vec![at_once(What::Say("go"))];
        Self { name, lines, acts, limits: |_| {}, agent: |_| {}, settled: true, deadly: false, alone: false }
    }

    /// Its first input wants a number.
    fn asking(mut self) -> Self {
        self.acts[0] = at_once(What::AskNumber("go"));
        self
    }

    pub(crate) fn then(mut self, when: When, what: What) -> Self {
        self.acts.push(after(when, what));
        self
    }

    /// What comes of it depends on when things happen.
    pub(crate) fn racing(mut self) -> Self {
        self.settled = false;
        self
    }

    pub(crate) fn deadly(mut self) -> Self {
        self.deadly = true;
        self
    }

    /// Its agent is another one.
    pub(crate) fn agent(mut self, agent: fn(&mut Package)) -> Self {
        self.agent = agent;
        self.alone = true;
        self
    }

    fn with(mut self, limits: fn(&mut Limits)) -> Self {
        self.limits = limits;
        self.alone = true;
        self
    }

    /// Turns that it must come to: its inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.acts.iter().filter(|act| act.what.is_input()).count()
    }
}

impl What {
    /// Whether it is an input, which must be answered by a turn.
    pub(crate) const fn is_input(self) -> bool {
        matches!(self, Self::Say(_) | Self::AskNumber(_) | Self::Steer(_) | Self::SayOn(..))
    }
}

/// Every scenario.
pub(crate) fn catalogue() -> &'static [Scenario] {
    static CATALOGUE: OnceLock<Vec<Scenario>> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        let mut all = turns();
        all.extend(outages());
        all.extend(waits());
        all.extend(outside());
        all.extend(trouble());
        all.extend(servers());
        all.extend(bounds::stories());
        all
    })
}

/// Turns that nobody interferes with.
fn turns() -> Vec<Scenario> {
    use Line::{Call, Say};
    const BATCH: Line = Call(&[("look", "a"), ("put", "b"), ("pay", "c"), ("keep", ""), ("book", "d")]);
    const MANY: Line = Call(&[("put", "x"); 12]);
    vec![
        Scenario::new("plain", vec![Say("hello there you")]),
        Scenario::new("long answer", vec![Say(long())]),
        Scenario::new("pure tool", vec![Call(&[("look", "a")]), Say("done")]),
        Scenario::new("idempotent tool", vec![Call(&[("put", "a")]), Say("done")]),
        Scenario::new("at-most-once tool", vec![Call(&[("pay", "a")]), Say("done")]),
        Scenario::new("tool with a probe", vec![Call(&[("book", "a")]), Say("done")]),
        Scenario::new("transactional tool", vec![Call(&[("keep", "")]), Call(&[("keep", "")]), Say("done")]),
        Scenario::new("parallel tools", vec![BATCH, Say("done")]),
        Scenario::new("more calls than may run at once", vec![MANY, Say("done")]),
        Scenario::new(
            "several rounds",
            vec![Call(&[("look", "a")]), Call(&[("pay", "b")]), Call(&[("put", "c")]), Say("done")],
        ),
        Scenario::new("durable steps", vec![Call(&[("stepped", "x")]), Say("done")]),
        Scenario::new("steps beside a payment", vec![Call(&[("stepped", "x"), ("pay", "y")]), Say("done")]),
        Scenario::new("typed answer", vec![Call(&[("pay", "a")]), Say("three"), Say("3")]).asking(),
        Scenario::new("sleep", vec![Call(&[("nap", "")]), Say("done")]),
    ]
}

/// Turns whose provider is down.
fn outages() -> Vec<Scenario> {
    use Line::{Call, CallOnceUp, Say, SayOnceUp};
    vec![
        Scenario::new("provider outage", vec![SayOnceUp(8_000, "hello again")]).with(|_| {}),
        Scenario::new(
            "two provider outages",
            vec![CallOnceUp(5_000, &[("pay", "a")]), SayOnceUp(12_000, "done")],
        )
        .with(|_| {}),
        Scenario::new("cancel in an outage", vec![Call(&[("pay", "a")]), SayOnceUp(86_400_000, "done")])
            .then(When::Recorded("turn.parked", 1), What::Cancel(0))
            .with(|_| {}),
        Scenario::new(
            "outage longer than the patience",
            vec![Call(&[("put", "a")]), SayOnceUp(864_000_000, "")],
        )
        .with(|limits| limits.provider_wait = Duration::from_secs(8)),
        Scenario::new("input queued in an outage", vec![SayOnceUp(6_000, "one"), Say("two")])
            .then(When::Acked(0), What::Say("more"))
            .with(|_| {}),
    ]
}

/// Turns that wait for somebody.
fn waits() -> Vec<Scenario> {
    use Line::{Call, Say};
    const WAIT: Line = Call(&[("wait", "k")]);
    const ASK: Line = Call(&[("ask", "k")]);
    vec![
        Scenario::new("pending completion", vec![WAIT, Say("done")])
            .then(When::Parked, What::Resolve("k", true)),
        Scenario::new("completion that comes early", vec![WAIT, Say("done")])
            .then(When::Did("wait"), What::Resolve("k", true)),
        Scenario::new("approval that is denied", vec![WAIT, Say("done")])
            .then(When::Parked, What::Resolve("k", false)),
        Scenario::new(
            "two completions",
            vec![Call(&[("wait", "k"), ("wait", "l"), ("put", "m")]), Say("done")],
        )
        .then(When::Did("wait"), What::Resolve("l", true))
        .then(When::Acked(1), What::Resolve("k", true)),
        Scenario::new("resolved twice", vec![WAIT, Say("done")])
            .then(When::Parked, What::Resolve("k", true))
            .then(When::Acked(1), What::Resolve("k", false)),
        Scenario::new("event", vec![ASK, Say("done")]).then(When::Parked, What::Resolve("k", true)),
        Scenario::new("event that comes early", vec![ASK, Say("done")])
            .then(When::Did("ask"), What::Resolve("k", true)),
        Scenario::new("event that never comes", vec![Call(&[("ask", "hurry")]), Say("done")]),
        Scenario::new("event that comes about too late", vec![Call(&[("ask", "hurry")]), Say("done")])
            .then(When::Later(0, 9_990), What::Resolve("hurry", true))
            .racing(),
    ]
}

/// Turns that somebody interferes with, and sessions that branch.
fn outside() -> Vec<Scenario> {
    use Line::{Call, Say};
    const WAIT: Line = Call(&[("wait", "k")]);
    const ENDED: When = When::Recorded("turn.ended", 1);
    vec![
        Scenario::new("queued input", vec![Call(&[("put", "a")]), Say("one"), Say("two")])
            .then(When::Acked(0), What::Say("more")),
        Scenario::new("three turns", vec![Say("one"), Call(&[("pay", "a")]), Say("two"), Say("three")])
            .then(ENDED, What::Say("more"))
            .then(When::Recorded("turn.ended", 2), What::Say("and more")),
        Scenario::new("long conversation", vec![Say("as you wish, my friend"); 8])
            .then(ENDED, What::Say("and now the second thing"))
            .then(When::Recorded("turn.ended", 2), What::Say("and now the third thing"))
            .then(When::Recorded("turn.ended", 3), What::Say("and now the last thing"))
            .with(|limits| limits.view_bytes = 700),
        Scenario::new("steering", vec![WAIT, Say("done")])
            .then(When::Parked, What::Steer("also"))
            .then(When::Acked(1), What::Resolve("k", true)),
        Scenario::new("steering at any time", vec![Call(&[("look", "a")]), Say("done"), Say("also done")])
            .then(When::Acked(0), What::Steer("also"))
            .racing(),
        Scenario::new("cancel", vec![WAIT, Say("done")]).then(When::Parked, What::Cancel(0)),
        Scenario::new("cancel at any time", vec![Call(&[("pay", "a"), ("stepped", "b")]), Say("done")])
            .then(When::Did("step one"), What::Cancel(0))
            .racing(),
        Scenario::new("cancel at once", vec![Call(&[("put", "a")]), Say("done")])
            .then(When::Acked(0), What::Cancel(0))
            .racing(),
        Scenario::new("cancel of a queued input", vec![WAIT, Say("done")])
            .then(When::Parked, What::Say("never mind"))
            .then(When::Acked(1), What::Cancel(1))
            .then(When::Acked(2), What::Resolve("k", true)),
        Scenario::new("approval", vec![Call(&[("guarded", "a"), ("put", "b")]), Say("done")])
            .then(When::Parked, What::Approve(true)),
        Scenario::new("denial", vec![Call(&[("guarded", "a")]), Say("done")])
            .then(When::Parked, What::Approve(false)),
        Scenario::new("cancel instead of an approval", vec![Call(&[("guarded", "a")]), Say("done")])
            .then(When::Parked, What::Cancel(0)),
        Scenario::new("abort", vec![Call(&[("rent", "a")]), Call(&[("rent", "b"), ("put", "c")]), WAIT])
            .then(When::Parked, What::Abort(0)),
        Scenario::new("abort at any time", vec![Call(&[("rent", "a")]), Call(&[("rent", "b")]), Say("done")])
            .then(When::Did("rent"), What::Abort(0))
            .racing(),
        Scenario::new("fork", vec![Call(&[("put", "a")]), Say("one"), Say("two")])
            .then(ENDED, What::Fork("more")),
        Scenario::new("branch", vec![Say("one"), Say("two")])
            .then(ENDED, What::Branch("draft"))
            .then(When::Acked(1), What::SayOn("draft", "more")),
        Scenario::new("rewritten history", vec![Call(&[("pay", "a")]), Say("one")])
            .then(ENDED, What::Rewind)
            .then(When::Acked(1), What::Say("rewritten history: again")),
    ]
}

/// What goes wrong by itself.
fn trouble() -> Vec<Scenario> {
    use Line::{Call, Fail, Say};
    vec![
        Scenario::new("retries", vec![Call(&[("flaky", "")]), Say("done")]),
        Scenario::new("unknown tool", vec![Call(&[("nothing", "")]), Say("done")]),
        Scenario::new("tool that panics", vec![Call(&[("panics", "a")]), Say("done")]),
        Scenario::new("tool that hangs", vec![Call(&[("hangs", "")]), Say("done")]),
        Scenario::new("late answer", vec![Call(&[("late", "")]), Say("done")]),
        Scenario::new("model that refuses", vec![Fail(Kind::ModelRejected)]),
        Scenario::new(
            "too many rounds",
            vec![Call(&[("look", "a")]), Call(&[("look", "b")]), Call(&[("look", "c")]), Say("done")],
        )
        .with(|limits| limits.model_calls = 2),
        Scenario::new("unknown outcome", vec![Call(&[("lost", "a")]), Say("done")])
            .then(When::Recorded("turn.ended", 1), What::Settle)
            .deadly(),
        Scenario::new("poison", vec![Call(&[("poison", "a")]), Say("done")]).agent(|_| {}).deadly(),
    ]
}

/// Calls of an MCP server.
fn servers() -> Vec<Scenario> {
    use Line::{Call, Say};
    const BATCH: Line = Call(&[("bank.pay", "a"), ("pay", "b"), ("bank.look", "c"), ("bank.pay", "d")]);
    vec![
        Scenario::new("MCP call", vec![Call(&[("bank.pay", "a")]), Say("done")])
            .then(When::Recorded("turn.ended", 1), What::Settle),
        Scenario::new("pure MCP call", vec![Call(&[("bank.look", "a")]), Say("done")]),
        Scenario::new("MCP calls beside others", vec![BATCH, Call(&[("bank.pay", "e")]), Say("done")]),
        Scenario::new("question of an MCP server", vec![Call(&[("bank.ask", "a")]), Say("done")])
            .then(When::Parked, What::Resolve(QUESTION, true)),
    ]
}

/// More than fits a row.
fn long() -> &'static str {
    static LONG: OnceLock<String> = OnceLock::new();
    LONG.get_or_init(|| "many words ".repeat(2_000))
}
