//! A tool that pays. Money is reserved before the action and paid after it. Nothing is paid twice, even after a crash.
use outlast::payment::InMemoryPaymentAuthority;
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::payment::PaymentOrder;
use std::path::Path;
use std::sync::Arc;

/// Orders a cake and pays for it.
// Idempotent: if the process dies, the call runs again and finds the same payment.
#[tool(idempotent)]
async fn order_cake(kind: String, payments: Payments) -> Result<String, Error> {
    let order = PaymentOrder {
        payee: "baker".to_owned(),
        amount: "12.50 EUR".parse()?,
        purpose: format!("a {kind} cake"),
    };
    let hold = payments.reserve("cake", order).await?;
    // Tell the baker here. If that fails, the reservation is released.
    hold.settle().await?;
    Ok(format!("a {kind} cake is on its way"))
}

/// Buys a cake. In production, pass an authority that uses a bank instead of the cash box.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script =
        "any\ncall order_cake {\"kind\": \"lemon\"}\n---\nsay {{result order_cake}}".parse()?;
    let outlast = Outlast::at(dir.join("payments.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .payments(InMemoryPaymentAuthority::with_money(["100 EUR".parse()?]))
        .tool(order_cake)
        .start()
        .await?;
    let answer = outlast.new_session().send("a lemon cake, please").await?.answer().await;
    outlast.shut_down().await;
    answer
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
