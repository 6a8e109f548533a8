//! There is one call.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather(one: Call, two: Call) -> Result<String, Error> {}

fn main() {}
