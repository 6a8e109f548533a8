//! Strict JSON parsing: no duplicate members, a maximum depth, and no arrays in place of objects.
use outlast_vocab::{Error, Kind, Limits, limits};
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::fmt;

/// Parses a body. The error names the position of what is wrong.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let value = value(bytes)?;
    // A derived `Deserialize` would accept an array as an object, with its items in the order of the members.
    if value.is_array() {
        return Err(wrong("the body is invalid: expected an object, got an array".to_owned()));
    }
    serde_path_to_error::deserialize(value).map_err(|cause| {
        let place = cause.path().to_string();
        wrong(format!("the body is invalid at `{place}`: {}", cause.inner()))
    })
}

/// Parses a body that may be any JSON value.
pub fn value(bytes: &[u8]) -> Result<Value, Error> {
    let UniqueMemberJson(value) = serde_json::from_slice(bytes)
        .map_err(|cause| wrong(format!("the body is not valid JSON: {cause}")))?;
    limits::check_depth("json_depth", &value, Limits::default().json_depth)?;
    Ok(value)
}

fn wrong(detail: String) -> Error {
    Error::new(Kind::InputInvalid, detail)
}

/// A JSON value whose objects have no duplicate members. With duplicates, two parsers could read different
/// values.
struct UniqueMemberJson(Value);

impl<'de> Deserialize<'de> for UniqueMemberJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueMemberVisitor).map(UniqueMemberJson)
    }
}

struct UniqueMemberVisitor;

impl<'de> Visitor<'de> for UniqueMemberVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(UniqueMemberJson(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(serde::de::Error::custom(format!("the member `{name}` appears twice")));
            }
            let UniqueMemberJson(value) = members.next_value()?;
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn refused(body: &str) -> String {
        value(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn duplicate_member_is_rejected_at_any_depth() {
        assert_eq!(
            refused(r#"{"a": [{"b": 1, "b": 2}]}"#),
            "input.invalid: the body is not valid JSON: the member `b` appears twice at line 1 column 19"
        );
        assert_eq!(value(br#"{"a": {"a": 1}}"#).unwrap()["a"]["a"], 1);
    }

    #[test]
    fn deeply_nested_body_is_rejected() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(value(nested(64).as_bytes()).is_ok());
        assert_eq!(refused(&nested(65)), "limit.exceeded: json_depth is limited to 64, but this needs 65");
        assert!(
            refused(&nested(10_000))
                .starts_with("input.invalid: the body is not valid JSON: recursion limit")
        );
    }

    #[test]
    fn type_mismatch_is_reported_with_its_path() {
        let wrong = read::<BTreeMap<String, Vec<u8>>>(br#"{"a": [1], "b": [1, "x"]}"#);
        assert_eq!(
            wrong.unwrap_err().detail(),
            "the body is invalid at `b[1]`: invalid type: string \"x\", expected u8"
        );
    }
}
