//! A shop as the outside world, with tools of every effect class, some of them faulty.
use outlast::Builder;
use outlast::prelude::*;
use outlast::serde_json::json;
use outlast::trial::Trial;
use outlast::vocab::CallId;
use outlast::vocab::message::ToolResult;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The real effects: what was done, with its key.
#[derive(Clone, Default)]
pub(crate) struct Shop(Arc<Mutex<Vec<(String, CallId)>>>);

impl Shop {
    pub(crate) fn did(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(done, _)| done == what).count()
    }

    fn note(&self, what: &str, call: CallId) {
        self.0.lock().unwrap().push((what.to_owned(), call));
    }

    fn knows(&self, what: &str, call: CallId) -> bool {
        self.0.lock().unwrap().contains(&(what.to_owned(), call))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
pub(crate) struct Item {
    #[serde(default)]
    item: String,
}

macro_rules! tools {
    ($($(#[$doc:meta])* $name:ident($needs:ty) = $spec:expr, |$shop:ident, $got:pat_param, $call:ident, $item:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Shop);

        impl Tool for $name {
            type Args = Item;
            type Needs = $needs;

            fn spec(&self) -> ToolSpec { $spec }

            async fn run(&self, $got: $needs, $call: Call, args: Item) -> Result<ToolRunOutcome, Error> {
                let ($shop, $item) = (&self.0, args.item);
                $body
            }
        }
    )*};
}

tools! {
    /// Looks up a price; changes nothing.
    Look(()) = ToolSpec::new("look", "Looks.").pure(), |_shop, (), _call, item| {
        tokio::task::yield_now().await;
        done(format!("{item} costs 5"))
    };
    /// Charges once per key, however often it is asked.
    Charge(()) = ToolSpec::new("charge", "Charges.").idempotent(), |shop, (), call, item| {
        if !shop.knows("charged", call.id) {
            shop.note("charged", call.id);
        }
        tokio::task::yield_now().await;
        done(format!("charged {item}"))
    };
    /// Says that it may be repeated, but charges every time.
    Careless(()) = ToolSpec::new("charge", "Charges.").idempotent(), |shop, (), call, item| {
        shop.note("charged", call.id);
        tokio::task::yield_now().await;
        done(format!("charged {item}"))
    };
    /// Cannot be repeated, and says so by saying nothing.
    Ship(()) = ToolSpec::new("ship", "Ships."), |shop, (), call, item| {
        tokio::task::yield_now().await;
        shop.note("shipped", call.id);
        done(format!("shipped {item}"))
    };
    /// Counts in the session's values.
    Count((Values,)) = ToolSpec::new("count", "Counts.").transactional(), |_shop, (values,), _call, _item| {
        let count = values.get("count").await?.and_then(|count| count.as_i64()).unwrap_or(0);
        values.set("count", json!(count + 1))?;
        done(count + 1)
    };
    /// Two steps with a day between them.
    Bake((Steps, Timer)) = ToolSpec::new("bake", "Bakes.").durable().idempotent(),
    |shop, (steps, timer), call, item| {
        let dough: String = steps.run("knead", &item, async {
            Ok(format!("dough for {item}"))
        }).await?;
        timer.sleep(Duration::from_hours(24)).await?;
        steps.run("bake", &dough, async {
            shop.note("baked", call.id);
            Ok(())
        }).await?;
        done(format!("{item} from {dough}"))
    };
    /// Asks somebody and waits for the answer.
    Ask((Completion,)) = ToolSpec::new("ask", "Asks.").durable().idempotent(), |shop, (completion,), call, _item| {
        completion.key()?;
        shop.note("asked", call.id);
        Ok(ToolRunOutcome::Pending)
    };
    /// At most once, and waits for an event in the middle: it goes on from its start.
    Deliver((Events,)) = ToolSpec::new("deliver", "Delivers.").durable(), |shop, (events,), call, item| {
        let value = events.wait("arrived", Some(Duration::from_hours(24))).await?;
        shop.note("delivered", call.id);
        done(format!("{item}: {value:?}"))
    };
    /// Nothing happened the first time, and it says so.
    Flaky(()) = ToolSpec::new("flaky", "Fails at first.").attempts(3, Duration::from_millis(1)),
    |shop, (), call, _item| {
        if call.attempt < 3 {
            return Err(Error::new(outlast::Kind::ToolUnavailable, "not yet"));
        }
        shop.note("done", call.id);
        done("at last")
    };
    /// Takes another step each time it runs.
    Fickle((Steps,)) = ToolSpec::new("fickle", "Changes its mind.").durable().idempotent(), |shop, (steps,), call, _item| {
        let times = shop.did("tried");
        shop.note("tried", call.id);
        steps.run("step", &times, async { Ok(()) }).await?;
        steps.run("next", &times, async { Ok(()) }).await?;
        done("done")
    };
    /// Gives another number each time.
    Dice(()) = ToolSpec::new("dice", "Throws dice.").pure(), |_shop, (), call, _item| {
        done(call.id.to_string())
    };
    /// Never comes back.
    Hang(()) = ToolSpec::new("hang", "Hangs."), |_shop, (), _call, _item| {
        std::future::pending::<()>().await;
        done("never")
    };
    /// Leaves something behind that holds on to its session's values.
    Clingy((Values,)) = ToolSpec::new("clingy", "Holds on.").pure(), |_shop, (values,), _call, _item| {
        std::thread::spawn(move || {
            let _held = values;
            std::thread::sleep(Duration::from_hours(1));
        });
        done("done")
    };
    /// Never comes back and lets nobody else work.
    Block(()) = ToolSpec::new("block", "Blocks.").pure(), |_shop, (), _call, _item| {
        std::thread::sleep(Duration::from_hours(1));
        done("never")
    };
}

/// An at-most-once tool that can probe whether a call happened.
pub(crate) struct Book(pub(crate) Shop);

impl Tool for Book {
    type Args = Item;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("book", "Books.")
    }

    async fn run(&self, (): (), call: Call, args: Item) -> Result<ToolRunOutcome, Error> {
        tokio::task::yield_now().await;
        self.0.note("booked", call.id);
        tokio::task::yield_now().await;
        done(format!("booked {}", args.item))
    }

    async fn probe(&self, call: CallId, args: Item) -> Result<outlast::tool::ProbeResult, Error> {
        Ok(if self.0.knows("booked", call) {
            ProbeResult::Happened(ToolResult::Ok(json!(format!("booked {}", args.item))))
        } else {
            ProbeResult::DidNotHappen
        })
    }
}

/// Builds the shop's agent with every correct tool.
pub(crate) fn agent(outlast: Builder, shop: &Shop) -> Builder {
    let shop = || shop.clone();
    let outlast = outlast.builtin_tools().tool(Look(shop())).tool(Charge(shop())).tool(Ship(shop()));
    let outlast = outlast.tool(Count(shop())).tool(Bake(shop())).tool(Ask(shop())).tool(Deliver(shop()));
    outlast.tool(Flaky(shop())).tool(Book(shop())).tool(Dice(shop()))
}

/// Creates a trial of the shop's agent.
pub(crate) fn shop(script: &str) -> Trial<Shop> {
    Trial::new(|_| Shop::default(), agent).script(script)
}

/// Creates a trial of an agent with one tool.
pub(crate) fn with<T: Tool>(tool: fn(Shop) -> T, script: &str) -> Trial<Shop> {
    Trial::new(|_| Shop::default(), move |outlast, shop: &Shop| outlast.tool(tool(shop.clone())))
        .script(script)
}
