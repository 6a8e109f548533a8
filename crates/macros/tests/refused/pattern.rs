//! Arguments have names.
use outlast_macros::tool;

/// Tells the weather.
#[tool]
async fn weather((city, day): (String, u8)) -> Result<String, Error> {}

fn main() {}
