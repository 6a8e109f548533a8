//! Tests of traces that the real binary sends to a collector on a real socket.
use crate::place::Place;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use outlast_playback::{Playback, RecordedRequest, ResponseScript};
use prost::Message;
use std::time::{Duration, Instant};

fn place(configuration: &str) -> Place {
    let place = Place::with_script("any\nsay All is well.");
    place.write("outlast.toml", configuration);
    place
}

fn spans(received: &[RecordedRequest]) -> Vec<Span> {
    let traces = received.iter().filter(|received| received.path == "/v1/traces");
    let requests =
        traces.map(|received| ExportTraceServiceRequest::decode(received.body.as_slice()).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

#[test]
fn turn_trace_is_exported_below_its_parent_span() {
    let server = Playback::of([ResponseScript::answer(200, &[], "")]);
    let place = place(&format!(
        "[telemetry]\nendpoint = \"{}\"\nheaders = {{ \"x-key\" = {{ env = \"KEY\" }} }}\nservice = \"shop\"\n",
        server.url()
    ));
    place.set("KEY", "canary-key");
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let ran = place.output(&["run", "hello", "--script", "script.txt", "--traceparent", parent]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(place.output(&["work", "--script", "script.txt"]).status.success());
    let sinks = String::from_utf8(place.output(&["sinks"]).stdout).unwrap();
    assert!(sinks.contains(&format!("{}/v1/traces", server.url())), "{sinks}");
    let refused = place.output(&["run", "hello", "--script", "script.txt", "--traceparent", "00-1"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("expected a traceparent like"));
    let received = server.requests();
    assert!(received.iter().all(|received| received.header("x-key") == Some("canary-key")));
    assert!(
        received.iter().all(|received| received.header("content-type") == Some("application/x-protobuf"))
    );
    let names: Vec<String> = spans(&received).into_iter().map(|span| span.name).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("invoke_agent")).count(), 1, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("chat")).count(), 1, "{names:?}");
    assert!(spans(&received).iter().all(|span| span.trace_id[..2] == [0x0a, 0xf7]));
}

/// Returns the points of a histogram from the last export, each with its attributes.
fn points(received: &[RecordedRequest], name: &str) -> Vec<(String, HistogramDataPoint)> {
    let last = received.iter().rfind(|received| received.path == "/v1/metrics").expect("measurements came");
    let request = ExportMetricsServiceRequest::decode(last.body.as_slice()).unwrap();
    let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
    let metric = scopes.flat_map(|scope| scope.metrics).find(|metric| metric.name == name);
    let Some(Data::Histogram(histogram)) = metric.and_then(|metric| metric.data) else {
        panic!("{name} is no histogram")
    };
    let labels = |point: &HistogramDataPoint| {
        let pairs = point.attributes.iter().map(|pair| match pair.value.as_ref().unwrap().value.as_ref() {
            Some(Value::StringValue(text)) => format!("{}={text}", pair.key),
            other => panic!("{other:?}"),
        });
        pairs.collect::<Vec<_>>().join(" ")
    };
    histogram.data_points.into_iter().map(|point| (labels(&point), point)).collect()
}

#[test]
fn model_durations_and_tokens_are_exported() {
    let server = Playback::of([ResponseScript::answer(200, &[], "")]);
    let place = place(&format!("[telemetry]\nendpoint = \"{}\"\n", server.url()));
    assert!(place.output(&["run", "hello", "--script", "script.txt"]).status.success());
    let received = server.requests();
    let of_chat =
        "gen_ai.operation.name=chat gen_ai.provider.name=rehearsal gen_ai.request.model=script-2f8048fb";
    let took = points(&received, "gen_ai.client.operation.duration");
    assert_eq!(
        took.iter().map(|(labels, point)| (labels.as_str(), point.count)).collect::<Vec<_>>(),
        [(of_chat, 1)]
    );
    let used = points(&received, "gen_ai.client.token.usage");
    let used: Vec<(&str, u64)> = used.iter().map(|(labels, point)| (labels.as_str(), point.count)).collect();
    let (read, said) =
        (format!("{of_chat} gen_ai.token.type=input"), format!("{of_chat} gen_ai.token.type=output"));
    assert_eq!(used, [(read.as_str(), 1), (said.as_str(), 1)]);
}

#[test]
fn hanging_collector_does_not_slow_turns() {
    let server = Playback::of([ResponseScript::default().hold_open()]);
    let place = place(&format!("[telemetry]\nendpoint = \"{}\"\n", server.url()));
    let mut worker = place.command(&["run", "hello", "--session", "ann", "--script", "script.txt"]);
    let began = Instant::now();
    let output = worker.output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"All is well."));
    // An exiting process waits for pending exports only for a limited time.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let sinks = String::from_utf8(place.output(&["sinks"]).stdout).unwrap();
    let row = sinks.lines().find(|line| line.starts_with("telemetry")).unwrap();
    assert!(row.ends_with('0'), "nothing was delivered: {row}");
}

#[test]
fn invalid_telemetry_config_is_named() {
    let place = place("");
    for (lines, labels) in [
        ("endpoint = \"localhost:4318\"", "expected the address of a collector"),
        ("endpoint = \"http://localhost:4318\"\nshare = 2.0", "expected a share of traces from 0 to 1"),
        (
            "endpoint = \"http://localhost:4318\"\nheaders = { \"x-key\" = { env = \"NOT_SET\" } }",
            "set NOT_SET",
        ),
    ] {
        place.write("outlast.toml", &format!("[telemetry]\n{lines}\n"));
        let checked = place.output(&["config", "check"]);
        let said = String::from_utf8(checked.stdout).unwrap();
        assert!(!checked.status.success() && said.contains(labels), "{said}");
    }
}
