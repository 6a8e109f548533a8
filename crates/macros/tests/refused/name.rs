//! A name has no blanks.
use outlast_macros::tool;

/// Tells the weather.
#[tool(name = "the weather")]
async fn weather(city: String) -> Result<String, Error> {}

fn main() {}
