//! A tool that pays. Money is set aside before the act and paid after it; whatever is killed, nothing is paid twice.
use outlast::payment::Cashbox;
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::system::SystemClock;
use outlast::vocab::payment::Order;
use std::path::Path;
use std::sync::Arc;

/// Orders a cake and pays for it.
// Idempotent: if the process dies, the call runs again and finds the same payment.
#[tool(idempotent)]
async fn order_cake(kind: String, payments: Payments) -> Result<String, Error> {
    let order =
        Order { payee: "baker".to_owned(), amount: "12.50 EUR".parse()?, purpose: format!("a {kind} cake") };
    let hold = payments.reserve("cake", order).await?;
    // Here the baker is told. If that fails, what was set aside is free again.
    hold.settle().await?;
    Ok(format!("a {kind} cake is on its way"))
}

/// Buys a cake. A program in production would pass an authority that reaches a bank instead of the purse.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script =
        "any\ncall order_cake {\"kind\": \"lemon\"}\n---\nsay {{result order_cake}}".parse()?;
    let outlast = Outlast::at(dir.join("payments.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .payments(Cashbox::with(["100 EUR".parse()?]))
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
