//! The catalogue of scenarios: what agents and their users do.
//!
//! A scenario describes who sends what and when. A user without an acknowledgement retries with the same key, as a
//! client does. A scenario is therefore the same regardless of how often the system dies in it.
use crate::bank::QUESTION;
use crate::bounds;
use outlast_vocab::package::Package;
use outlast_vocab::{Kind, Limits};
use std::sync::OnceLock;
use std::time::Duration;

/// A scenario for one session.
pub(crate) struct Scenario {
    /// Its name. The first message of its session starts with it.
    pub(crate) name: &'static str,
    /// The model's reply to each call.
    pub(crate) lines: Vec<Line>,
    /// The acts of users and operators.
    pub(crate) acts: Vec<Act>,
    /// Changes to the limits.
    pub(crate) limits: fn(&mut Limits),
    /// Changes to the agent.
    pub(crate) agent: fn(&mut Package),
    /// Whether the result does not depend on timing. If it does, only the promises that always hold are checked.
    pub(crate) settled: bool,
    /// Whether the worker dies in it without a fault.
    pub(crate) deadly: bool,
    /// Whether it changes the limits or the agent, so that it cannot share its worker.
    pub(crate) alone: bool,
}

/// The model's reply to one call.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Say(&'static str),
    /// Calls tools, each with a text.
    Call(&'static [(&'static str, &'static str)]),
    Fail(Kind),
    /// The provider is down until the world has this age in milliseconds. Then the model says this.
    SayOnceUp(u64, &'static str),
    /// Like `SayOnceUp`, but the model then calls tools.
    CallOnceUp(u64, &'static [(&'static str, &'static str)]),
}

/// An act from outside, once it is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) when: When,
    pub(crate) what: What,
}

/// When an act is due. Acts are identified by their index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    AtOnce,
    /// That act was acknowledged.
    Acked(usize),
    /// A turn waits for something outside. A turn that only waits before it retries its model is not included.
    Parked,
    /// This many records of this name are durable.
    Recorded(&'static str, usize),
    /// A tool was executed.
    Did(&'static str),
    /// That act was acknowledged this many milliseconds ago.
    Later(usize, u64),
}

/// The kind of an act.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// An input.
    Say(&'static str),
    /// An input whose answer must be a number.
    AskNumber(&'static str),
    /// An input that joins the running turn.
    Steer(&'static str),
    /// An input on another head.
    SayOn(&'static str, &'static str),
    /// A person completes the wait of a tool with this name; `false` is a refusal.
    Resolve(&'static str, bool),
    /// A person decides a pending approval; `false` is a denial.
    Approve(bool),
    /// A person cancels the turn of that act.
    Cancel(usize),
    /// A person aborts the turn of that act, which undoes its effects.
    Abort(usize),
    /// The session is forked into a new one, which receives an input.
    Fork(&'static str),
    /// A new head is created at the position of the main one.
    Branch(&'static str),
    /// The main head is rewound to the start of the session.
    Rewind,
    /// An operator records that the call of unknown outcome happened.
    Settle,
    /// An operator raises the agent's budget.
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

    /// Requires a number as the answer to the first input.
    fn asking(mut self) -> Self {
        self.acts[0] = at_once(What::AskNumber("go"));
        self
    }

    pub(crate) fn then(mut self, when: When, what: What) -> Self {
        self.acts.push(after(when, what));
        self
    }

    /// Declares that the result depends on timing.
    pub(crate) fn racing(mut self) -> Self {
        self.settled = false;
        self
    }

    pub(crate) fn deadly(mut self) -> Self {
        self.deadly = true;
        self
    }

    /// Changes the agent.
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

    /// Returns the number of inputs, each of which must become a turn.
    pub(crate) fn inputs(&self) -> usize {
        self.acts.iter().filter(|act| act.what.is_input()).count()
    }
}

impl What {
    /// Returns whether it is an input, which must be answered by a turn.
    pub(crate) const fn is_input(self) -> bool {
        matches!(self, Self::Say(_) | Self::AskNumber(_) | Self::Steer(_) | Self::SayOn(..))
    }
}

/// Returns every scenario.
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

/// Turns without interference.
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

/// Turns that wait for a person.
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

/// Turns with interference, and sessions that branch.
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

/// Failures without faults of the machine.
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

/// Calls to an MCP server.
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

/// Returns a text that is too long for a row.
fn long() -> &'static str {
    static LONG: OnceLock<String> = OnceLock::new();
    LONG.get_or_init(|| "many words ".repeat(2_000))
}
