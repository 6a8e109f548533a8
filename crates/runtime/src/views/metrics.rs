//! Counts what a worker does.
//!
//! Counting takes a lock and an addition. Values from the store are read when a snapshot is requested.
use crate::limits::provider_health::OutageView;
use outlast_ports::metrics::{
    HistogramValue, MetricFamily, MetricSample, MetricUnit, MetricValues, MetricsSnapshot,
};
use outlast_ports::queries::StoreLoad;
use outlast_views::SinkView;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{ModelOutcome, Usage};
use outlast_vocab::limits::METRIC_NAMES;
use outlast_vocab::message::ModelName;
use outlast_vocab::record::TurnEnd;
use outlast_vocab::trace::provider_name;
use outlast_vocab::{Failure, Millis};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The shared name for everything beyond the limit on names.
const OTHER: &str = "other";

/// What was retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RetryKind {
    Model,
    Tool,
}

/// A phase of a turn. Writes are counted separately ([`WorkerMetrics::committed`]) and reported as the phase
/// `committing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TurnPhase {
    /// Accepted, but not begun.
    Queued,
    /// Waiting for the outcome of a model call, including pauses between attempts.
    Model,
    /// Running the calls of one reply.
    Tools,
    /// Parked, until a worker continues it.
    Waiting,
}

impl TurnPhase {
    const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Model => "model",
            Self::Tools => "tools",
            Self::Waiting => "waiting",
        }
    }
}

/// The counters of a worker since it started.
#[derive(Debug)]
pub struct WorkerMetrics {
    since: Millis,
    counts: Mutex<WorkerCounters>,
}

#[derive(Debug)]
struct WorkerCounters {
    accepted: u64,
    ended: BTreeMap<&'static str, u64>,
    models: BTreeMap<String, ModelCounters>,
    tools: BTreeMap<String, ToolCounters>,
    again: BTreeMap<RetryKind, u64>,
    phases: BTreeMap<TurnPhase, HistogramValue>,
    commits: HistogramValue,
    hung: u64,
    lost: u64,
}

/// The counters of one model.
#[derive(Debug)]
struct ModelCounters {
    took: HistogramValue,
    /// How calls ended: `ok`, or the code of an error.
    ends: BTreeMap<&'static str, u64>,
    usage: Usage,
    input_tokens: HistogramValue,
    output_tokens: HistogramValue,
    cost: Cost,
}

/// The counters of one tool.
#[derive(Debug)]
struct ToolCounters {
    took: HistogramValue,
    ends: BTreeMap<&'static str, u64>,
}

impl Default for ModelCounters {
    fn default() -> Self {
        let tokens = || HistogramValue::with_bounds(HistogramValue::TOKENS);
        Self {
            took: HistogramValue::with_bounds(HistogramValue::SECONDS),
            ends: BTreeMap::new(),
            usage: Usage::default(),
            input_tokens: tokens(),
            output_tokens: tokens(),
            cost: Cost::default(),
        }
    }
}

impl Default for ToolCounters {
    fn default() -> Self {
        Self { took: HistogramValue::with_bounds(HistogramValue::SECONDS), ends: BTreeMap::new() }
    }
}

/// Returns the counters of a name. Beyond the limit, new names share one entry, because a model can invent
/// names.
fn named<'a, T: Default>(all: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    let name = if all.contains_key(name) || all.len() < METRIC_NAMES { name } else { OTHER };
    if !all.contains_key(name) {
        all.insert(name.to_owned(), T::default());
    }
    all.get_mut(name).expect("it was put there")
}

impl WorkerMetrics {
    /// Creates empty counters.
    pub fn since(now: Millis) -> Self {
        let counts = WorkerCounters {
            accepted: 0,
            ended: BTreeMap::new(),
            models: BTreeMap::new(),
            tools: BTreeMap::new(),
            again: BTreeMap::new(),
            phases: BTreeMap::new(),
            commits: HistogramValue::with_bounds(HistogramValue::WRITES),
            hung: 0,
            lost: 0,
        };
        Self { since: now, counts: Mutex::new(counts) }
    }

    fn lock(&self) -> MutexGuard<'_, WorkerCounters> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an accepted input.
    pub(crate) fn accepted(&self) {
        self.lock().accepted += 1;
    }

    /// Counts a turn that ended here.
    pub(crate) fn ended(&self, end: &TurnEnd) {
        *self.lock().ended.entry(end.name()).or_default() += 1;
    }

    /// Counts the outcome of a model call.
    pub(crate) fn asked(&self, model: &ModelName, took: Duration, outcome: &ModelOutcome) {
        let mut counts = self.lock();
        let of = named(&mut counts.models, model.as_str());
        of.took.add(took.as_secs_f64());
        let end = match outcome {
            ModelOutcome::Failed(failed) => failed.failure.code.code(),
            ModelOutcome::Reply(reply) => {
                let usage = reply.usage;
                of.usage = of.usage + usage;
                of.input_tokens.add(number(usage.input + usage.cache_read + usage.cache_write));
                of.output_tokens.add(number(usage.output + usage.reasoning));
                of.cost = [of.cost, reply.cost.unwrap_or_default()].into_iter().sum();
                "ok"
            }
        };
        *of.ends.entry(end).or_default() += 1;
    }

    /// Counts the outcome of a tool call.
    pub(crate) fn called(&self, name: &str, took: Duration, failure: Option<&Failure>) {
        let mut counts = self.lock();
        let of = named(&mut counts.tools, name);
        of.took.add(took.as_secs_f64());
        *of.ends.entry(failure.map_or("ok", |failure| failure.code.code())).or_default() += 1;
    }

    /// Counts a retry.
    pub(crate) fn tried_again(&self, what: RetryKind) {
        *self.lock().again.entry(what).or_default() += 1;
    }

    /// Adds the time that a turn spent in a phase.
    pub(crate) fn passed(&self, phase: TurnPhase, took: Duration) {
        let mut counts = self.lock();
        let spread = counts
            .phases
            .entry(phase)
            .or_insert_with(|| HistogramValue::with_bounds(HistogramValue::SECONDS));
        spread.add(took.as_secs_f64());
    }

    /// Adds the time that a turn waited for a write.
    pub(crate) fn committed(&self, took: Duration) {
        self.lock().commits.add(took.as_secs_f64());
    }

    /// Counts a turn that blocks its thread.
    pub(crate) fn hung(&self) {
        self.lock().hung += 1;
    }

    /// Counts measurements that could not be exported.
    pub(crate) fn lost(&self) {
        self.lock().lost += 1;
    }

    /// Returns all counters, combined with the current state.
    pub(crate) fn snapshot(&self, standing: &CurrentGauges<'_>) -> MetricsSnapshot {
        let counts = self.lock();
        let mut families = counts.families();
        drop(counts);
        families.extend(standing.families());
        MetricsSnapshot { since: self.since, at: standing.at, families }
    }
}

/// The current state, read when a snapshot is requested.
pub(crate) struct CurrentGauges<'a> {
    pub(crate) at: Millis,
    /// Sessions that this worker runs.
    pub(crate) leases: usize,
    pub(crate) load: StoreLoad,
    /// Providers that are down.
    pub(crate) down: Vec<OutageView>,
    pub(crate) sinks: &'a [SinkView],
    pub(crate) syncs: Option<HistogramValue>,
}

// Counts stay far below the largest integer that a double represents exactly.
#[expect(clippy::cast_precision_loss)]
fn number(count: u64) -> f64 {
    count as f64
}

fn counter(
    name: &'static str,
    about: &'static str,
    unit: MetricUnit,
    readings: Vec<MetricSample<f64>>,
) -> MetricFamily {
    MetricFamily { name, description: about, unit, values: MetricValues::Counter(readings) }
}

fn gauge(name: &'static str, about: &'static str, readings: Vec<MetricSample<f64>>) -> MetricFamily {
    MetricFamily { name, description: about, unit: MetricUnit::Count, values: MetricValues::Gauge(readings) }
}

fn histogram(
    name: &'static str,
    about: &'static str,
    unit: MetricUnit,
    readings: Vec<MetricSample<HistogramValue>>,
) -> MetricFamily {
    MetricFamily { name, description: about, unit, values: MetricValues::Histogram(readings) }
}

fn alone<T>(value: T) -> Vec<MetricSample<T>> {
    vec![MetricSample { labels: Vec::new(), value }]
}

/// The labels of a model call.
fn of_chat(model: &str) -> Vec<(&'static str, String)> {
    let (provider, name) = model.split_once('/').unwrap_or((OTHER, model));
    vec![
        ("gen_ai.operation.name", "chat".to_owned()),
        ("gen_ai.provider.name", provider_name(provider).to_owned()),
        ("gen_ai.request.model", name.to_owned()),
    ]
}

fn with<T>(
    mut labels: Vec<(&'static str, String)>,
    name: &'static str,
    label: &str,
    value: T,
) -> MetricSample<T> {
    labels.push((name, label.to_owned()));
    MetricSample { labels, value }
}

impl WorkerCounters {
    fn families(&self) -> Vec<MetricFamily> {
        let outcomes = self.ended.iter();
        let outcomes =
            outcomes.map(|(end, count)| with(Vec::new(), "outcome", end, number(*count))).collect();
        let again = self.again.iter().map(|(what, count)| {
            let what = if *what == RetryKind::Model { "model" } else { "tool" };
            with(Vec::new(), "what", what, number(*count))
        });
        let mut families = vec![
            counter(
                "outlast.turns.accepted",
                "Accepted inputs",
                MetricUnit::Count,
                alone(number(self.accepted)),
            ),
            counter("outlast.turns.ended", "Turns that ended here, by outcome", MetricUnit::Count, outcomes),
            counter(
                "outlast.turns.hung",
                "Turns that blocked their threads",
                MetricUnit::Count,
                alone(number(self.hung)),
            ),
            counter("outlast.retries", "Attempts after the first", MetricUnit::Count, again.collect()),
        ];
        families.extend(self.of_models());
        families.extend(self.of_tools());
        families.extend([
            histogram(
                "outlast.commit.duration",
                "Time that turns waited for a write",
                MetricUnit::Seconds,
                alone(self.commits.clone()),
            ),
            histogram(
                "outlast.turn.phase.duration",
                "Time that turns spent in a phase",
                MetricUnit::Seconds,
                self.phases(),
            ),
            counter(
                "outlast.telemetry.lost",
                "Measurements that could not be exported",
                MetricUnit::Count,
                alone(number(self.lost)),
            ),
        ]);
        families
    }

    fn phases(&self) -> Vec<MetricSample<HistogramValue>> {
        let phases = self.phases.iter().map(|(phase, took)| (phase.name(), took));
        let all = phases.chain([("committing", &self.commits)]);
        all.map(|(phase, took)| with(Vec::new(), "phase", phase, took.clone())).collect()
    }

    fn of_models(&self) -> Vec<MetricFamily> {
        let (mut took, mut tokens, mut calls, mut cost) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (model, of) in &self.models {
            took.push(MetricSample { labels: of_chat(model), value: of.took.clone() });
            tokens.push(with(of_chat(model), "gen_ai.token.type", "input", of.input_tokens.clone()));
            tokens.push(with(of_chat(model), "gen_ai.token.type", "output", of.output_tokens.clone()));
            let ends = of
                .ends
                .iter()
                .map(|(end, count)| with(vec![("model", model.clone())], "outcome", end, number(*count)));
            calls.extend(ends);
            let dollars = of.cost.to_string().parse().unwrap_or_default();
            cost.push(with(Vec::new(), "model", model, dollars));
        }
        vec![
            histogram(
                "gen_ai.client.operation.duration",
                "Duration of model calls",
                MetricUnit::Seconds,
                took,
            ),
            histogram("gen_ai.client.token.usage", "Tokens of model calls", MetricUnit::Tokens, tokens),
            counter("outlast.model.calls", "Model calls, by outcome", MetricUnit::Count, calls),
            counter("outlast.model.tokens", "Tokens, by kind", MetricUnit::Tokens, self.tokens()),
            counter("outlast.model.cost", "Cost of model calls", MetricUnit::Dollars, cost),
        ]
    }

    fn tokens(&self) -> Vec<MetricSample<f64>> {
        let kinds = |(model, of): (&String, &ModelCounters)| {
            let Usage { input, cache_read, cache_write, output, reasoning } = of.usage;
            let kinds = [
                ("input", input),
                ("cache_read", cache_read),
                ("cache_write", cache_write),
                ("output", output),
                ("reasoning", reasoning),
            ];
            kinds.map(|(kind, count)| with(vec![("model", model.clone())], "kind", kind, number(count)))
        };
        self.models.iter().flat_map(kinds).collect()
    }

    fn of_tools(&self) -> Vec<MetricFamily> {
        let (mut took, mut calls) = (Vec::new(), Vec::new());
        for (tool, of) in &self.tools {
            took.push(MetricSample { labels: vec![("tool", tool.clone())], value: of.took.clone() });
            let ends = of.ends.iter();
            calls.extend(
                ends.map(|(end, count)| with(vec![("tool", tool.clone())], "outcome", end, number(*count))),
            );
        }
        vec![
            histogram("outlast.tool.duration", "Duration of tool calls", MetricUnit::Seconds, took),
            counter("outlast.tool.calls", "Tool calls, by outcome", MetricUnit::Count, calls),
        ]
    }
}

impl CurrentGauges<'_> {
    fn families(&self) -> Vec<MetricFamily> {
        let count = |count: usize| number(count.try_into().unwrap_or(u64::MAX));
        let of_sinks = |of: fn(&SinkView) -> u64| {
            self.sinks.iter().map(|sink| with(Vec::new(), "sink", &sink.name, number(of(sink)))).collect()
        };
        let last_ends = self.load.last_ends.iter();
        let last_ends =
            last_ends.map(|(end, sessions)| with(Vec::new(), "end", end.name(), count(*sessions))).collect();
        let mut families = vec![
            gauge("outlast.leases", "Sessions that this worker runs", alone(count(self.leases))),
            gauge(
                "outlast.sessions.ready",
                "Sessions that wait for a worker, counted up to 1000",
                alone(count(self.load.ready)),
            ),
            gauge(
                "outlast.sessions.running",
                "Sessions that any worker runs, counted up to 1000",
                alone(count(self.load.leased)),
            ),
            gauge(
                "outlast.turns.waiting_for_provider",
                "Turns that wait for a model provider, counted up to 1000",
                alone(count(self.load.provider_waits)),
            ),
            gauge(
                "outlast.provider.down",
                "Model providers that do not respond to this worker",
                self.down.iter().map(|outage| with(Vec::new(), "provider", &outage.provider, 1.0)).collect(),
            ),
            gauge(
                "outlast.sessions.held",
                "Sessions that are held back because workers died while their turns ran, counted up to 1000",
                alone(count(self.load.held)),
            ),
            gauge(
                "outlast.sessions.last_end",
                "Sessions whose last turn was not answered, by outcome, each counted up to 1000",
                last_ends,
            ),
            gauge(
                "outlast.payments.owed",
                "Payments that the payment authority has not confirmed yet, counted up to 1000",
                alone(count(self.load.pending_payments)),
            ),
            gauge(
                "outlast.sink.behind",
                "Records that a sink has not processed",
                of_sinks(|sink| sink.behind),
            ),
            gauge("outlast.sink.due", "Outputs that wait for delivery", of_sinks(|sink| sink.due)),
            gauge("outlast.sink.dead", "Outputs whose delivery was given up", of_sinks(|sink| sink.dead)),
        ];
        families.extend(self.syncs.clone().map(|syncs| {
            let about = "Time that the database took to make writes durable";
            histogram("outlast.sync.duration", about, MetricUnit::Seconds, alone(syncs))
        }));
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_metric_names_share_one_counter() {
        let metrics = WorkerMetrics::since(Millis(0));
        for n in 0..METRIC_NAMES * 3 {
            metrics.called(&format!("tool{n}"), Duration::ZERO, None);
        }
        let counts = metrics.lock();
        assert_eq!(counts.tools.len(), METRIC_NAMES + 1);
        assert_eq!(counts.tools[OTHER].took.count(), (METRIC_NAMES * 2) as u64);
    }
}
