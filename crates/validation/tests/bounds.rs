//! Tests that schemas and values with excessive work are refused quickly, and usual ones are not.
use outlast_validation::{Schema, SchemaError, SchemaVerdict};
use outlast_vocab::Kind;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// More time than any of these tests takes on a loaded machine in a debug build.
const SOON: Duration = Duration::from_secs(20);

/// Creates a chain of definitions, each built from the next one. The last has a type.
fn chain(levels: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        defs.insert(format!("d{level}"), link(json!({ "$ref": format!("#/$defs/d{}", level + 1) })));
    }
    defs.insert(format!("d{levels}"), json!({ "type": ["object", "array", "string"] }));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

#[track_caller]
fn refused(schema: &Value) -> String {
    let began = Instant::now();
    let error = Schema::new(schema).expect_err("the schema is refused");
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
    error.to_string()
}

#[test]
fn doubling_schemas_are_refused() {
    let all = |next: Value| json!({ "allOf": [next.clone(), next] });
    let schema = chain(39, all);
    assert!(schema.to_string().len() < 2_900);
    assert_eq!(
        refused(&schema),
        "schema_size is limited to 20000, but with its references written out this needs 2199023255550"
    );
    for combination in ["anyOf", "oneOf"] {
        refused(&chain(39, |next| json!({ combination: [next.clone(), next] })));
    }
    refused(&chain(30, |next| json!({ "if": next, "then": next, "else": next, "not": next })));
    refused(&chain(39, |next| json!({ "dependentSchemas": { "a": next, "b": next } })));
    refused(&chain(39, |next| json!({ "properties": { "a": next, "b": next } })));
    refused(&chain(39, |next| json!({ "prefixItems": [next, next] })));
    refused(&chain(20, |next| json!({ "unevaluatedProperties": false, "allOf": [next, next] })));
    let saturated = refused(&chain(60, |next| json!({ "allOf": [next, next, next, next] })));
    assert!(saturated.ends_with("needs more than can be counted"), "{saturated}");
}

#[test]
fn references_that_do_not_descend_are_refused() {
    refused(&json!({ "$ref": "#" }));
    refused(&json!({ "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] }));
    let schema = json!({ "$ref": "#/$defs/a", "$defs": {
        "a": { "allOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } } });
    assert_eq!(refused(&schema), "a `$ref` leads back to its own schema for the same value");
    assert_eq!(
        refused(&chain(150, |next| next)),
        "schema_nesting is limited to 128, but with its references written out this needs 152"
    );
    assert_eq!(
        refused(&json!({ "$ref": "#/$defs/gone" })),
        "the reference `#/$defs/gone` points to nothing in the schema"
    );
    refused(&json!({ "$ref": "https://example.com/schema" }));
}

#[test]
fn patterns_that_grow_are_refused() {
    refused(&json!({ "pattern": "(?:(?:a{1,100}){1,100}){1,100}" }));
    refused(&json!({ "patternProperties": { "(?:(?:(?=a)x{100}){100}){100}": true } }));
    let many: Vec<Value> = (0..500).map(|at| json!({ "pattern": format!("^[a-z]{{1,900}}{at}$") })).collect();
    refused(&json!({ "anyOf": many }));
}

#[test]
fn embedded_resources_are_bounded() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let defs: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| {
            let all: serde_json::Map<String, Value> =
                names.iter().map(|to| ((*to).to_owned(), json!({ "$ref": to }))).collect();
            ((*name).to_owned(), json!({ "$id": name, "$dynamicAnchor": "T", "properties": all }))
        })
        .collect();
    refused(&json!({ "$id": "https://example.com/root", "$ref": "a", "$defs": defs }));
}

/// Refused only for this value, because the small schema recurses twice at each level of the value.
#[test]
fn doubling_recursion_is_refused_by_value() {
    let schema = json!({
        "properties": { "a": { "$ref": "#" } },
        "allOf": [{ "properties": { "a": { "$ref": "#" } } }]
    });
    let schema = Schema::new(&schema).unwrap();
    let deep = (0..60).fold(json!(1), |value, _| json!({ "a": value }));
    let began = Instant::now();
    let error = schema.check(&deep).unwrap_err();
    assert!(began.elapsed() < SOON);
    assert_eq!(error.kind(), Kind::LimitExceeded);
    assert_eq!(
        error.detail(),
        "validation_steps is limited to 10000000, but validating this value against its schema may need more; \
         simplify the schema or shorten the value"
    );
    assert_eq!(schema.check(&json!({ "a": { "a": {} } })).unwrap(), SchemaVerdict::Valid);
}

/// Returns a schema whose `$ref` leads to the definition `x` with 2^39 steps, beside other definitions.
fn hidden(reference: &str, x: &Value, others: &Value) -> Value {
    let mut bomb = chain(39, |next| json!({ "allOf": [next, next] }));
    for (name, value) in x.as_object().unwrap() {
        bomb[name.as_str()] = value.clone();
    }
    let mut schema = json!({ "allOf": [{ "$ref": reference }], "$defs": { "x": bomb } });
    for (name, value) in others.as_object().unwrap() {
        schema["$defs"][name.as_str()] = value.clone();
    }
    schema
}

// Regression: a reference that looked built in, or had a decoy with a similar name, was not measured.
#[test]
fn schemas_behind_disguised_names_are_measured() {
    let decoy = json!({ "y": { "$id": "http://other/host" } });
    let id = |id: &str| json!({ "$id": id });
    for schema in [
        hidden("https://json-schema.org/x", &id("https://json-schema.org/x"), &json!({})),
        hidden("HTTPS://JSON-SCHEMA.ORG/x", &id("https://json-schema.org/x"), &json!({})),
        hidden("https://json-schema.org/x", &id("https://json%2Dschema.org/x"), &json!({})),
        hidden("http://host", &id("HTTP://HOST"), &decoy),
        hidden("http://host", &id("http://host:"), &decoy),
        hidden("http://host", &id("http://host/"), &decoy),
        hidden("urn:host", &id("urn:host"), &decoy),
    ] {
        assert!(refused(&schema).starts_with("schema_size"), "{schema}");
    }
    let relative = json!({ "$id": "urn:a", "allOf": [{ "$ref": "host" }],
        "$defs": { "x": hidden("", &id("urn:host"), &json!({}))["$defs"]["x"], "y": decoy["y"] } });
    refused(&relative);
}

// Regression: names and indices were decoded in another way than by the validator, and led to a decoy.
#[test]
fn anchors_and_indices_are_read_like_the_validator() {
    let mut defs = serde_json::Map::new();
    for level in 0..39 {
        let next = json!({ "$ref": format!("#/definitions/d{}", level + 1) });
        defs.insert(format!("d{level}"), json!({ "allOf": [next, next] }));
    }
    defs.insert("d39".to_owned(), json!({ "type": "string" }));
    defs.insert("x".to_owned(), json!({ "$id": "#a%62", "allOf": [{ "$ref": "#/definitions/d0" }] }));
    defs.insert("y".to_owned(), json!({ "$id": "#ab" }));
    let mut schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [{ "$ref": "#a%62" }], "definitions": defs });
    assert!(refused(&schema).starts_with("schema_size"));
    schema["allOf"] = json!([{ "$ref": "#/list/01" }]);
    schema["list"] = json!([true, { "$ref": "#/definitions/d0" }]);
    schema["definitions"]["y"] = json!({ "$id": "decoy", "list": { "01": true } });
    assert!(refused(&schema).starts_with("schema_size"));
    assert_eq!(refused(&json!({ "$ref": "a#b#c" })), "the reference `a#b#c` has two fragments");
}

// Regression: the validator hashes lists without their ends, and compared each of these with every other.
#[test]
fn unique_items_are_checked_in_linear_time() {
    let list = |bits: u32| {
        let more =
            (0..12).fold(
                json!([]),
                |list, bit| if bits >> bit & 1 == 1 { json!([list]) } else { json!([list, []]) },
            );
        let mut values = vec![json!(1); 200];
        values.push(more);
        json!(values)
    };
    let mut values: Vec<Value> = (0..1_500).map(list).collect();
    let schema = Schema::new(&json!({ "uniqueItems": true })).unwrap();
    let began = Instant::now();
    assert_eq!(schema.check(&json!(values)).unwrap(), SchemaVerdict::Valid);
    values.push(list(7));
    let errors = ["at the root: elements must be unique, but those at 7 and 1500 are equal".to_owned()];
    assert_eq!(schema.check(&json!(values)).unwrap(), SchemaVerdict::Errors(errors.to_vec()));
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
    let is_unique = |values: Value| schema.check(&values).unwrap() == SchemaVerdict::Valid;
    assert!(!is_unique(json!([1, "1", 1.0])) && is_unique(json!([1, "1", true, [1], null])));
    assert!(!is_unique(json!([{ "a": 1, "b": [2] }, { "b": [2], "a": 1 }])));
    assert!(is_unique(json!((0..50_000).map(|id| json!({ "id": id })).collect::<Vec<_>>())));
    let any = Schema::new(&json!({ "uniqueItems": false })).unwrap();
    assert_eq!(any.check(&json!([1, 1])).unwrap(), SchemaVerdict::Valid);
}

#[test]
fn backtracking_is_bounded() {
    let schema = Schema::new(&json!({ "items": { "pattern": "^(?=(a+)+$)(a|aa)+\\1b$" } })).unwrap();
    let began = Instant::now();
    let found = schema.check(&json!(["a".repeat(40)]));
    assert!(began.elapsed() < SOON, "took {:?}", began.elapsed());
    assert!(!matches!(found, Ok(SchemaVerdict::Valid)));
    let many: Vec<String> = (0..1_000).map(|_| "a".repeat(100)).collect();
    assert_eq!(schema.check(&json!(many)).unwrap_err().kind(), Kind::LimitExceeded);
}

#[test]
fn patterns_in_values_are_not_compiled() {
    let schema =
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "items": { "format": "regex" } });
    let values: Vec<&str> = (0..5_000).map(|_| "((a{1,100}){1,100}){1,50}").collect();
    let began = Instant::now();
    assert_eq!(Schema::new(&schema).unwrap().check(&json!(values)).unwrap(), SchemaVerdict::Valid);
    assert!(began.elapsed() < SOON);
}

#[test]
fn recursive_schemas_are_accepted() {
    let kinds: Vec<String> = (0..30).map(|kind| format!("k{kind}")).collect();
    let any: Vec<Value> = kinds.iter().map(|kind| json!({ "$ref": format!("#/$defs/{kind}") })).collect();
    let mut defs: serde_json::Map<String, Value> = kinds
        .iter()
        .map(|kind| {
            let node = json!({ "type": "object", "required": ["kind"], "properties": {
                "kind": { "const": kind }, "left": { "$ref": "#/$defs/any" }, "right": { "$ref": "#/$defs/any" },
                "more": { "type": "array", "items": { "$ref": "#/$defs/any" } } } });
            (kind.clone(), node)
        })
        .collect();
    defs.insert("any".to_owned(), json!({ "anyOf": any }));
    let schema = Schema::new(&json!({ "$ref": "#/$defs/any", "$defs": defs })).unwrap();
    let leaf = json!({ "kind": "k7" });
    let tree = json!({ "kind": "k29", "left": leaf, "more": [leaf, { "kind": "k3", "right": leaf }] });
    assert_eq!(schema.check(&tree).unwrap(), SchemaVerdict::Valid);
    let wrong = json!({ "kind": "k29", "left": { "kind": "none" } });
    assert!(matches!(schema.check(&wrong).unwrap(), SchemaVerdict::Errors(errors) if errors.len() == 1));
}

#[test]
fn common_schemas_are_accepted() {
    for schema in [
        json!(true),
        json!({ "type": "object", "properties": { "id": { "type": "string", "pattern": "^(?!.*\\.\\.)[a-z.]+$" } } }),
        json!({ "$schema": "http://json-schema.org/draft-04/schema#", "id": "https://example.com/x#",
                "definitions": { "n": { "type": "number", "exclusiveMinimum": true, "minimum": 0 } },
                "items": [{ "$ref": "#/definitions/n" }], "additionalItems": false }),
        json!({ "type": "object", "properties": { "node": { "$id": "T0", "type": "object", "properties": {
                "nodes": { "type": "array", "items": { "$ref": "T0" } } } } } }),
        json!({ "$defs": { "a/b": { "$anchor": "here", "type": "string" } },
                "properties": { "x": { "$ref": "#/$defs/a~1b" }, "y": { "$ref": "#/%24defs/a~1b" }, "z": { "$ref": "#here" } } }),
        json!({ "properties": { "schema": { "$ref": "https://json-schema.org/draft/2020-12/schema" } } }),
    ] {
        let taken = Schema::new(&schema);
        assert!(taken.is_ok(), "{schema}: {:?}", taken.err());
    }
    assert_eq!(
        Schema::new(&json!({ "type": "any" })).unwrap_err(),
        SchemaError::Invalid(
            "\"any\" is not valid under any of the schemas listed in the 'anyOf' keyword".to_owned()
        )
    );
}

#[test]
fn large_values_of_common_schemas_are_validated() {
    let schema = Schema::new(&json!({ "type": "array", "items": { "type": "object", "required": ["name", "age"],
        "additionalProperties": false, "properties": {
            "name": { "type": "string", "pattern": "^[A-Z][a-z]+$", "maxLength": 100 },
            "age": { "type": "integer", "minimum": 0 }, "tags": { "items": { "enum": ["a", "b"] }, "uniqueItems": true } } } }))
    .unwrap();
    let values: Vec<Value> =
        (0..20_000).map(|age| json!({ "name": "Ann", "age": age, "tags": ["a", "b"] })).collect();
    let values = json!(values);
    assert!(!schema.is_quick_for(&values));
    assert!(schema.is_quick_for(&values[0]));
    assert!(schema.is_quick_for(&json!([values[0]])));
    assert_eq!(schema.check(&values).unwrap(), SchemaVerdict::Valid);
}
