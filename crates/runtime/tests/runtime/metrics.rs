//! The metrics of a worker and their export.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::metrics::{HistogramValue, MetricSample, MetricSink, MetricValues, MetricsSnapshot};
use outlast_telemetry::exposition;
use outlast_vocab::access::Access;
use outlast_vocab::{Kind, OrgId};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn readings<'a>(snapshot: &'a MetricsSnapshot, name: &str) -> &'a MetricValues {
    &snapshot.families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}")).values
}

/// Returns the values of a counter or gauge, with their labels.
fn numbers(snapshot: &MetricsSnapshot, name: &str) -> Vec<(String, f64)> {
    let (MetricValues::Counter(readings) | MetricValues::Gauge(readings)) = readings(snapshot, name) else {
        panic!("{name} is spread")
    };
    let labels = |reading: &MetricSample<f64>| {
        let labels: Vec<&str> = reading.labels.iter().map(|(_, value)| value.as_str()).collect();
        labels.join(" ")
    };
    readings.iter().map(|reading| (labels(reading), reading.value)).collect()
}

fn count(snapshot: &MetricsSnapshot, name: &str) -> u64 {
    let MetricValues::Histogram(readings) = readings(snapshot, name) else {
        panic!("{name} is no histogram")
    };
    readings.iter().map(|reading| HistogramValue::count(&reading.value)).sum()
}

fn of(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
    pairs.iter().map(|(labels, value)| ((*labels).to_owned(), *value)).collect()
}

#[tokio::test(start_paused = true)]
async fn worker_counts_turns_calls_tokens_and_writes() {
    let (memory, life) = fresh(vec![call("flaky", ""), call("panics", ""), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    life.runtime.idle().await.unwrap();
    let snapshot = life.runtime.metrics().await.unwrap();
    assert_eq!(numbers(&snapshot, "outlast.turns.accepted"), of(&[("", 1.0)]));
    assert_eq!(numbers(&snapshot, "outlast.turns.ended"), of(&[("answered", 1.0)]));
    assert_eq!(numbers(&snapshot, "outlast.model.calls"), of(&[("test/script ok", 3.0)]));
    assert_eq!(numbers(&snapshot, "outlast.model.tokens")[..1], of(&[("test/script input", 9.0)]));
    let tools = of(&[("flaky ok", 1.0), ("panics tool.panicked", 1.0)]);
    assert_eq!(numbers(&snapshot, "outlast.tool.calls"), tools);
    assert_eq!(numbers(&snapshot, "outlast.retries"), of(&[("tool", 2.0)]));
    assert_eq!(numbers(&snapshot, "outlast.leases"), of(&[("", 0.0)]));
    assert_eq!(numbers(&snapshot, "outlast.sessions.ready"), of(&[("", 0.0)]));
    assert_eq!(count(&snapshot, "gen_ai.client.operation.duration"), 3);
    assert_eq!(count(&snapshot, "gen_ai.client.token.usage"), 6);
    // Input; reply and claim; two more attempts; answer; reply and claim; answer; reply and end.
    assert_eq!(count(&snapshot, "outlast.commit.duration"), 8);
    let text = exposition(&snapshot);
    let expected = "gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name=\"chat\",\
                gen_ai_provider_name=\"test\",gen_ai_request_model=\"script\"} 3\n";
    assert!(text.contains(expected), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    life.die(&memory).await;
}

#[tokio::test(start_paused = true)]
async fn turn_time_is_measured_by_phase() {
    let (memory, life) = fresh(vec![call("hangs", ""), call("stepped", "x"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    life.runtime.idle().await.unwrap();
    let snapshot = life.runtime.metrics().await.unwrap();
    let MetricValues::Histogram(phases) = readings(&snapshot, "outlast.turn.phase.duration") else {
        panic!("phases are spread")
    };
    let expected: Vec<(&str, u64, f64)> = phases
        .iter()
        .map(|MetricSample { labels, value }| (labels[0].1.as_str(), value.count(), value.sum().round()))
        .collect();
    // One tool times out after five seconds. The other sleeps for a minute, parked, and runs before and after that.
    assert_eq!(
        expected,
        [
            ("queued", 1, 0.0),
            ("model", 3, 0.0),
            ("tools", 3, 5.0),
            ("waiting", 1, 60.0),
            ("committing", 10, 0.0)
        ]
    );
    let text = exposition(&snapshot);
    assert!(text.contains("outlast_turn_phase_duration_seconds_count{phase=\"waiting\"} 1\n"), "{text}");
    life.die(&memory).await;
}

#[tokio::test(start_paused = true)]
async fn worker_metrics_require_operator_access() {
    let (memory, life) = fresh(Vec::new()).await;
    let narrow = life.runtime.serving(Access::to(OrgId::DEFAULT));
    assert_eq!(narrow.metrics().await.unwrap_err().kind(), Kind::AccessDenied);
    life.die(&memory).await;
}

/// An exporter that stores snapshots, or hangs.
struct RecordingExporter {
    took: Arc<Mutex<Vec<MetricsSnapshot>>>,
    hangs: bool,
}

impl MetricSink for RecordingExporter {
    fn export_interval(&self) -> Duration {
        Duration::from_mins(1)
    }

    fn export<'a>(&'a self, snapshot: &'a MetricsSnapshot) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            self.took.lock().unwrap().push(snapshot.clone());
            Ok(())
        })
    }
}

async fn measured(hangs: bool) -> (Life, MemoryStore, Arc<Mutex<Vec<MetricsSnapshot>>>) {
    let (memory, took) = (MemoryStore::new(), Arc::<Mutex<Vec<MetricsSnapshot>>>::default());
    let given: Arc<dyn MetricSink> = Arc::new(RecordingExporter { took: took.clone(), hangs });
    let store = Arc::new(memory.clone());
    let lines = vec![Line::Say("hello")];
    let life =
        live_with(store, lines, Arc::default(), 1, |config| config.metrics = Some(given)).await.unwrap();
    (life, memory, took)
}

#[tokio::test(start_paused = true)]
async fn metrics_export_periodically_and_at_shutdown() {
    let (life, _, took) = measured(false).await;
    let turn = life.send("hi").await;
    life.end(turn).await;
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(took.lock().unwrap().len(), 2);
    life.runtime.shut_down(Duration::from_secs(5)).await;
    let took = took.lock().unwrap();
    assert_eq!(took.len(), 3);
    assert_eq!(numbers(&took[2], "outlast.turns.ended"), of(&[("answered", 1.0)]));
}

#[tokio::test(start_paused = true)]
async fn hanging_exporter_slows_no_turn_and_counts_drops() {
    let (life, memory, _) = measured(true).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let turn = life.send("hi").await;
    life.end(turn).await;
    let snapshot = life.runtime.metrics().await.unwrap();
    assert_eq!(numbers(&snapshot, "outlast.turns.ended"), of(&[("answered", 1.0)]));
    assert_eq!(numbers(&snapshot, "outlast.telemetry.lost"), of(&[("", 1.0)]));
    life.die(&memory).await;
}
