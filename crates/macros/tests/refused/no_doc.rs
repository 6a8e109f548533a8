//! A tool says what it does.
use outlast_macros::tool;

#[tool]
async fn weather(city: String) -> Result<String, Error> {}

fn main() {}
