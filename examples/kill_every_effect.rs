//! A test of a tool against crashes: the agent is killed at every effect, and its customer pays once.
//!
//! The till is the world outside. What it took in stays when the process dies, as it would with a payment service. Take
//! the `if` out of `Charge::run` and run this again: the report names the places where the customer pays twice.
use outlast::prelude::*;
use outlast::trial::Trial;
use outlast::vocab::CallId;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What was really paid, and under which key.
#[derive(Clone, Default)]
struct Till(Arc<Mutex<Vec<(CallId, u32)>>>);

struct Charge(Till);

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct Price {
    cents: u32,
}

impl Tool for Charge {
    type Args = Price;
    type Needs = ();

    fn about(&self) -> About {
        // Idempotent: a call that was interrupted is run again, with the same key.
        About::new("charge", "Charges the customer's card.").idempotent()
    }

    async fn run(&self, (): (), call: Call, price: Price) -> Result<Ran, Error> {
        let mut paid = self.0.0.lock().unwrap();
        if !paid.iter().any(|(key, _)| *key == call.id) {
            paid.push((call.id, price.cents));
        }
        done(price.cents)
    }
}

/// The agent. A program in production would pass `Outlast::at("shop.db")` and a till that reaches a payment service.
fn agent(outlast: outlast::Builder, till: &Till) -> outlast::Builder {
    outlast.agent("shop").system("You sell cakes.").tool(Charge(till.clone()))
}

/// Kills the agent everywhere; the databases of broken runs stay in the directory.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let report = Trial::new(|_| Till::default(), agent)
        .script("call charge {\"cents\": 450}\n---\nsay You paid {{result charge}} cents.")
        .say("a cake, please")
        .invariant(|seen, till| {
            assert_eq!(seen.answer(), "You paid 450 cents.");
            let paid: Vec<u32> = till.0.lock().unwrap().iter().map(|(_, cents)| *cents).collect();
            assert_eq!(paid, [450]);
        })
        .keep_broken(dir)
        .kill_every_effect()
        .await?;
    Ok(report.to_string())
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
