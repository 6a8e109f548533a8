//! The simulated tools, one of each kind. They report their effects to the witness and yield between the effect and the
//! answer, where a crash does the most damage.
use crate::effect_recorder::EffectRecorder;
use crate::sim_time::{ProcessClock, SimTime};
use crate::task_scheduler::SimProcessNo;
use outlast_ports::clock::Clock;
use outlast_ports::payment::{Payments, PaymentsEnabled};
use outlast_ports::service::{Cancellation, Completion, Events, Services, Steps, Timer, Values};
use outlast_ports::tool::{Call, ProbeResult, Tool, ToolRunOutcome, ToolSpec, Toolbox, done, failed};
use outlast_vocab::message::ToolResult;
use outlast_vocab::payment;
use outlast_vocab::policy::{PolicyDecision, Rule};
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
pub(crate) struct ToolEnvironment {
    pub(crate) witness: Arc<EffectRecorder>,
    pub(crate) clock: Arc<ProcessClock>,
    /// The time of the world, independent of process clocks.
    pub(crate) time: Arc<SimTime>,
    pub(crate) life: SimProcessNo,
}

impl ToolEnvironment {
    async fn record_effect(&self, tool: &str, call: &Call) {
        yield_to_others().await;
        self.witness.record_execution(call.session, tool, call.id);
        self.witness.at(self.time.now());
        yield_to_others().await;
    }
}

/// Yields to other tasks.
pub(crate) async fn yield_to_others() {
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
    ($($name:ident($needs:ty) = $spec:expr, |$around:pat_param, $got:pat_param, $call:pat_param, $args:pat_param| $body:expr;)*) => {
        $(
            struct $name(ToolEnvironment);

            impl Tool for $name {
                type Args = Note;
                type Needs = $needs;

                fn spec(&self) -> ToolSpec { $spec }

                async fn run(&self, $got: $needs, call: Call, args: Note) -> Result<ToolRunOutcome, Error> {
                    let ($around, $call, $args) = (&self.0, call, args);
                    $body
                }
            }
        )*

        /// All of them, for one process.
        pub(crate) fn toolbox(around: &ToolEnvironment) -> Result<Toolbox, Error> {
            let mut toolbox = Toolbox::new(Services::default().grant(PaymentsEnabled));
            $(toolbox.add($name(around.clone()))?;)*
            toolbox.add(BookTool(around.clone()))?;
            Ok(toolbox)
        }
    };
}

const A_DAY: Duration = Duration::from_hours(24);

tools! {
    Look(()) = ToolSpec::new("look", "Looks.").pure(), |around, (), call, args| {
        around.record_effect("look", &call).await;
        done(format!("saw {}", args.text))
    };
    Put(()) = ToolSpec::new("put", "Puts.").idempotent(), |around, (), call, args| {
        around.witness.record_arguments(call.id, &args.text);
        around.record_effect("put", &call).await;
        done(format!("put {}", args.text))
    };
    Pay(()) = ToolSpec::new("pay", "Pays."), |around, (), call, args| {
        around.witness.record_arguments(call.id, &args.text);
        around.record_effect("pay", &call).await;
        done(format!("paid {}", args.text))
    };
    Rent(()) = ToolSpec::new("rent", "Rents.").idempotent().undone_by("return"), |around, (), call, args| {
        around.record_effect("rent", &call).await;
        done(json!({ "text": args.text }))
    };
    Return(()) = ToolSpec::new("return", "Gives back what was rented.").idempotent(), |around, (), call, args| {
        around.record_effect("return", &call).await;
        done(format!("gave {} back", args.text))
    };
    Guarded(()) = ToolSpec::new("guarded", "Puts, once somebody approves.").idempotent(), |around, (), call, args| {
        around.record_effect("guarded", &call).await;
        done(format!("put {} with leave", args.text))
    };
    Lost(()) = ToolSpec::new("lost", "Pays, and takes its process down with it."), |around, (), call, _| {
        around.record_effect("lost", &call).await;
        around.witness.record_tool_kill(around.life);
        std::future::pending().await
    };
    Poison(()) = ToolSpec::new("poison", "Takes its process down whenever it runs.").idempotent(), |around, (), call, _| {
        around.record_effect("poison", &call).await;
        around.witness.record_tool_kill(around.life);
        std::future::pending().await
    };
    Wait((Completion,)) = ToolSpec::new("wait", "Waits for somebody.").idempotent().durable(),
    |around, (completion,), call, args| {
        around.witness.record_completion_key(call.session, &args.text, completion.key()?);
        around.record_effect("wait", &call).await;
        Ok(ToolRunOutcome::Pending)
    };
    Ask((Events,)) = ToolSpec::new("ask", "Waits for an event.").idempotent().durable(),
    |around, (events,), call, args| {
        around.witness.record_completion_key(call.session, &args.text, events.key(&args.text)?);
        around.record_effect("ask", &call).await;
        let patience = if args.text == "hurry" { Duration::from_secs(10) } else { 10 * A_DAY };
        let resolution = events.wait(&args.text, Some(patience)).await?;
        done(format!("{resolution:?}"))
    };
    Stepped((Steps, Timer)) = ToolSpec::new("stepped", "Works in steps.").idempotent().durable(),
    |around, (steps, timer), call, args| {
        let one: String = steps.run("one", &args.text, async {
            around.record_effect("step one", &call).await;
            Ok(format!("1{}", args.text))
        }).await?;
        timer.sleep(Duration::from_secs(10)).await?;
        let two: String = steps.run("two", &one, async {
            around.record_effect("step two", &call).await;
            Ok(format!("{one}2"))
        }).await?;
        done(two)
    };
    Nap((Timer,)) = ToolSpec::new("nap", "Sleeps.").idempotent().durable(), |around, (timer,), call, _| {
        around.record_effect("nap", &call).await;
        timer.sleep(Duration::from_secs(30)).await?;
        done("slept")
    };
    Keep((Values,)) = ToolSpec::new("keep", "Counts in a value.").transactional(), |around, (values,), call, _| {
        around.record_effect("keep", &call).await;
        let count = values.get("count").await?.and_then(|count| count.as_i64()).unwrap_or(0);
        values.set("count", json!(count + 1))?;
        yield_to_others().await;
        done(values.get("count").await?)
    };
    Panics(()) = ToolSpec::new("panics", "Panics.").idempotent(), |around, (), call, args| {
        around.record_effect("panics", &call).await;
        std::panic::panic_any(format!("{ON_PURPOSE} {}", args.text))
    };
    Flaky(()) = ToolSpec::new("flaky", "Fails at first.").idempotent().attempts(4, Duration::from_millis(10)),
    |around, (), call, _| {
        around.record_effect("flaky", &call).await;
        if call.attempt < 3 {
            return Err(Error::new(Kind::ToolUnavailable, "not yet"));
        }
        done("at last")
    };
    Hangs((Cancellation,)) = ToolSpec::new("hangs", "Never comes back.").deadline(Duration::from_secs(5)),
    |around, (cancellation,), call, _| {
        around.record_effect("hangs", &call).await;
        cancellation.requested().await;
        Err(failed("stopped when asked"))
    };
    Buy((Payments,)) = ToolSpec::new("buy", "Buys.").idempotent().durable(), |around, (payments,), call, args| {
        let hold = payments.reserve("it", order(&args.text)?).await?;
        around.record_effect("buy", &call).await;
        done(hold.settle().await.map(|_| format!("bought {}", args.text))?)
    };
    Browse((Payments,)) = ToolSpec::new("browse", "Sets money aside and buys nothing.").idempotent().durable(),
    |around, (payments,), call, args| {
        let hold = payments.reserve("it", order(&args.text)?).await?;
        around.record_effect("browse", &call).await;
        hold.release("too dear").await?;
        done("nothing")
    };
    Order((Payments,)) = ToolSpec::new("order", "Orders, and takes its process down with it.").durable(),
    |around, (payments,), call, args| {
        let _hold = payments.reserve("it", order(&args.text)?).await?;
        around.record_effect("order", &call).await;
        around.witness.record_tool_kill(around.life);
        std::future::pending().await
    };
    Late(()) = ToolSpec::new("late", "Comes back too late.").deadline(Duration::from_secs(5)), |around, (), call, _| {
        around.record_effect("late", &call).await;
        around.clock.sleep_until(around.clock.now().after(Duration::from_mins(1))).await;
        done("too late")
    };
}

fn order(text: &str) -> Result<payment::PaymentOrder, Error> {
    let (payee, amount) = ("baker".to_owned(), "3.10 EUR".parse()?);
    Ok(payment::PaymentOrder { payee, amount, purpose: text.to_owned() })
}

/// Returns the rule that requires an approval for the guarded tool.
pub(crate) fn guard() -> Result<Rule, Error> {
    let then = PolicyDecision::Ask(outlast_vocab::policy::ApprovalRequirement::default());
    Ok(Rule { tool: "guarded".to_owned(), ..Rule::new("asks".parse()?, then) })
}

/// Returns the rule that allows the tools of the bank, which want an approval, without one.
pub(crate) fn trusts_bank() -> Result<Rule, Error> {
    Ok(Rule { tool: "bank.*".to_owned(), ..Rule::new("bank".parse()?, PolicyDecision::Allow) })
}

/// An at-most-once tool that can probe whether a call happened.
struct BookTool(ToolEnvironment);

impl Tool for BookTool {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("book", "Books; can be asked whether it did.")
    }

    async fn run(&self, (): (), call: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        self.0.record_effect("book", &call).await;
        done(format!("booked {}", args.text))
    }

    async fn probe(&self, call: CallId, args: Note) -> Result<ProbeResult, Error> {
        yield_to_others().await;
        let happened =
            self.0.witness.seen().ran_calls.iter().any(|did| did.tool == "book" && did.call == call);
        Ok(if happened {
            ProbeResult::Happened(ToolResult::Ok(json!(format!("booked {}", args.text))))
        } else {
            ProbeResult::DidNotHappen
        })
    }
}
