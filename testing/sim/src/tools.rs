//! The simulated tools, one of each kind. They report their effects to the witness and yield between the effect and the
//! answer, where a crash does the most damage.
use crate::schedule::LifeNo;
use crate::time::{ProcessClock, Time};
use crate::witness::Witness;
use outlast_ports::clock::Clock;
use outlast_ports::payment::{PaymentDesk, Payments};
use outlast_ports::service::{Cancellation, Completion, Events, Services, Steps, Timer, Values};
use outlast_ports::tool::{About, Call, Probe, Ran, Tool, Toolbox, done, failed};
use outlast_vocab::message::ToolResult;
use outlast_vocab::payment;
use outlast_vocab::policy::{Decision, Rule};
use outlast_vocab::{CallId, Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Tools whose calls must never run twice.
pub(crate) const AT_MOST_ONCE: &[&str] = &["pay", "book", "lost", "hangs", "late", "bank.pay", "order"];

/// The panic message of the tool that panics.
pub(crate) const ON_PURPOSE: &str = "boom";

/// What every tool takes.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Note {
    /// What it is about.
    #[serde(default)]
    text: String,
}

/// The surroundings of the tools of one process.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) witness: Arc<Witness>,
    pub(crate) clock: Arc<ProcessClock>,
    /// The time of the world, independent of process clocks.
    pub(crate) time: Arc<Time>,
    pub(crate) life: LifeNo,
}

impl Surroundings {
    async fn act(&self, tool: &str, call: &Call) {
        breathe().await;
        self.witness.did(call.session, tool, call.id);
        self.witness.at(self.time.now());
        breathe().await;
    }
}

/// Yields to other tasks.
pub(crate) async fn breathe() {
    let mut breathed = false;
    poll_fn(|task| {
        if std::mem::replace(&mut breathed, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

macro_rules! tools {
    ($($name:ident($needs:ty) = $about:expr, |$around:pat_param, $got:pat_param, $call:pat_param, $args:pat_param| $body:expr;)*) => {
        $(
            struct $name(Surroundings);

            impl Tool for $name {
                type Args = Note;
                type Needs = $needs;

                fn about(&self) -> About { $about }

                async fn run(&self, $got: $needs, call: Call, args: Note) -> Result<Ran, Error> {
                    let ($around, $call, $args) = (&self.0, call, args);
                    $body
                }
            }
        )*

        /// All of them, for one process.
        pub(crate) fn toolbox(around: &Surroundings) -> Result<Toolbox, Error> {
            let mut toolbox = Toolbox::new(Services::default().grant(PaymentDesk));
            $(toolbox.add($name(around.clone()))?;)*
            toolbox.add(Book(around.clone()))?;
            Ok(toolbox)
        }
    };
}

const A_DAY: Duration = Duration::from_hours(24);

tools! {
    Look(()) = About::new("look", "Looks.").pure(), |around, (), call, args| {
        around.act("look", &call).await;
        done(format!("saw {}", args.text))
    };
    Put(()) = About::new("put", "Puts.").idempotent(), |around, (), call, args| {
        around.witness.took(call.id, &args.text);
        around.act("put", &call).await;
        done(format!("put {}", args.text))
    };
    Pay(()) = About::new("pay", "Pays."), |around, (), call, args| {
        around.witness.took(call.id, &args.text);
        around.act("pay", &call).await;
        done(format!("paid {}", args.text))
    };
    Rent(()) = About::new("rent", "Rents.").idempotent().undone_by("return"), |around, (), call, args| {
        around.act("rent", &call).await;
        done(json!({ "text": args.text }))
    };
    Return(()) = About::new("return", "Gives back what was rented.").idempotent(), |around, (), call, args| {
        around.act("return", &call).await;
        done(format!("gave {} back", args.text))
    };
    Guarded(()) = About::new("guarded", "Puts, once somebody approves.").idempotent(), |around, (), call, args| {
        around.act("guarded", &call).await;
        done(format!("put {} with leave", args.text))
    };
    Lost(()) = About::new("lost", "Pays, and takes its process down with it."), |around, (), call, _| {
        around.act("lost", &call).await;
        around.witness.takes_down(around.life);
        std::future::pending().await
    };
    Poison(()) = About::new("poison", "Takes its process down whenever it runs.").idempotent(), |around, (), call, _| {
        around.act("poison", &call).await;
        around.witness.takes_down(around.life);
        std::future::pending().await
    };
    Wait((Completion,)) = About::new("wait", "Waits for somebody.").idempotent().durable(),
    |around, (completion,), call, args| {
        around.witness.gave(call.session, &args.text, completion.key()?);
        around.act("wait", &call).await;
        Ok(Ran::Pending)
    };
    Ask((Events,)) = About::new("ask", "Waits for an event.").idempotent().durable(),
    |around, (events,), call, args| {
        around.witness.gave(call.session, &args.text, events.key(&args.text)?);
        around.act("ask", &call).await;
        let patience = if args.text == "hurry" { Duration::from_secs(10) } else { 10 * A_DAY };
        let resolution = events.wait(&args.text, Some(patience)).await?;
        done(format!("{resolution:?}"))
    };
    Stepped((Steps, Timer)) = About::new("stepped", "Works in steps.").idempotent().durable(),
    |around, (steps, timer), call, args| {
        let one: String = steps.run("one", &args.text, async {
            around.act("step one", &call).await;
            Ok(format!("1{}", args.text))
        }).await?;
        timer.sleep(Duration::from_secs(10)).await?;
        let two: String = steps.run("two", &one, async {
            around.act("step two", &call).await;
            Ok(format!("{one}2"))
        }).await?;
        done(two)
    };
    Nap((Timer,)) = About::new("nap", "Sleeps.").idempotent().durable(), |around, (timer,), call, _| {
        around.act("nap", &call).await;
        timer.sleep(Duration::from_secs(30)).await?;
        done("slept")
    };
    Keep((Values,)) = About::new("keep", "Counts in a value.").transactional(), |around, (values,), call, _| {
        around.act("keep", &call).await;
        let count = values.get("count").await?.and_then(|count| count.as_i64()).unwrap_or(0);
        values.set("count", json!(count + 1))?;
        breathe().await;
        done(values.get("count").await?)
    };
    Panics(()) = About::new("panics", "Panics.").idempotent(), |around, (), call, args| {
        around.act("panics", &call).await;
        std::panic::panic_any(format!("{ON_PURPOSE} {}", args.text))
    };
    Flaky(()) = About::new("flaky", "Fails at first.").idempotent().attempts(4, Duration::from_millis(10)),
    |around, (), call, _| {
        around.act("flaky", &call).await;
        if call.attempt < 3 {
            return Err(Error::new(Kind::ToolUnavailable, "not yet"));
        }
        done("at last")
    };
    Hangs((Cancellation,)) = About::new("hangs", "Never comes back.").deadline(Duration::from_secs(5)),
    |around, (cancellation,), call, _| {
        around.act("hangs", &call).await;
        cancellation.requested().await;
        Err(failed("stopped when asked"))
    };
    Buy((Payments,)) = About::new("buy", "Buys.").idempotent().durable(), |around, (payments,), call, args| {
        let hold = payments.reserve("it", order(&args.text)?).await?;
        around.act("buy", &call).await;
        done(hold.settle().await.map(|_| format!("bought {}", args.text))?)
    };
    Browse((Payments,)) = About::new("browse", "Sets money aside and buys nothing.").idempotent().durable(),
    |around, (payments,), call, args| {
        let hold = payments.reserve("it", order(&args.text)?).await?;
        around.act("browse", &call).await;
        hold.release("too dear").await?;
        done("nothing")
    };
    Order((Payments,)) = About::new("order", "Orders, and takes its process down with it.").durable(),
    |around, (payments,), call, args| {
        let _hold = payments.reserve("it", order(&args.text)?).await?;
        around.act("order", &call).await;
        around.witness.takes_down(around.life);
        std::future::pending().await
    };
    Late(()) = About::new("late", "Comes back too late.").deadline(Duration::from_secs(5)), |around, (), call, _| {
        around.act("late", &call).await;
        around.clock.sleep_until(around.clock.now().after(Duration::from_mins(1))).await;
        done("too late")
    };
}

fn order(text: &str) -> Result<payment::Order, Error> {
    let (payee, amount) = ("baker".to_owned(), "3.10 EUR".parse()?);
    Ok(payment::Order { payee, amount, purpose: text.to_owned() })
}

/// Returns the rule that requires an approval for the guarded tool.
pub(crate) fn guard() -> Result<Rule, Error> {
    let then = Decision::Ask(outlast_vocab::policy::Ask::default());
    Ok(Rule { tool: "guarded".to_owned(), ..Rule::new("asks".parse()?, then) })
}

/// Returns the rule that allows the tools of the bank, which want an approval, without one.
pub(crate) fn trusts_bank() -> Result<Rule, Error> {
    Ok(Rule { tool: "bank.*".to_owned(), ..Rule::new("bank".parse()?, Decision::Allow) })
}

/// An at-most-once tool that can probe whether a call happened.
struct Book(Surroundings);

impl Tool for Book {
    type Args = Note;
    type Needs = ();

    fn about(&self) -> About {
        About::new("book", "Books; can be asked whether it did.")
    }

    async fn run(&self, (): (), call: Call, args: Note) -> Result<Ran, Error> {
        self.0.act("book", &call).await;
        done(format!("booked {}", args.text))
    }

    async fn probe(&self, call: CallId, args: Note) -> Result<Probe, Error> {
        breathe().await;
        let happened = self.0.witness.seen().did.iter().any(|did| did.tool == "book" && did.call == call);
        Ok(if happened {
            Probe::Happened(ToolResult::Ok(json!(format!("booked {}", args.text))))
        } else {
            Probe::DidNotHappen
        })
    }
}
