//! The types of arguments are named.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather<T>(city: T) -> Result<String, Error> {}

/// Tells the weather.
#[tool]
async fn climate(city: impl Into<String>) -> Result<String, Error> {}

fn main() {}
