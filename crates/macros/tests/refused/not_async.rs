//! A tool is asynchronous.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
fn weather(city: String) -> Result<String, Error> {}

fn main() {}
