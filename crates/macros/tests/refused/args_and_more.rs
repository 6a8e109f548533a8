//! `#[args]` takes all arguments.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather(#[args] place: Place, day: u8) -> Result<String, Error> {}

fn main() {}
