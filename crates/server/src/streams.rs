//! How many streams of events are open, and how many requests are under way, all in all and for each caller (S42).
use outlast_vocab::access::{Access, Reach};
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The streams that are open.
#[derive(Default)]
pub(crate) struct Streams(Tally);

/// The requests of callers that are under way. How many there are all in all is bounded before anybody is known: [`crate::room`].
#[derive(Default)]
pub(crate) struct Asking(Tally);

/// What is open, for each caller.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<BTreeMap<String, usize>>>);

/// Something that is open; dropping it closes it.
pub(crate) struct Open {
    tally: Tally,
    caller: String,
}

impl Streams {
    /// Streams that are open now.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// Opens one, unless there are too many.
    pub(crate) fn open(&self, access: &Access, limits: &ServerLimits) -> Result<Open, Error> {
        let (count, most) = (self.count(), limits.streams);
        if count >= most {
            let detail = format!("streams is limited to {most}, and so many are open");
            return Err(Error::new(Kind::ServerBusy, detail));
        }
        self.0.open(access, "streams_per_caller", limits.streams_per_caller)
    }
}

impl Asking {
    /// Begins a request, unless its caller has too many under way.
    pub(crate) fn open(&self, access: &Access, limits: &ServerLimits) -> Result<Open, Error> {
        self.0.open(access, "requests_per_caller", limits.requests_per_caller)
    }
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, access: &Access, name: &str, most: usize) -> Result<Open, Error> {
        let org = match access.reach {
            Reach::Org(org) => org.to_string(),
            Reach::Everything => String::new(),
        };
        let caller = format!("{org} {}", access.by);
        let mut open = self.lock();
        let own = open.entry(caller.clone()).or_default();
        if *own >= most {
            let detail = format!("{name} is limited to {most}, and so many are open");
            return Err(Error::new(Kind::CallerBusy, detail));
        }
        *own += 1;
        Ok(Open { tally: self.clone(), caller })
    }
}

impl Drop for Open {
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
    fn a_caller_has_so_many_streams_at_once_and_all_of_them_together_too() {
        let streams = Streams::default();
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
