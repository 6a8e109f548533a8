//! Formats metrics in the text format of Prometheus, version 0.0.4.
//!
//! The crate `metrics-exporter-prometheus` does not replace it: it formats only what its own global recorder counted.
//! Our numbers come from a snapshot of one worker, which is also sent over OTLP.
use outlast_ports::metrics::{MetricFamily, MetricUnit, MetricValues, MetricsSnapshot};
use std::fmt::Write;

/// The `content-type` of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Formats a snapshot for Prometheus. Dots in names become underscores, and units and `_total` become suffixes.
pub fn exposition(snapshot: &MetricsSnapshot) -> String {
    let mut text = String::new();
    for family in &snapshot.families {
        write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &MetricFamily) {
    let name = name_of(family);
    let kind = match family.values {
        MetricValues::Counter(_) => "counter",
        MetricValues::Gauge(_) => "gauge",
        MetricValues::Histogram(_) => "histogram",
    };
    line(text, format_args!("# HELP {name} {}", family.description));
    line(text, format_args!("# TYPE {name} {kind}"));
    match &family.values {
        MetricValues::Counter(readings) | MetricValues::Gauge(readings) => {
            for reading in readings {
                line(text, format_args!("{name}{} {}", labels(&reading.labels, None), reading.value));
            }
        }
        MetricValues::Histogram(readings) => {
            for reading in readings {
                let spread = &reading.value;
                let mut below = 0;
                let bounds = spread.bounds().iter().map(f64::to_string).chain(["+Inf".to_owned()]);
                for (bound, count) in bounds.zip(spread.counts()) {
                    below += count;
                    line(
                        text,
                        format_args!("{name}_bucket{} {below}", labels(&reading.labels, Some(&bound))),
                    );
                }
                let labels = labels(&reading.labels, None);
                line(text, format_args!("{name}_sum{labels} {}", spread.sum()));
                line(text, format_args!("{name}_count{labels} {}", spread.count()));
            }
        }
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes every write");
}

fn name_of(family: &MetricFamily) -> String {
    let mut name = family.name.replace('.', "_");
    match family.unit {
        MetricUnit::Seconds => name.push_str("_seconds"),
        MetricUnit::Dollars => name.push_str("_dollars"),
        // The name already contains the unit.
        MetricUnit::Tokens | MetricUnit::Count => {}
    }
    if matches!(family.values, MetricValues::Counter(_)) {
        name.push_str("_total");
    }
    name
}

fn labels(labels: &[(&'static str, String)], bound: Option<&str>) -> String {
    let label =
        |(name, value): &(&'static str, String)| format!("{}=\"{}\"", name.replace('.', "_"), escaped(value));
    let mut all: Vec<String> = labels.iter().map(label).collect();
    all.extend(bound.map(|bound| format!("le=\"{bound}\"")));
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_ports::metrics::{HistogramValue, MetricSample};
    use outlast_vocab::Millis;

    #[test]
    fn snapshot_uses_the_prometheus_text_format() {
        let mut spread = HistogramValue::with_bounds(&[0.5, 1.0]);
        for value in [0.25, 0.75, 3.0] {
            spread.add(value);
        }
        let reading = |value| MetricSample { labels: vec![("gen_ai.tool", "a\"b\\c\nd".to_owned())], value };
        let families = vec![
            MetricFamily {
                name: "outlast.turns.ended",
                description: "Turns that ended",
                unit: MetricUnit::Count,
                values: MetricValues::Counter(vec![reading(3.0)]),
            },
            MetricFamily {
                name: "outlast.leases",
                description: "Sessions that are driven",
                unit: MetricUnit::Count,
                values: MetricValues::Gauge(vec![MetricSample { labels: Vec::new(), value: 2.0 }]),
            },
            MetricFamily {
                name: "outlast.tool.duration",
                description: "How long",
                unit: MetricUnit::Seconds,
                values: MetricValues::Histogram(vec![MetricSample { labels: Vec::new(), value: spread }]),
            },
        ];
        let snapshot = MetricsSnapshot { since: Millis(0), at: Millis(1), families };
        let expected = r#"# HELP outlast_turns_ended_total Turns that ended
# TYPE outlast_turns_ended_total counter
outlast_turns_ended_total{gen_ai_tool="a\"b\\c\nd"} 3
# HELP outlast_leases Sessions that are driven
# TYPE outlast_leases gauge
outlast_leases 2
# HELP outlast_tool_duration_seconds How long
# TYPE outlast_tool_duration_seconds histogram
outlast_tool_duration_seconds_bucket{le="0.5"} 1
outlast_tool_duration_seconds_bucket{le="1"} 2
outlast_tool_duration_seconds_bucket{le="+Inf"} 3
outlast_tool_duration_seconds_sum 4
outlast_tool_duration_seconds_count 3
"#;
        assert_eq!(exposition(&snapshot), expected);
    }
}
