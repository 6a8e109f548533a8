//! Converts the facts of a policy point to a Cedar context. Values are built one by one, so a model's text never
//! becomes an entity or an extension call.
use crate::source::invalid;
use cedar_policy::{Context, RestrictedExpression};
use outlast_vocab::Error;
use outlast_vocab::label::{Provenance, SinkArgument};
use outlast_vocab::policy::{PolicyFacts, PolicyPoint};
use serde_json::Value;

/// The number of decimals of a microdollar. Picodollars beyond it are cut off.
const MICRO_DECIMALS: usize = 6;

/// Returns the context of a request: everything except principal, action and resource.
pub(crate) fn of(facts: &PolicyFacts<'_>) -> Result<Context, Error> {
    let text = |text: String| RestrictedExpression::new_string(text);
    let mut pairs = vec![
        ("facts".to_owned(), expression(facts.value)?.unwrap_or_else(|| RestrictedExpression::new_set([]))),
        ("untrusted".to_owned(), RestrictedExpression::new_bool(!facts.labels.is_empty())),
        (
            "labels".to_owned(),
            RestrictedExpression::new_set(facts.labels.sources().map(|one| text(one.to_string()))),
        ),
    ];
    // Only a call has arguments. Rules see `provenance` only there, too.
    if facts.at == PolicyPoint::Tool {
        let trust = if facts.provenance.is_tainted() { "untrusted" } else { "trusted" };
        pairs.push(("provenance".to_owned(), text(trust.to_owned())));
        pairs.push(("sinks".to_owned(), sinks(facts.provenance)?));
    }
    if let Some(tool) = facts.tool {
        pairs.push(("tool".to_owned(), text(tool.to_string())));
    }
    if let Some(org) = facts.circumstances.org {
        pairs.push(("org".to_owned(), text(org.to_string())));
    }
    if let Some(micros) = facts.circumstances.spent.and_then(|spent| micros(&spent.to_string())) {
        pairs.push(("cost_micros".to_owned(), RestrictedExpression::new_long(micros)));
    }
    Context::from_pairs(pairs).map_err(|error| invalid(error.to_string()))
}

/// Returns the sink arguments of a call as a set of records, each with the origin of its value.
fn sinks(provenance: &Provenance) -> Result<RestrictedExpression, Error> {
    let record = |SinkArgument { path, origin }: &SinkArgument| {
        let fields = [("path", path.clone()), ("origin", origin.to_string())];
        let fields = fields.map(|(name, value)| (name.to_owned(), RestrictedExpression::new_string(value)));
        RestrictedExpression::new_record(fields).map_err(|error| invalid(error.to_string()))
    };
    let records = provenance.arguments().iter().map(record).collect::<Result<Vec<_>, Error>>()?;
    Ok(RestrictedExpression::new_set(records))
}

/// Converts a value; `None` if Cedar has no equivalent. A policy that uses it then fails, which denies.
fn expression(value: &Value) -> Result<Option<RestrictedExpression>, Error> {
    Ok(match value {
        Value::Null => None,
        Value::Bool(is) => Some(RestrictedExpression::new_bool(*is)),
        Value::String(text) => Some(RestrictedExpression::new_string(text.clone())),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(RestrictedExpression::new_long(whole)),
            None => decimal(&number.to_string()).map(RestrictedExpression::new_decimal),
        },
        Value::Array(values) => {
            let values = values.iter().map(expression).collect::<Result<Vec<_>, Error>>()?;
            Some(RestrictedExpression::new_set(values.into_iter().flatten()))
        }
        Value::Object(members) => {
            let mut fields = Vec::new();
            for (name, value) in members {
                fields.extend(expression(value)?.map(|value| (name.clone(), value)));
            }
            let record = RestrictedExpression::new_record(fields);
            Some(record.map_err(|error| invalid(error.to_string()))?)
        }
    })
}

/// Returns a number with one to four decimals, which Cedar's decimals support.
fn decimal(number: &str) -> Option<String> {
    let (_, decimals) = number.split_once('.')?;
    ((1..=4).contains(&decimals.len()) && decimals.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| number.to_owned())
}

/// Converts a decimal to whole millionths.
fn micros(dollars: &str) -> Option<i64> {
    let (whole, decimals) = dollars.split_once('.').unwrap_or((dollars, ""));
    let mut digits: String = decimals.chars().take(MICRO_DECIMALS).collect();
    while digits.len() < MICRO_DECIMALS {
        digits.push('0');
    }
    format!("{whole}{digits}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_in_millionths_of_a_dollar() {
        for (dollars, found) in [("0", 0), ("1.5", 1_500_000), ("0.000001", 1), ("0.0000019", 1)] {
            assert_eq!(micros(dollars), Some(found), "{dollars}");
        }
    }
}
