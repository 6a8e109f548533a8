//! Points in time, in whole milliseconds.
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Returns the point `later` after this one, saturating at the largest value.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from this point until `end`, or zero if `end` has passed.
    pub fn until(self, end: Self) -> Duration {
        Duration::from_millis(end.0.saturating_sub(self.0))
    }
}
