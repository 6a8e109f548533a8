//! Words in the attribute are known.
use outlast_macros::tool;

/// Tells the weather.
#[tool(timeout = 10)]
async fn weather(city: String) -> Result<String, Error> {}

fn main() {}
