//! A tool gives a result.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather(city: String) {}

/// Tells the weather.
#[tool]
async fn climate(city: String) -> String {}

fn main() {}
