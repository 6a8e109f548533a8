//! How many streams of events are open, all in all and for each caller (S42).
use outlast_vocab::access::{Access, Reach};
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The streams that are open.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<BTreeMap<String, usize>>>);

/// An open stream; dropping it closes it.
pub(crate) struct Open {
    streams: Streams,
    caller: String,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams that are open now.
    pub(crate) fn count(&self) -> usize {
        self.lock().values().sum()
    }

    /// Opens one, unless there are too many.
    pub(crate) fn open(&self, access: &Access, limits: &ServerLimits) -> Result<Open, Error> {
        let org = match access.reach {
            Reach::Org(org) => org.to_string(),
            Reach::Everything => String::new(),
        };
        let caller = format!("{org} {}", access.by);
        let mut open = self.lock();
        let own = open.get(&caller).copied().unwrap_or(0);
        for (name, count, most) in [
            ("streams", open.values().sum(), limits.streams),
            ("streams_per_caller", own, limits.streams_per_caller),
        ] {
            if count >= most {
                let detail = format!("{name} is limited to {most}, and so many are open");
                return Err(Error::new(Kind::ServerBusy, detail));
            }
        }
        *open.entry(caller.clone()).or_default() += 1;
        Ok(Open { streams: self.clone(), caller })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
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
