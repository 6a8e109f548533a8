//! Canonical JSON: one spelling per value, so that equal requests have equal fingerprints.
//!
//! Implements RFC 8785 (keys sorted by UTF-16 code units, its escapes, its number format) with one change:
//! integers are written exactly. The RFC converts integers above 2^53 to doubles, so two different calls
//! would share a fingerprint. `tests/properties/canonical.rs` contains the examples of the RFC and the
//! differences.
use crate::Hash;
use serde::Serialize;
use serde_json::{Map, Number, Value};
use std::fmt::Write;

/// Returns the hash of a value's canonical JSON.
///
/// # Panics
/// Panics if the value is not plain data (a map with keys that are not strings).
pub fn fingerprint(value: &impl Serialize) -> Hash {
    Hash::of(to_string(value).as_bytes())
}

/// Returns a value's canonical JSON.
///
/// # Panics
/// Panics if the value is not plain data (a map with keys that are not strings).
pub fn to_string(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("what is fingerprinted is plain data");
    let mut out = String::with_capacity(256);
    write_value(&mut out, &value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => write_object(out, members),
    }
}

fn write_object(out: &mut String, members: &Map<String, Value>) {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    out.push('{');
    for (i, (name, value)) in sorted.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_text(out, name);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32).expect("a String takes every write"),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_number(out: &mut String, number: &Number) {
    let spelled = number.to_string();
    if number.is_f64() { write_double(out, &spelled) } else { out.push_str(&spelled) }
}

/// Writes a number like ECMAScript's `Number::toString`: the shortest digits that read back as the same
/// number, with an exponent from 1e21 up and below 1e-6. The digits come from `serde_json`. If two candidates
/// are equally short and near, it takes the even one, like the RFC and unlike Rust's own formatting.
fn write_double(out: &mut String, spelled: &str) {
    let magnitude = spelled.trim_start_matches('-');
    let (mantissa, exponent) = magnitude.split_once('e').unwrap_or((magnitude, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let leading_zeros = count(whole) + count(fraction) - count(digits);
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        out.push('0');
        return;
    }
    if spelled.starts_with('-') {
        out.push('-');
    }
    let exponent: i32 = exponent.parse().expect("a double has a whole exponent");
    // The decimal point comes after `point` digits.
    let point = count(whole) + exponent - leading_zeros;
    let (count, exponent) = (count(digits), point - 1);
    match point {
        1..=21 if count <= point => {
            out.push_str(digits);
            out.extend(std::iter::repeat_n('0', usize::try_from(point - count).unwrap_or(0)));
        }
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            out.push_str(whole);
            out.push('.');
            out.push_str(fraction);
        }
        -5..=0 => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', point.unsigned_abs() as usize));
            out.push_str(digits);
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            out.push_str(first);
            if !rest.is_empty() {
                out.push('.');
                out.push_str(rest);
            }
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(out, "e{sign}{}", exponent.unsigned_abs()).expect("a String takes every write");
        }
    }
}

fn count(digits: &str) -> i32 {
    i32::try_from(digits.len()).expect("a double has few digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_ignores_key_order_but_covers_keys() {
        let one = serde_json::json!({"a": 1, "b": 2});
        let other: Value = serde_json::from_str(r#"{"b":2,"a":1}"#).unwrap();
        assert_eq!(fingerprint(&one), fingerprint(&other));
        assert_ne!(fingerprint(&one), fingerprint(&serde_json::json!({"a": 1, "b": 2, "c": null})));
    }
}
