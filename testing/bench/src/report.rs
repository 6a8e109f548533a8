//! The results of one run: as a table for people, and as JSON with stable names.
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The measurements so far.
#[derive(Default)]
pub(crate) struct BenchReport {
    values: Map<String, Value>,
    rows: Vec<BenchReportRow>,
}

struct BenchReportRow {
    measurement_name: &'static str,
    measured_value: String,
    target: String,
    met: Option<bool>,
}

impl BenchReport {
    /// Stores a value under its JSON name; a dot creates a group.
    pub(crate) fn put(&mut self, name: &str, value: impl Into<Value>) {
        match name.split_once('.') {
            Some((group, name)) => {
                let group = self.values.entry(group).or_insert_with(|| json!({}));
                group[name] = value.into();
            }
            None => drop(self.values.insert(name.to_owned(), value.into())),
        }
    }

    /// Returns a stored value.
    pub(crate) fn get(&self, name: &str) -> f64 {
        let value = match name.split_once('.') {
            Some((group, name)) => self.values.get(group).and_then(|group| group.get(name)),
            None => self.values.get(name),
        };
        value.and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// Adds a row without a target.
    pub(crate) fn add_plain_row(&mut self, what: &'static str, found: String) {
        self.rows.push(BenchReportRow {
            measurement_name: what,
            measured_value: found,
            target: String::new(),
            met: None,
        });
    }

    /// Adds a row with a target.
    pub(crate) fn judge(&mut self, what: &'static str, found: String, target: String, met: bool) {
        self.rows.push(BenchReportRow {
            measurement_name: what,
            measured_value: found,
            target,
            met: Some(met),
        });
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> String {
        let mut out = String::from("| what | measured | target | |\n|---|---|---|---|\n");
        for BenchReportRow { measurement_name: what, measured_value: found, target, met } in &self.rows {
            let mark = met.map_or("", |met| if met { "met" } else { "MISSED" });
            writeln!(out, "| {what} | {found} | {target} | {mark} |").expect("a String takes every write");
        }
        out
    }

    /// Returns the JSON.
    pub(crate) fn json(&self) -> String {
        format!("{:#}\n", Value::Object(self.values.clone()))
    }
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the 99th percentile.
pub(crate) fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or(f64::NAN)
}
