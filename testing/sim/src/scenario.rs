//! The catalogue of scenarios: what agents and their users do.
//!
//! A scenario describes who sends what and when. A user without an acknowledgement retries with the same key, as a
//! client does. A scenario is therefore the same regardless of how often the system dies in it.
use crate::limit_scenarios;
use crate::sim_mcp_server::QUESTION;
use outlast_vocab::package::Package;
use outlast_vocab::{Kind, Limits};
use std::sync::OnceLock;
use std::time::Duration;

/// How long turns wait for their provider in scenarios that shorten this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// A scenario for one session.
pub(crate) struct Scenario {
    /// Its name. The first message of its session starts with it.
    pub(crate) name: &'static str,
    /// The model's reply to each call.
    pub(crate) lines: Vec<ScriptedReply>,
    /// The acts of users and operators.
    pub(crate) acts: Vec<UserAction>,
    /// Changes to the limits.
    pub(crate) limits: fn(&mut Limits),
    /// Changes to the agent.
    pub(crate) agent: fn(&mut Package),
    /// Whether the result does not depend on timing. If it does, only the promises that always hold are checked.
    pub(crate) is_deterministic: bool,
    /// Whether the worker dies in it without a fault.
    pub(crate) kills_worker: bool,
    /// Whether it changes the limits or the agent, so that it cannot share its worker.
    pub(crate) needs_own_worker: bool,
}

/// The model's reply to one call.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedReply {
    Say(&'static str),
    /// Calls tools, each with a text.
    Call(&'static [(&'static str, &'static str)]),
    Fail(Kind),
    /// The provider is down until the world has this age in milliseconds. Then the model says this.
    SayOnceUp(u64, &'static str),
    /// The provider is down until an operator restores it. Then the model says this.
    SayOnceRestored(&'static str),
    /// Like `SayOnceUp`, but the model then calls tools.
    CallOnceUp(u64, &'static [(&'static str, &'static str)]),
}

/// An act from outside, once it is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserAction {
    pub(crate) when: UserActionTrigger,
    pub(crate) what: UserActionKind,
}

/// When an act is due. Acts are identified by their index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UserActionTrigger {
    AtOnce,
    /// That act was acknowledged.
    Acked(usize),
    /// A turn waits for something outside. A turn that only waits before it retries its model is not included.
    Parked,
    /// A turn has waited for something outside twice.
    ParkedAgain,
    /// A turn parked after one of its calls was answered.
    ParkedAfterCall,
    /// This many records of this name are durable.
    Recorded(&'static str, usize),
    /// A tool was executed.
    Did(&'static str),
    /// That act was acknowledged this many milliseconds ago.
    Later(usize, u64),
}

/// The kind of an act.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UserActionKind {
    /// An input.
    SendInput(&'static str),
    /// An input whose answer must be a number.
    AskNumber(&'static str),
    /// An input that joins the running turn.
    Steer(&'static str),
    /// An input on another head.
    SendInputOnHead(&'static str, &'static str),
    /// A person completes the wait of a tool with this name; `false` is a refusal.
    Resolve(&'static str, bool),
    /// A person decides a pending approval; `false` is a denial.
    Approve(bool),
    /// A person cancels the turn of that act.
    Cancel(usize),
    /// A person aborts the turn of that act, which undoes its effects.
    Abort(usize),
    /// An operator restores the provider of the session.
    Restore,
    /// A person wakes the waiting turn of that act.
    Wake(usize),
    /// A person retries the ended turn of that act, as a new turn.
    Retry(usize),
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

const fn at_once(what: UserActionKind) -> UserAction {
    UserAction { when: UserActionTrigger::AtOnce, what }
}

const fn after(when: UserActionTrigger, what: UserActionKind) -> UserAction {
    UserAction { when, what }
}

impl Scenario {
    pub(crate) fn new(name: &'static str, lines: Vec<ScriptedReply>) -> Self {
        let acts = vec![at_once(UserActionKind::SendInput("go"))];
        Self {
            name,
            lines,
            acts,
            limits: |_| {},
            agent: |_| {},
            is_deterministic: true,
            kills_worker: false,
            needs_own_worker: false,
        }
    }

    /// Requires a number as the answer to the first input.
    fn asking(mut self) -> Self {
        self.acts[0] = at_once(UserActionKind::AskNumber("go"));
        self
    }

    pub(crate) fn then(mut self, when: UserActionTrigger, what: UserActionKind) -> Self {
        self.acts.push(after(when, what));
        self
    }

    /// Declares that the result depends on timing.
    pub(crate) fn racing(mut self) -> Self {
        self.is_deterministic = false;
        self
    }

    pub(crate) fn deadly(mut self) -> Self {
        self.kills_worker = true;
        self
    }

    /// Changes the agent.
    pub(crate) fn agent(mut self, agent: fn(&mut Package)) -> Self {
        self.agent = agent;
        self.needs_own_worker = true;
        self
    }

    fn with(mut self, limits: fn(&mut Limits)) -> Self {
        self.limits = limits;
        self.needs_own_worker = true;
        self
    }

    /// Shortens the time that turns wait for their provider.
    fn impatient(self) -> Self {
        self.with(|limits| limits.provider_wait = PATIENCE)
    }

    /// Returns whether its turns wait for their provider only for a short time, so that an outage changes how they end.
    pub(crate) fn is_impatient(&self) -> bool {
        let mut limits = Limits::default();
        (self.limits)(&mut limits);
        limits.provider_wait <= PATIENCE
    }

    /// Returns the number of inputs, each of which must become a turn.
    pub(crate) fn inputs(&self) -> usize {
        self.acts.iter().filter(|act| act.what.is_input()).count()
    }
}

impl UserActionKind {
    /// Returns whether it is an input or a retry, which must be answered by a turn.
    pub(crate) const fn is_input(self) -> bool {
        matches!(
            self,
            Self::SendInput(_)
                | Self::AskNumber(_)
                | Self::Steer(_)
                | Self::SendInputOnHead(..)
                | Self::Retry(_)
        )
    }
}

/// Returns every scenario.
pub(crate) fn catalogue() -> &'static [Scenario] {
    static CATALOGUE: OnceLock<Vec<Scenario>> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        let mut all = turns();
        all.extend(outages());
        all.extend(waits());
        all.extend(interference_scenarios());
        all.extend(failure_scenarios());
        all.extend(servers());
        all.extend(limit_scenarios::scenarios_with_limits());
        all
    })
}

/// Turns without interference.
fn turns() -> Vec<Scenario> {
    use ScriptedReply::{Call, Say};
    const BATCH: ScriptedReply =
        Call(&[("look", "a"), ("put", "b"), ("pay", "c"), ("keep", ""), ("book", "d")]);
    const MANY: ScriptedReply = Call(&[("put", "x"); 12]);
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
    use ScriptedReply::{Call, CallOnceUp, Say, SayOnceRestored, SayOnceUp};
    use UserActionTrigger::{Acked, Parked, ParkedAfterCall, ParkedAgain, Recorded};
    vec![
        Scenario::new("provider outage", vec![SayOnceUp(8_000, "hello again")]),
        Scenario::new(
            "two provider outages",
            vec![CallOnceUp(5_000, &[("pay", "a")]), SayOnceUp(12_000, "done")],
        ),
        Scenario::new("cancel in an outage", vec![Call(&[("pay", "a")]), SayOnceUp(86_400_000, "done")])
            .then(ParkedAfterCall, UserActionKind::Cancel(0)),
        Scenario::new(
            "outage longer than the patience",
            vec![Call(&[("put", "a")]), SayOnceUp(864_000_000, "")],
        )
        .impatient(),
        Scenario::new("input queued in an outage", vec![SayOnceUp(6_000, "one"), Say("two")])
            .then(Acked(0), UserActionKind::SendInput("more")),
        Scenario::new("retry of a waiting turn", vec![Call(&[("pay", "a")]), SayOnceRestored("done")])
            .then(ParkedAfterCall, UserActionKind::Restore)
            .then(Acked(1), UserActionKind::Wake(0)),
        Scenario::new("retry after the patience", vec![Call(&[("pay", "a")]), SayOnceRestored("done")])
            .then(Recorded("turn.ended", 1), UserActionKind::Restore)
            .then(Acked(1), UserActionKind::Retry(0))
            .impatient(),
        Scenario::new("retry during the outage", vec![Call(&[("pay", "a")]), SayOnceRestored("")])
            .then(Recorded("turn.ended", 1), UserActionKind::Retry(0))
            .impatient(),
        Scenario::new(
            "retry of a cancelled turn",
            vec![Call(&[("pay", "a")]), Call(&[("wait", "k")]), Say("done")],
        )
        .then(Parked, UserActionKind::Cancel(0))
        .then(Recorded("turn.ended", 1), UserActionKind::Retry(0))
        .then(ParkedAgain, UserActionKind::Resolve("k", true)),
    ]
}

/// Turns that wait for a person.
fn waits() -> Vec<Scenario> {
    use ScriptedReply::{Call, Say};
    const WAIT: ScriptedReply = Call(&[("wait", "k")]);
    const ASK: ScriptedReply = Call(&[("ask", "k")]);
    vec![
        Scenario::new("pending completion", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Resolve("k", true)),
        Scenario::new("completion that comes early", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Did("wait"), UserActionKind::Resolve("k", true)),
        Scenario::new("approval that is denied", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Resolve("k", false)),
        Scenario::new(
            "two completions",
            vec![Call(&[("wait", "k"), ("wait", "l"), ("put", "m")]), Say("done")],
        )
        .then(UserActionTrigger::Did("wait"), UserActionKind::Resolve("l", true))
        .then(UserActionTrigger::Acked(1), UserActionKind::Resolve("k", true)),
        Scenario::new("resolved twice", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Resolve("k", true))
            .then(UserActionTrigger::Acked(1), UserActionKind::Resolve("k", false)),
        Scenario::new("event", vec![ASK, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Resolve("k", true)),
        Scenario::new("event that comes early", vec![ASK, Say("done")])
            .then(UserActionTrigger::Did("ask"), UserActionKind::Resolve("k", true)),
        Scenario::new("event that never comes", vec![Call(&[("ask", "hurry")]), Say("done")]),
        Scenario::new("event that comes about too late", vec![Call(&[("ask", "hurry")]), Say("done")])
            .then(UserActionTrigger::Later(0, 9_990), UserActionKind::Resolve("hurry", true))
            .racing(),
    ]
}

/// Turns with interference, and sessions that branch.
fn interference_scenarios() -> Vec<Scenario> {
    use ScriptedReply::{Call, Say};
    const WAIT: ScriptedReply = Call(&[("wait", "k")]);
    const ENDED: UserActionTrigger = UserActionTrigger::Recorded("turn.ended", 1);
    vec![
        Scenario::new("queued input", vec![Call(&[("put", "a")]), Say("one"), Say("two")])
            .then(UserActionTrigger::Acked(0), UserActionKind::SendInput("more")),
        Scenario::new("three turns", vec![Say("one"), Call(&[("pay", "a")]), Say("two"), Say("three")])
            .then(ENDED, UserActionKind::SendInput("more"))
            .then(UserActionTrigger::Recorded("turn.ended", 2), UserActionKind::SendInput("and more")),
        Scenario::new("long conversation", vec![Say("as you wish, my friend"); 8])
            .then(ENDED, UserActionKind::SendInput("and now the second thing"))
            .then(
                UserActionTrigger::Recorded("turn.ended", 2),
                UserActionKind::SendInput("and now the third thing"),
            )
            .then(
                UserActionTrigger::Recorded("turn.ended", 3),
                UserActionKind::SendInput("and now the last thing"),
            )
            .with(|limits| limits.view_bytes = 700),
        Scenario::new("steering", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Steer("also"))
            .then(UserActionTrigger::Acked(1), UserActionKind::Resolve("k", true)),
        Scenario::new("steering at any time", vec![Call(&[("look", "a")]), Say("done"), Say("also done")])
            .then(UserActionTrigger::Acked(0), UserActionKind::Steer("also"))
            .racing(),
        Scenario::new("cancel", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Cancel(0)),
        Scenario::new("cancel at any time", vec![Call(&[("pay", "a"), ("stepped", "b")]), Say("done")])
            .then(UserActionTrigger::Did("step one"), UserActionKind::Cancel(0))
            .racing(),
        Scenario::new("cancel at once", vec![Call(&[("put", "a")]), Say("done")])
            .then(UserActionTrigger::Acked(0), UserActionKind::Cancel(0))
            .racing(),
        Scenario::new("cancel of a queued input", vec![WAIT, Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::SendInput("never mind"))
            .then(UserActionTrigger::Acked(1), UserActionKind::Cancel(1))
            .then(UserActionTrigger::Acked(2), UserActionKind::Resolve("k", true)),
        Scenario::new("approval", vec![Call(&[("guarded", "a"), ("put", "b")]), Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Approve(true)),
        Scenario::new("denial", vec![Call(&[("guarded", "a")]), Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Approve(false)),
        Scenario::new("cancel instead of an approval", vec![Call(&[("guarded", "a")]), Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Cancel(0)),
        Scenario::new("abort", vec![Call(&[("rent", "a")]), Call(&[("rent", "b"), ("put", "c")]), WAIT])
            .then(UserActionTrigger::Parked, UserActionKind::Abort(0)),
        Scenario::new("abort at any time", vec![Call(&[("rent", "a")]), Call(&[("rent", "b")]), Say("done")])
            .then(UserActionTrigger::Did("rent"), UserActionKind::Abort(0))
            .racing(),
        Scenario::new("fork", vec![Call(&[("put", "a")]), Say("one"), Say("two")])
            .then(ENDED, UserActionKind::Fork("more")),
        Scenario::new("branch", vec![Say("one"), Say("two")])
            .then(ENDED, UserActionKind::Branch("draft"))
            .then(UserActionTrigger::Acked(1), UserActionKind::SendInputOnHead("draft", "more")),
        Scenario::new("rewritten history", vec![Call(&[("pay", "a")]), Say("one")])
            .then(ENDED, UserActionKind::Rewind)
            .then(UserActionTrigger::Acked(1), UserActionKind::SendInput("rewritten history: again")),
    ]
}

/// Failures without faults of the machine.
fn failure_scenarios() -> Vec<Scenario> {
    use ScriptedReply::{Call, Fail, Say};
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
            .then(UserActionTrigger::Recorded("turn.ended", 1), UserActionKind::Settle)
            .deadly(),
        Scenario::new("poison", vec![Call(&[("poison", "a")]), Say("done")]).agent(|_| {}).deadly(),
    ]
}

/// Calls to an MCP server.
fn servers() -> Vec<Scenario> {
    use ScriptedReply::{Call, Say};
    const BATCH: ScriptedReply =
        Call(&[("bank.pay", "a"), ("pay", "b"), ("bank.look", "c"), ("bank.pay", "d")]);
    vec![
        Scenario::new("MCP call", vec![Call(&[("bank.pay", "a")]), Say("done")])
            .then(UserActionTrigger::Recorded("turn.ended", 1), UserActionKind::Settle),
        Scenario::new("pure MCP call", vec![Call(&[("bank.look", "a")]), Say("done")]),
        Scenario::new("MCP calls beside others", vec![BATCH, Call(&[("bank.pay", "e")]), Say("done")]),
        Scenario::new("question of an MCP server", vec![Call(&[("bank.ask", "a")]), Say("done")])
            .then(UserActionTrigger::Parked, UserActionKind::Resolve(QUESTION, true)),
    ]
}

/// Returns a text that is too long for a row.
fn long() -> &'static str {
    static LONG: OnceLock<String> = OnceLock::new();
    LONG.get_or_init(|| "many words ".repeat(2_000))
}
