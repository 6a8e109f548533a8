//! Builds OTLP messages and their attributes.
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use outlast_vocab::Millis;
use prost::Message;

/// The name of the instrumentation scope.
const SCOPE: &str = "outlast";

/// Creates a text attribute.
pub(crate) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

/// Creates a number attribute.
pub(crate) fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// Creates an attribute with a list of texts.
pub(crate) fn texts(key: &str, values: &[&str]) -> KeyValue {
    let value = |text: &&str| AnyValue { value: Some(Value::StringValue((*text).to_owned())) };
    attribute(key, Value::ArrayValue(ArrayValue { values: values.iter().map(value).collect() }))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Converts a time to OTLP's unit.
pub(crate) fn nanos(at: Millis) -> u64 {
    at.0.saturating_mul(1_000_000)
}

fn scope() -> InstrumentationScope {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    InstrumentationScope { name: SCOPE.to_owned(), version, ..InstrumentationScope::default() }
}

fn resource(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter().map(|(key, value)| text(key, value)).collect();
    Resource { attributes, ..Resource::default() }
}

/// Encodes spans as an export request.
pub(crate) fn of_spans(about: &[(String, String)], spans: Vec<Span>) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
    let spans = ResourceSpans { resource: Some(resource(about)), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

/// Encodes metrics as an export request.
pub(crate) fn of_metrics(about: &[(String, String)], metrics: Vec<Metric>) -> Vec<u8> {
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let metrics =
        ResourceMetrics { resource: Some(resource(about)), scope_metrics, ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![metrics] }.encode_to_vec()
}
