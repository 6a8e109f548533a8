//! Tracks open connections: which are idle, and which one is closed when a new client needs a slot.
//!
//! A connection is idle from when it is accepted, or from the end of its last answer, until its next request
//! has arrived. If no slot is free, the address with the most idle connections loses the one that has been
//! idle longest.
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The prefix length that identifies an IPv6 network. One client usually has all addresses of such a network.
const NETWORK_BITS: u32 = 64;

/// The idle connections of a server.
#[derive(Clone, Default)]
pub(crate) struct IdleConnections(Arc<Mutex<IdleByNetwork>>);

#[derive(Default)]
struct IdleByNetwork {
    /// Idle connections by network, in the order in which they became idle.
    idle: HashMap<IpAddr, BTreeMap<u64, IdleConnection>>,
    next: u64,
}

/// An idle connection.
struct IdleConnection {
    since: Instant,
    evicted: Arc<Notify>,
}

/// One connection. Dropping it removes it from the list.
pub(crate) struct Connection {
    all: IdleConnections,
    network: IpAddr,
    evicted: Arc<Notify>,
    state: Mutex<ConnectionActivity>,
}

struct ConnectionActivity {
    /// The number of requests in progress.
    requests: usize,
    /// Its number in the list of idle connections.
    idle: Option<u64>,
}

/// A request in progress. Dropping it marks the request as answered.
pub(crate) struct ActiveRequest(Arc<Connection>);

impl IdleConnections {
    /// Adds a new connection, which is idle.
    pub(crate) fn open(&self, address: IpAddr) -> Arc<Connection> {
        let (network, evicted) = (network_of(address), Arc::new(Notify::new()));
        let idle = Some(self.list(network, &evicted));
        let state = Mutex::new(ConnectionActivity { requests: 0, idle });
        Arc::new(Connection { all: self.clone(), network, evicted, state })
    }

    /// Asks one idle connection to close, and returns whether there was one. Chooses the longest idle
    /// connection of the network with the most idle connections. Skips networks without a connection that has
    /// been idle for `idle_for`, so that each client has time to send its request.
    pub(crate) fn evict_one(&self, idle_for: Duration) -> bool {
        let mut all = self.all();
        let is_old = |idle: &BTreeMap<u64, IdleConnection>| {
            idle.first_key_value().is_some_and(|(_, first)| first.since.elapsed() >= idle_for)
        };
        let old = all.idle.iter().filter(|(_, idle)| is_old(idle));
        let most = old.max_by_key(|(_, idle)| idle.len()).map(|(network, _)| *network);
        let Some(network) = most else { return false };
        let idle = all.idle.entry(network).or_default();
        let longest = idle.pop_first();
        if idle.is_empty() {
            all.idle.remove(&network);
        }
        longest.inspect(|(_, longest)| longest.evicted.notify_one()).is_some()
    }

    fn list(&self, network: IpAddr, evicted: &Arc<Notify>) -> u64 {
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        all.idle
            .entry(network)
            .or_default()
            .insert(number, IdleConnection { since: Instant::now(), evicted: evicted.clone() });
        number
    }

    fn unlist(&self, network: IpAddr, number: u64) {
        let mut all = self.all();
        if let Some(idle) = all.idle.get_mut(&network) {
            idle.remove(&number);
            if idle.is_empty() {
                all.idle.remove(&network);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, IdleByNetwork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Waits until this connection is asked to close.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Returns once no request is in progress, but checks only every `time`. A request in progress gets its
    /// answer first.
    pub(crate) async fn wait_until_idle(&self, time: Duration) {
        loop {
            tokio::time::sleep(time).await;
            if self.state().requests == 0 {
                return;
            }
        }
    }

    /// Records that a request has arrived.
    pub(crate) fn begin(self: &Arc<Self>) -> ActiveRequest {
        let mut state = self.state();
        state.requests += 1;
        if let Some(number) = state.idle.take() {
            self.all.unlist(self.network, number);
        }
        ActiveRequest(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, ConnectionActivity> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let connection = &self.0;
        let mut state = connection.state();
        state.requests -= 1;
        if state.requests == 0 {
            state.idle = Some(connection.all.list(connection.network, &connection.evicted));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(number) = self.state().idle.take() {
            self.all.unlist(self.network, number);
        }
    }
}

/// Returns the network of an address. All addresses of one network are assumed to belong to one client.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> NETWORK_BITS << NETWORK_BITS).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_evicted(connection: &Connection) -> bool {
        connection.evicted().now_or_never().is_some()
    }

    #[test]
    fn largest_network_loses_its_longest_idle_connection() {
        let all = IdleConnections::default();
        let open = |address: &str| all.open(address.parse().unwrap());
        let (one, two, three) = (open("192.0.2.1"), open("192.0.2.2"), open("192.0.2.2"));
        // It has had a request since then, so the third one has been idle for longer.
        drop(two.begin());
        assert!(all.evict_one(Duration::ZERO));
        assert_eq!([&one, &two, &three].map(|one| is_evicted(one)), [false, false, true]);
        let busy = one.begin();
        assert!(all.evict_one(Duration::ZERO));
        assert_eq!([&one, &two].map(|one| is_evicted(one)), [false, true]);
        assert!(!all.evict_one(Duration::ZERO), "the only one left is busy");
        drop(busy);
        assert!(all.evict_one(Duration::ZERO));
        assert!(is_evicted(&one));
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let all = IdleConnections::default();
        let open = |address: &str| all.open(address.parse().unwrap());
        let mapped = open("::ffff:192.0.2.1");
        let (one, _two) = (open("2001:db8::1"), open("2001:db8::2"));
        assert!(all.evict_one(Duration::ZERO));
        assert_eq!((is_evicted(&mapped), is_evicted(&one)), (false, true));
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let all = IdleConnections::default();
        let connection = all.open("192.0.2.1".parse().unwrap());
        let (first, second) = (connection.begin(), connection.begin());
        drop(first);
        assert!(!all.evict_one(Duration::ZERO), "one request is left");
        drop(second);
        assert!(!all.evict_one(Duration::from_hours(1)), "it has not been idle for an hour");
        drop(connection);
        assert!(!all.evict_one(Duration::ZERO));
        assert!(all.all().idle.is_empty());
    }
}
