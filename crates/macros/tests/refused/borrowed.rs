//! Arguments are owned.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather(city: &str) -> Result<String, Error> {}

fn main() {}
