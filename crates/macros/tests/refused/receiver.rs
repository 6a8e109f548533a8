//! A tool has no `self`.
use outlast_macros::tool;

struct Station;

impl Station {
    /// Tells the weather.
    #[tool]
    async fn weather(&self, city: String) -> Result<String, Error> {}
}

fn main() {}
