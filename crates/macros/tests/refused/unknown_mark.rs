//! Parameters have marks that are known.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather(#[optional] city: String) -> Result<String, Error> {}

fn main() {}
