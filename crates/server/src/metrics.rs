//! Counts requests, and writes `/metrics` in the Prometheus text format.
use axum::http::Method;
use outlast_runtime::WorkerLoad;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Methods with a label of their name. Others count as `other`.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Counters since the start.
#[derive(Default)]
pub(crate) struct HttpMetrics {
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
    latency: Mutex<LatencyHistogram>,
}

/// Values that are measured on each scrape.
pub(crate) struct ServerGauges {
    pub(crate) load: WorkerLoad,
    pub(crate) streams: usize,
    pub(crate) store_bytes: u64,
}

#[derive(Default)]
struct LatencyHistogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpMetrics {
    /// Counts an answered request. The labels contain the route pattern and known methods only, so that ids
    /// and made-up methods do not create new time series.
    pub(crate) fn count_response(&self, method: &Method, route: &str, status: u16, took: Duration) {
        let method = if METHODS.contains(method) { method.as_str() } else { "other" };
        *lock(&self.requests).entry((method.to_owned(), route.to_owned(), status)).or_default() += 1;
        let mut all = lock(&self.latency);
        let seconds = took.as_secs_f64();
        for (bucket, most) in all.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= most);
        }
        all.count += 1;
        all.seconds += seconds;
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self, ServerGauges { load, streams, store_bytes }: ServerGauges) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, help: &str, value: u64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        };
        gauge("outlast_sessions_driven", "Sessions that this worker is running.", load.driven as u64);
        gauge(
            "outlast_sessions_driven_most",
            "Sessions that this worker can run at the same time.",
            load.most as u64,
        );
        gauge("outlast_streams_open", "Event streams and downloads that are open.", streams as u64);
        gauge("outlast_store_bytes", "Size of the database in bytes.", store_bytes);
        out.push_str("# HELP outlast_http_requests_total Requests with a response.\n");
        out.push_str("# TYPE outlast_http_requests_total counter\n");
        for ((method, route, status), count) in lock(&self.requests).iter() {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            let _ = writeln!(out, "outlast_http_requests_total{{{labels}}} {count}");
        }
        let took = lock(&self.latency);
        out.push_str("# HELP outlast_http_request_seconds Duration of responses in seconds.\n");
        out.push_str("# TYPE outlast_http_request_seconds histogram\n");
        for (most, count) in BUCKETS.iter().zip(took.buckets) {
            let _ = writeln!(out, "outlast_http_request_seconds_bucket{{le=\"{most}\"}} {count}");
        }
        let LatencyHistogram { count, seconds, .. } = &*took;
        let _ = writeln!(out, "outlast_http_request_seconds_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "outlast_http_request_seconds_sum {seconds}");
        let _ = writeln!(out, "outlast_http_request_seconds_count {count}");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_http_methods_are_counted_together() {
        let metrics = HttpMetrics::default();
        for n in 0..1_000 {
            let method = Method::from_bytes(format!("M{n}").as_bytes()).unwrap();
            metrics.count_response(&method, "none", 404, Duration::ZERO);
        }
        metrics.count_response(&Method::GET, "none", 404, Duration::ZERO);
        let series: Vec<_> = lock(&metrics.requests).clone().into_iter().collect();
        let of = |method: &str, count| ((method.to_owned(), "none".to_owned(), 404), count);
        assert_eq!(series, [of("GET", 1), of("other", 1_000)]);
    }
}
