//! A tool of your own, durable on SQLite. Run it twice: the order has a key, so its parcel leaves once.
use outlast::prelude::*;
use std::path::Path;

struct Ship;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct Parcel {
    item: String,
}

impl Tool for Ship {
    type Args = Parcel;
    type Needs = ();

    fn about(&self) -> About {
        About::new("ship", "Sends a parcel to the customer.") // at most once, unless it says otherwise
    }

    async fn run(&self, (): (), call: Call, parcel: Parcel) -> Result<Ran, Error> {
        println!("{} leaves under the key {}", parcel.item, call.id);
        done(format!("a parcel with {}", parcel.item))
    }
}

pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let outlast = Outlast::at(dir.join("shop.db")).tool(Ship).start().await?;
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
