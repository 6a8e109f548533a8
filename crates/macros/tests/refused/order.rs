//! Alone, or in order with its like.
use outlast_macros::tool;

/// Tells the weather.
#[tool(serial, key = "city")]
async fn weather(city: String) -> Result<String, Error> {}

fn main() {}
