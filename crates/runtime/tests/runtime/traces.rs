//! The trace of a turn is one trace with the same spans, even after crashes.
use crate::common::*;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::sink::{Sink, SinkOutput, SubscribedSink};
use outlast_ports::store::Store;
use outlast_runtime::Input;
use outlast_telemetry::{OtlpTraces, TRACE_SINK_NAME, TelemetrySettings};
use outlast_vocab::wait::Resolution;
use prost::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A collector that stores all spans, in order.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

/// Exports like the real exporter, without a network.
struct Sent {
    traces: OtlpTraces,
    to: Collector,
}

impl Sink for Sent {
    fn place(&self) -> String {
        self.traces.place()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            for request in self.traces.requests(output).await? {
                let request = ExportTraceServiceRequest::decode(request.as_slice()).unwrap();
                let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                self.to.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
            }
            Ok(())
        })
    }
}

fn settings() -> TelemetrySettings {
    TelemetrySettings::to("http://localhost:4318").unwrap()
}

fn outlet(settings: &TelemetrySettings, store: Arc<dyn Store>, to: &Collector) -> SubscribedSink {
    let traces = OtlpTraces::new(settings, store).unwrap().unwrap();
    SubscribedSink::new(TRACE_SINK_NAME, Sent { traces, to: to.clone() }).unwrap().from_the_beginning()
}

fn script() -> Vec<Line> {
    let batch =
        vec![("pay", json!({"text": "canary-a"})), ("wait", json!({"text": "k"})), ("nothing", json!({}))];
    vec![call("stepped", "x"), Line::Call(batch), Line::Say("done with canary-b")]
}

/// Runs a turn to its end over as many processes as needed. The first crashes at `death`. Returns the exported spans.
async fn play(death: CrashPoint, settings: TelemetrySettings, input: &Input) -> (Vec<Span>, u64) {
    let (memory, collector) = (MemoryStore::new(), Collector::default());
    let witness: Arc<Witness> = Arc::default();
    let crashing_store = CrashingStore::new(memory.clone(), death);
    let pulse = crashing_store.pulse();
    let life = async |store: Arc<dyn Store>, number| {
        let sink = outlet(&settings, Arc::new(memory.clone()), &collector);
        live_with(store, script(), witness.clone(), number, |config| config.sinks = vec![sink]).await
    };
    let act = async |life: &Life| {
        let turn = life.runtime.submit(input.clone()).await.unwrap().turn;
        let resolve = async {
            loop {
                let key = life.witness.keys.lock().unwrap().get("k").cloned();
                if let Some(key) = key {
                    life.runtime.resolve(&key, Resolution::Ok(json!("yes"))).await.unwrap();
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::join!(life.end(turn), resolve);
        life.runtime.idle().await.unwrap();
    };
    let first = async {
        if let Ok(life) = life(Arc::new(crashing_store), 1).await {
            act(&life).await;
        }
    };
    tokio::select! {
        () = first => {}
        () = pulse.stopped() => {}
    }
    memory.bury(outlast_vocab::WorkerId::from_u128(1));
    let second = life(Arc::new(memory.clone()), 2).await.unwrap();
    act(&second).await;
    second.die(&memory).await;
    let spans = collector.0.lock().unwrap().clone();
    (spans, pulse.writes())
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue;
    let value = span.attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?;
    match value.value.as_ref()? {
        StringValue(text) => Some(text),
        _ => None,
    }
}

/// Returns the path of names to each span.
fn paths(spans: &[Span]) -> BTreeSet<String> {
    let by_id: BTreeMap<&[u8], &Span> = spans.iter().map(|span| (span.span_id.as_slice(), span)).collect();
    let path = |span: &Span| {
        let (mut names, mut at) = (vec![span.name.as_str()], span);
        while let Some(parent) = by_id.get(at.parent_span_id.as_slice()) {
            names.push(&parent.name);
            at = parent;
        }
        names.reverse();
        names.join(" > ")
    };
    spans.iter().map(path).collect()
}

/// Asserts the invariants of all spans of one turn.
fn check(spans: &[Span], death: CrashPoint) {
    let traces: BTreeSet<&[u8]> = spans.iter().map(|span| span.trace_id.as_slice()).collect();
    assert_eq!(traces.len(), 1, "one trace: {death:?}");
    let mut by_id: BTreeMap<&[u8], &Span> = BTreeMap::new();
    for span in spans {
        let first = by_id.entry(&span.span_id).or_insert(span);
        assert_eq!(*first, span, "what is sent again is the same span: {death:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{death:?}: {}", span.name);
    }
    let keys: BTreeSet<_> = by_id.values().map(|span| attribute(span, "outlast.replay_key")).collect();
    assert_eq!(keys.len(), by_id.len(), "no two spans tell of one place: {death:?}");
    let all: Vec<Span> = by_id.into_values().cloned().collect();
    let root = "invoke_agent tester";
    let expected = [
        String::new(),
        " > chat script".to_owned(),
        " > execute_tool stepped".to_owned(),
        " > execute_tool stepped > step one".to_owned(),
        " > execute_tool stepped > step two".to_owned(),
        " > execute_tool stepped > wait sleep".to_owned(),
        " > execute_tool pay".to_owned(),
        " > execute_tool wait".to_owned(),
        " > execute_tool wait > wait outside completion".to_owned(),
        " > execute_tool nothing".to_owned(),
    ];
    let mut expected: BTreeSet<String> = expected.iter().map(|rest| format!("{root}{rest}")).collect();
    let mut paths = paths(&all);
    if death != CrashPoint::Never {
        // It may be resolved before the second process waits for it.
        let waits = |path: &String| path.ends_with("wait outside completion");
        paths.retain(|path| !waits(path));
        expected.retain(|path| !waits(path));
    }
    assert_eq!(paths, expected, "{death:?}");
    assert_eq!(all.iter().filter(|span| span.name == "chat script").count(), 3, "{death:?}");
}

#[tokio::test(start_paused = true)]
async fn turn_trace_is_identical_across_crashes() {
    let input = keyed_input("one", "go, canary-c");
    let (spans, writes) = play(CrashPoint::Never, settings(), &input).await;
    check(&spans, CrashPoint::Never);
    assert!(writes > 8, "{writes}");
    for at in 0..writes {
        for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
            let (spans, _) = play(death, settings(), &input).await;
            check(&spans, death);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn traces_omit_content_unless_enabled() {
    let text = |spans: &[Span]| format!("{spans:?}");
    let input = keyed_input("one", "go, canary-c");
    let (silent, _) = play(CrashPoint::Never, settings(), &input).await;
    assert!(!text(&silent).contains("canary"));
    let (recorded, _) = play(CrashPoint::Never, settings().with_content(), &input).await;
    for canary in ["canary-a", "canary-b", "canary-c"] {
        assert!(text(&recorded).contains(canary), "{canary}");
    }
    let pay = recorded.iter().find(|span| span.name == "execute_tool pay").unwrap();
    let arguments: Value =
        serde_json::from_str(attribute(pay, "gen_ai.tool.call.arguments").unwrap()).unwrap();
    assert_eq!(arguments, json!({"text": "canary-a"}));
}

#[tokio::test(start_paused = true)]
async fn trace_follows_parent_span_and_its_sampling() {
    let of = |flags: &str| {
        let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        Input { key: Some("one".to_owned()), traceparent: Some(parent.parse().unwrap()), ..input("go") }
    };
    let (spans, _) = play(CrashPoint::Never, settings().share(0.0).unwrap(), &of("01")).await;
    let root = spans.iter().find(|span| span.name.starts_with("invoke_agent")).unwrap();
    assert_eq!(root.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    assert!(spans.iter().all(|span| span.trace_id[..4] == [0x0a, 0xf7, 0x65, 0x19]));
    let (spans, _) = play(CrashPoint::Never, settings(), &of("00")).await;
    assert_eq!(spans, []);
    let alone = keyed_input("one", "go");
    let (spans, _) = play(CrashPoint::Never, settings().share(0.0).unwrap(), &alone).await;
    assert_eq!(spans, []);
}
