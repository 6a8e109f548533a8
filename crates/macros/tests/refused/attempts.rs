//! Attempts are counted from 1, and a pause needs a second one.
use outlast_macros::tool;

/// Tells the weather.
#[tool(attempts = 0)]
async fn weather(city: String) -> Result<String, Error> {}

/// Tells the weather.
#[tool(backoff_ms = 100)]
async fn climate(city: String) -> Result<String, Error> {}

fn main() {}
