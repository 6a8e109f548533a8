//! `ToolRunOutcome` has no form.
use outlast_macros::tool;

/// Tells the weather.
#[tool(returns)]
async fn weather(city: String) -> Result<ToolRunOutcome, Error> {}

fn main() {}
