//! A tool is a function.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
struct Weather;

fn main() {}
