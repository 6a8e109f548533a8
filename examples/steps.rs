//! Durable steps: a tool that fails halfway and is retried does not repeat completed steps.
//!
//! The shop counts what really happened. The payment carries the call id of the order, so a payment service could tell
//! a second attempt from a second order.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::{Kind, vocab::CallId};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What the outside world saw.
#[derive(Default)]
struct Shop {
    reserved: AtomicU32,
    charged: Mutex<Vec<CallId>>,
    attempts: AtomicU32,
}

/// Orders an item.
// Its steps make it safe to run again, so a transient failure is retried, with three attempts in total.
#[tool(idempotent, attempts = 3, backoff_ms = 10)]
async fn order(
    item: String,
    cents: u32,
    shop: Service<Arc<Shop>>,
    steps: Steps,
    call: Call,
) -> Result<String, Error> {
    shop.attempts.fetch_add(1, SeqCst);
    let place: u32 =
        steps.run("reserve", &item, async { Ok(shop.reserved.fetch_add(1, SeqCst) + 1) }).await?;
    let receipt: String = steps
        .run("charge", &cents, async {
            shop.charged.lock().unwrap().push(call.id);
            Ok(format!("{cents} cents"))
        })
        .await?;
    if call.attempt < 2 {
        return Err(Error::new(Kind::ToolUnavailable, "the line to the warehouse broke"));
    }
    Ok(format!("number {place}, paid {receipt}"))
}

/// Orders tea and reports what the shop saw.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script =
        "call order {\"item\": \"tea\", \"cents\": 450}\n---\nsay {{result order}}".parse()?;
    let shop = Arc::new(Shop::default());
    let outlast = Outlast::at(dir.join("steps.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(shop.clone())
        .tool(order)
        .start()
        .await?;
    let answer = outlast.new_session().send("order tea").await?.answer().await;
    outlast.shut_down().await;
    let (attempts, reserved) = (shop.attempts.load(SeqCst), shop.reserved.load(SeqCst));
    let charged = shop.charged.lock().unwrap().len();
    Ok(format!("{}; {attempts} attempts, reserved {reserved} time, charged {charged} time", answer?))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
