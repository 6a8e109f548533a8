//! Converts JSON Schemas for the strict modes of APIs.
//!
//! A strict mode supports few keywords and requires every property. Unsupported keywords are dropped if that only
//! widens what the model may answer, because the runtime validates the answer against the full schema anyway. If the
//! strict form would have another meaning, there is no conversion.
use serde_json::{Map, Value, json};

/// The maximum nesting.
const DEPTH: usize = 32;

/// The formats that strict modes support.
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Keywords that only narrow the schema and that strict modes reject.
const NARROWING_KEYWORDS: [&str; 16] = [
    "minLength",
    "maxLength",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contains",
    "minContains",
    "maxContains",
    "contentEncoding",
    "contentMediaType",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
];

/// Keywords that a strict mode cannot express.
const UNSUPPORTED_KEYWORDS: [&str; 13] = [
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "prefixItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
];

/// Keywords that define the type of a value.
const TYPE_KEYWORDS: [&str; 8] = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties"];

/// The strict mode of an API.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrictMode {
    /// Every property is required; numbers and lengths of lists may have limits.
    OpenAi,
    /// Properties may be optional; limits are not supported.
    Anthropic,
}

impl StrictMode {
    /// Converts a schema for the mode, if possible.
    pub(crate) fn convert(self, schema: &Value) -> Option<Value> {
        if schema.get("type") != Some(&json!("object")) {
            return None;
        }
        self.convert_part(schema, DEPTH)
    }

    fn convert_part(self, schema: &Value, depth: usize) -> Option<Value> {
        let Value::Object(members) = schema else { return None };
        let depth = depth.checked_sub(1)?;
        let anything = !TYPE_KEYWORDS.iter().any(|key| members.contains_key(*key));
        if anything || UNSUPPORTED_KEYWORDS.iter().any(|key| members.contains_key(*key)) {
            return None;
        }
        let mut strict = Map::new();
        for (key, value) in members {
            match key.as_str() {
                "$schema" | "$id" | "title" => {}
                key if NARROWING_KEYWORDS.contains(&key) => {}
                "format" if !value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {}
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
                | "minItems" | "maxItems" | "pattern"
                    if self == Self::Anthropic => {}
                "properties" | "$defs" | "definitions" => {
                    strict.insert(key.clone(), self.convert_all(value, depth)?);
                }
                "items" => drop(strict.insert(key.clone(), self.convert_part(value, depth)?)),
                "anyOf" | "oneOf" => {
                    let parts = value.as_array()?.iter().map(|part| self.convert_part(part, depth));
                    strict.insert("anyOf".to_owned(), parts.collect::<Option<_>>()?);
                }
                "additionalProperties" if *value != json!(false) && members.contains_key("properties") => {}
                "additionalProperties" if *value != json!(false) => return None,
                "required" => {}
                _ => drop(strict.insert(key.clone(), value.clone())),
            }
        }
        if is_object(members) {
            self.convert_object(members, &mut strict)?;
        }
        Some(Value::Object(strict))
    }

    fn convert_all(self, parts: &Value, depth: usize) -> Option<Value> {
        let parts = parts.as_object()?.iter();
        parts
            .map(|(name, part)| Some((name.clone(), self.convert_part(part, depth)?)))
            .collect::<Option<_>>()
            .map(Value::Object)
    }

    /// Converts an object, without additional properties.
    fn convert_object(self, members: &Map<String, Value>, strict: &mut Map<String, Value>) -> Option<()> {
        let none = Map::new();
        let properties = members.get("properties").map_or(Some(&none), Value::as_object)?;
        let required: Vec<&str> = match members.get("required") {
            Some(required) => required.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        if self == Self::OpenAi {
            let left_out =
                |(name, part): (&String, &Value)| !required.contains(&name.as_str()) && !allows_null(part);
            if properties.iter().any(left_out) {
                return None;
            }
        }
        let required: Vec<&str> = match self {
            Self::OpenAi => properties.keys().map(String::as_str).collect(),
            Self::Anthropic => required,
        };
        strict.insert("required".to_owned(), json!(required));
        strict.insert("additionalProperties".to_owned(), json!(false));
        Some(())
    }
}

/// Returns the schema without metadata about its origin, which every API accepts.
pub(crate) fn without_metadata(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(members) = &mut schema {
        members.remove("$schema");
        members.remove("$id");
        if members.is_empty() {
            return json!({ "type": "object", "properties": {} });
        }
        if is_object(members) {
            members.entry("properties").or_insert_with(|| json!({}));
        }
    }
    schema
}

/// Adds a type to every schema that allows anything. Servers that convert schemas to a grammar need it.
pub(crate) fn with_types(schema: &Value) -> Value {
    let mut schema = without_metadata(schema);
    add_types(&mut schema, DEPTH);
    schema
}

fn add_types(schema: &mut Value, depth: usize) {
    const ANYTHING: [&str; 6] = ["string", "number", "boolean", "object", "array", "null"];
    if *schema == json!(true) {
        *schema = json!({});
    }
    let (Value::Object(members), Some(depth)) = (schema, depth.checked_sub(1)) else { return };
    if !TYPE_KEYWORDS.iter().any(|key| members.contains_key(*key)) {
        members.insert("type".to_owned(), json!(ANYTHING));
    }
    for (key, value) in members {
        match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(parts)) => {
                parts.values_mut().for_each(|part| add_types(part, depth));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(parts)) => {
                for part in parts {
                    add_types(part, depth);
                }
            }
            ("items" | "additionalProperties", part @ Value::Object(_)) => add_types(part, depth),
            _ => {}
        }
    }
}

/// Returns the instructions for the model if the API cannot enforce the schema.
pub(crate) fn schema_instructions(schema: &Value) -> String {
    format!(
        "Answer with one JSON value and nothing else: no words before or after it, no code fence. It must fit this \
         JSON Schema:\n{schema}"
    )
}

fn is_object(members: &Map<String, Value>) -> bool {
    match members.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    }
}

fn allows_null(schema: &Value) -> bool {
    let null = json!("null");
    schema["type"] == null
        || schema["type"].as_array().is_some_and(|kinds| kinds.contains(&null))
        || schema["enum"].as_array().is_some_and(|values| values.contains(&Value::Null))
        || ["anyOf", "oneOf"]
            .iter()
            .any(|key| schema[key].as_array().is_some_and(|parts| parts.iter().any(allows_null)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(strict: StrictMode, schema: &Value, want: Option<&Value>) {
        assert_eq!(strict.convert(schema).as_ref(), want);
    }

    #[test]
    fn derived_schema_becomes_strict() {
        let derived = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Order",
            "type": "object",
            "properties": {
                "count": { "type": "integer", "format": "uint32", "minimum": 0 },
                "note": { "type": ["string", "null"], "maxLength": 3 },
                "kind": { "oneOf": [{ "const": "a", "type": "string" }, { "const": "b", "type": "string" }] },
            },
            "required": ["count", "kind"],
        });
        let strict = |required: &Value, count: &Value| {
            json!({
                "type": "object",
                "properties": {
                    "count": count,
                    "note": { "type": ["string", "null"] },
                    "kind": { "anyOf": [{ "const": "a", "type": "string" }, { "const": "b", "type": "string" }] },
                },
                "required": required,
                "additionalProperties": false,
            })
        };
        let all = json!(["count", "kind", "note"]);
        check(StrictMode::OpenAi, &derived, Some(&strict(&all, &json!({ "type": "integer", "minimum": 0 }))));
        let some = json!(["count", "kind"]);
        check(StrictMode::Anthropic, &derived, Some(&strict(&some, &json!({ "type": "integer" }))));
    }

    #[test]
    fn untyped_schemas_list_every_type() {
        let any = json!(["string", "number", "boolean", "object", "array", "null"]);
        assert_eq!(
            with_types(&json!({
                "$schema": "s",
                "type": "object",
                "properties": { "a": { "description": "d" }, "b": true, "c": { "type": "array", "items": {} }, "d": { "type": "string" } },
            })),
            json!({
                "type": "object",
                "properties": {
                    "a": { "description": "d", "type": any },
                    "b": { "type": any },
                    "c": { "type": "array", "items": { "type": any } },
                    "d": { "type": "string" },
                },
            })
        );
    }

    #[test]
    fn schema_without_equivalent_strict_form_has_none() {
        let wrap = |part: Value| json!({ "type": "object", "properties": { "a": part }, "required": ["a"] });
        for schema in [
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({ "type": "object", "properties": { "a": { "type": "string" } } }),
            wrap(json!({})),
            wrap(json!(true)),
            wrap(json!({ "type": "object", "additionalProperties": { "type": "string" } })),
            wrap(json!({ "allOf": [{ "type": "string" }], "type": "string" })),
        ] {
            check(StrictMode::OpenAi, &schema, None);
        }
    }
}
