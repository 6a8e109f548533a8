//! Limits the open event streams and downloads, in total and per caller, and the concurrent requests per caller.
use futures_util::{Stream, StreamExt};
use outlast_vocab::access::{Access, OrgVisibility};
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open streams: events and downloads.
#[derive(Default)]
pub struct StreamLimiter(CallerCounts);

/// The concurrent requests of each caller. [`crate::admission_control`] limits their total before the caller is known.
#[derive(Default)]
pub struct CallerRequestLimiter(CallerCounts);

/// The number of open streams or requests of each caller.
#[derive(Clone, Default)]
struct CallerCounts(Arc<Mutex<BTreeMap<String, usize>>>);

/// An open stream or request. Dropping it closes it.
pub struct CallerSlot {
    tally: CallerCounts,
    caller: String,
}

impl StreamLimiter {
    /// Returns the number of open streams.
    pub fn count(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// Opens a stream. Fails if too many are open.
    pub fn open(&self, access: &Access, limits: &ServerLimits) -> Result<CallerSlot, Error> {
        let (count, most) = (self.count(), limits.streams);
        if count >= most {
            let detail = format!("streams is limited to {most}, and so many are open");
            return Err(Error::new(Kind::ServerBusy, detail));
        }
        self.0.open(access, "streams_per_caller", limits.streams_per_caller)
    }
}

impl CallerRequestLimiter {
    /// Opens a request. Fails if its caller has too many in progress.
    pub fn open(&self, access: &Access, limits: &ServerLimits) -> Result<CallerSlot, Error> {
        self.0.open(access, "requests_per_caller", limits.requests_per_caller)
    }
}

impl CallerCounts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, access: &Access, name: &str, most: usize) -> Result<CallerSlot, Error> {
        let org = match access.visibility {
            OrgVisibility::Org(org) => org.to_string(),
            OrgVisibility::Everything => String::new(),
        };
        let caller = format!("{org} {}", access.by);
        let mut open = self.lock();
        let own = open.entry(caller.clone()).or_default();
        if *own >= most {
            let detail = format!("{name} is limited to {most}, and so many are open");
            return Err(Error::new(Kind::CallerBusy, detail));
        }
        *own += 1;
        Ok(CallerSlot { tally: self.clone(), caller })
    }
}

impl CallerSlot {
    /// Returns the stream with this slot, which is released when the stream is dropped.
    pub fn hold_during<T>(self, stream: impl Stream<Item = T>) -> impl Stream<Item = T> {
        stream.map(move |item| {
            let _slot = &self;
            item
        })
    }
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        let mut open = self.tally.lock();
        let left = open.get(&self.caller).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            open.remove(&self.caller);
        } else {
            open.insert(self.caller.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_limited_per_caller_and_in_total() {
        let streams = StreamLimiter::default();
        let limits = ServerLimits { streams: 3, streams_per_caller: 2, ..ServerLimits::default() };
        let by = |name: &str| Access::operator().by(format!("person:{name}").parse().unwrap());
        let mut open =
            vec![streams.open(&by("ann"), &limits).unwrap(), streams.open(&by("ann"), &limits).unwrap()];
        let refused = |who| streams.open(&by(who), &limits).err().map(|error| error.detail().to_owned());
        assert_eq!(refused("ann").unwrap(), "streams_per_caller is limited to 2, and so many are open");
        open.push(streams.open(&by("bob"), &limits).unwrap());
        assert_eq!(refused("eve").unwrap(), "streams is limited to 3, and so many are open");
        open.clear();
        assert_eq!((refused("eve"), streams.count()), (None, 0));
    }
}
