//! Points in time and lengths of it, in whole milliseconds.
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The point `later` after this one; stops at the end of time instead of wrapping.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long it is from this point until `end`; nothing if that has passed.
    pub fn until(self, end: Self) -> Duration {
        Duration::from_millis(end.0.saturating_sub(self.0))
    }
}
