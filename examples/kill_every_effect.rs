//! A crash test of a tool: the agent is killed at every effect, and its customer pays once.
//!
//! The till is the outside world. Its payments survive when the process dies, as with a real payment service. Remove
//! the `if` from `charge` and run this again: the report names the points where the customer pays twice.
use outlast::prelude::*;
use outlast::trial::Trial;
use outlast::vocab::CallId;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The real payments with their keys.
#[derive(Clone, Default)]
struct Till(Arc<Mutex<Vec<(CallId, u32)>>>);

/// Charges the customer's card.
// Idempotent: an interrupted call runs again with the same key.
#[tool(idempotent)]
async fn charge(cents: u32, till: Service<Till>, call: Call) -> Result<u32, Error> {
    let mut paid = till.0.lock().unwrap();
    if !paid.iter().any(|(key, _)| *key == call.id) {
        paid.push((call.id, cents));
    }
    Ok(cents)
}

/// Builds the agent. In production, pass `Outlast::at("shop.db")` and a till that uses a payment service.
fn agent(outlast: outlast::Builder, till: &Till) -> outlast::Builder {
    outlast.agent("shop").system("You sell cakes.").service(till.clone()).tool(charge)
}

/// Kills the agent at every point. The databases of broken runs stay in the directory.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let report = Trial::new(|_| Till::default(), agent)
        .script("call charge {\"cents\": 450}\n---\nsay You paid {{result charge}} cents.")
        .say("a cake, please")
        .invariant(|seen, till| {
            assert_eq!(seen.answer(), "You paid 450 cents.");
            let paid: Vec<u32> = till.0.lock().unwrap().iter().map(|(_, cents)| *cents).collect();
            assert_eq!(paid, [450]);
        })
        .keep_failed_runs(dir)
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
