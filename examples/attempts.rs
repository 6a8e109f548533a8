//! A transient failure is retried. The tool sees the number of the attempt, and every attempt has the same idempotency
//! key, so the other side can tell a second attempt from a second order.
use outlast::Kind;
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A payment service whose connection breaks twice. It recognises a payment by its key.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<BTreeSet<String>>>);

/// Pays a person.
#[tool(idempotent, attempts = 3, backoff_ms = 10)]
async fn pay(to: String, euros: u32, bank: Service<Bank>, call: Call) -> Result<String, Error> {
    bank.0.lock().unwrap().insert(call.id.to_string());
    if call.attempt < call.attempts {
        return Err(Error::new(Kind::ToolUnavailable, "the line to the bank broke"));
    }
    Ok(format!("{euros} euros to {to} at attempt {} of {}", call.attempt, call.attempts))
}

/// Pays once, in three attempts.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "call pay {\"to\": \"Ann\", \"euros\": 5}\n---\nsay {{result pay}}".parse()?;
    let bank = Bank::default();
    let outlast = Outlast::at(dir.join("attempts.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(bank.clone())
        .tool(pay)
        .start()
        .await?;
    let answer = outlast.new_session().send("pay Ann").await?.answer().await;
    outlast.shut_down().await;
    let keys = bank.0.lock().unwrap().len();
    Ok(format!("{}; the bank saw {keys} key", answer?))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
