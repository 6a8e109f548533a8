//! A tool of your own, durable on SQLite. Run it twice: the order has a key, so its parcel leaves once.
use outlast::prelude::*;
use std::path::Path;

/// Sends a parcel to the customer.
#[tool] // at most once, unless it says otherwise
async fn ship(item: String, call: Call) -> Result<String, Error> {
    println!("{item} leaves under the key {}", call.id);
    Ok(format!("a parcel with {item}"))
}

pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let outlast = Outlast::at(dir.join("shop.db")).tool(ship).start().await?;
    let turn = outlast.session("ann").send_once("order-17", r#"call ship {"item": "tea"}"#).await?;
    let answer = turn.answer().await;
    outlast.shut_down().await;
    answer
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
