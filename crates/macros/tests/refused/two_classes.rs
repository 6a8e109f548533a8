//! A tool has one class.
use outlast_macros::tool;

/// Tells the weather.
#[tool(pure, idempotent)]
async fn weather(city: String) -> Result<String, Error> {}

fn main() {}
