//! Canonical JSON: one spelling per value, so that equal requests have equal fingerprints.
//!
//! RFC 8785 (key order by UTF-16 code units, its escapes, its number format) with one change: integers are written
//! exactly. The RFC folds those above 2^53 into doubles, so two different calls would share a fingerprint.
use crate::Hash;
use serde::Serialize;
use serde_json::{Map, Number, Value};
use std::fmt::Write;

/// The hash of a value's canonical JSON.
///
/// # Panics
/// If the value is not plain data (a map with keys that are not strings).
pub fn fingerprint(value: &impl Serialize) -> Hash {
    Hash::of(to_string(value).as_bytes())
}

/// A value's canonical JSON.
///
/// # Panics
/// If the value is not plain data (a map with keys that are not strings).
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
    match number.as_f64() {
        Some(float) if number.is_f64() => write_float(out, float),
        _ => write!(out, "{number}").expect("a String takes every write"),
    }
}

/// ECMAScript's `Number::toString`: shortest digits that read back, exponent from 1e21 up and below 1e-6.
fn write_float(out: &mut String, float: f64) {
    if float == 0.0 {
        out.push('0');
        return;
    }
    if float < 0.0 {
        out.push('-');
    }
    let shortest = format!("{:e}", float.abs());
    let (mantissa, exponent) = shortest.split_once('e').expect("`{:e}` writes an exponent");
    let digits = mantissa.replace('.', "");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a whole exponent");
    let count = i32::try_from(digits.len()).expect("a double has at most 17 digits");
    // The decimal point stands after `point` digits.
    let point = exponent + 1;
    match point {
        1..=21 if count <= point => {
            out.push_str(&digits);
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
            out.push_str(&digits);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, want: &str) {
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(to_string(&value), want);
    }

    #[test]
    fn numbers_are_spelled_as_rfc_8785_spells_them() {
        check(
            "[333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001, -0.0, 1e21, 1e20, 123456.75, 1e-7]",
            "[333333333.3333333,1e+30,4.5,0.002,1e-27,0,1e+21,100000000000000000000,123456.75,1e-7]",
        );
    }

    #[test]
    fn integers_above_two_to_the_53_stay_apart() {
        check(
            "[9007199254740993, 18446744073709551615, -9223372036854775808]",
            "[9007199254740993,18446744073709551615,-9223372036854775808]",
        );
    }

    #[test]
    fn keys_are_sorted_by_utf_16_code_units() {
        check(
            "{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}",
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
        );
    }

    #[test]
    fn text_is_escaped_only_where_json_demands_it() {
        check(r#""\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/""#, "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"");
    }

    #[test]
    fn key_order_does_not_change_a_fingerprint_but_every_key_counts() {
        let one = serde_json::json!({"a": 1, "b": 2});
        let other: Value = serde_json::from_str(r#"{"b":2,"a":1}"#).unwrap();
        assert_eq!(fingerprint(&one), fingerprint(&other));
        assert_ne!(fingerprint(&one), fingerprint(&serde_json::json!({"a": 1, "b": 2, "c": null})));
    }
}
