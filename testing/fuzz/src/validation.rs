//! JSON Schemas from callers, and values that are validated against them.
use outlast_validation::{Schema, expanded_size};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Longer than validation within the limits takes, on a loaded machine without optimization.
const VALIDATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The stack size of a validation in bytes.
const STACK_BYTES: usize = 64 << 20;

/// The number of definitions of a generated schema.
const DEFINITIONS: u8 = 8;

/// The pieces of generated patterns.
const PIECES: [&str; 12] = ["a", "(a|b)", "{1,50}", "+", "(", ")", "(?=a)", "\\1", "[a-z]", "{3}", "^", "*"];

/// Reads text as a schema on the first line and a value after it. Other bytes choose the keywords of a schema and the
/// parts of a value. In any case the result comes soon: the schema is rejected, the value is rejected, or it is valid.
pub(crate) fn validation(data: &[u8]) {
    let (schema, value) = match str::from_utf8(data).ok().filter(|text| text.starts_with('{')) {
        Some(text) => {
            let (schema, value) = text.split_once('\n').unwrap_or((text, "null"));
            let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
            (schema, serde_json::from_str::<Value>(value).unwrap_or_default())
        }
        None => GenerationBytes(data).pair(),
    };
    let began = Instant::now();
    if let Ok(taken) = Schema::new(&schema) {
        let check = || taken.check(&value).map_err(|error| error.to_string());
        let twice = || assert_eq!(check(), check(), "validation decides the same each time");
        // As the runtime does for long validations.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, twice);
            thread.expect("a thread can be started").join().expect("a validation ends without a panic");
        });
    }
    assert!(began.elapsed() < VALIDATION_TIMEOUT, "took {:?}: {schema} for {value}", began.elapsed());
}

/// Bytes that control the generation.
struct GenerationBytes<'d>(&'d [u8]);

impl GenerationBytes<'_> {
    /// Returns a number below `most`; zero if no bytes are left.
    fn below(&mut self, most: u8) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first % most
    }

    fn pair(&mut self) -> (Value, Value) {
        let defs: Map<String, Value> =
            (0..DEFINITIONS).map(|at| (format!("d{at}"), self.schema(3))).collect();
        let mut schema = self.schema(3);
        if let Value::Object(members) = &mut schema {
            members.insert("$defs".to_owned(), Value::Object(defs));
        }
        let depth = self.below(24);
        (schema, self.value(depth))
    }

    fn pattern(&mut self) -> String {
        let pieces = self.below(12);
        let pattern: String = (0..pieces).map(|_| PIECES[usize::from(self.below(12))]).collect();
        // Patterns are measured even if their schema does not reach the compiler.
        let _ = expanded_size(&pattern);
        pattern
    }

    fn schema(&mut self, depth: u8) -> Value {
        if depth == 0 {
            return json!({ "$ref": format!("#/$defs/d{}", self.below(DEFINITIONS)) });
        }
        let mut members = Map::new();
        for _ in 0..=self.below(3) {
            let (keyword, value) = self.keyword(depth - 1);
            members.insert(keyword.to_owned(), value);
        }
        Value::Object(members)
    }

    fn schemas(&mut self, depth: u8) -> Value {
        let count = 1 + self.below(3);
        (0..count).map(|_| self.schema(depth)).collect()
    }

    fn named(&mut self, depth: u8) -> Value {
        json!({ "a": self.schema(depth), "b": self.schema(depth) })
    }

    fn keyword(&mut self, depth: u8) -> (&'static str, Value) {
        match self.below(26) {
            0 => ("allOf", self.schemas(depth)),
            1 => ("anyOf", self.schemas(depth)),
            2 => ("oneOf", self.schemas(depth)),
            3 => ("not", self.schema(depth)),
            4 => ("if", self.schema(depth)),
            5 => ("then", self.schema(depth)),
            6 => ("else", self.schema(depth)),
            7 => ("properties", self.named(depth)),
            8 => ("patternProperties", json!({ self.pattern(): self.schema(depth) })),
            9 => ("additionalProperties", self.schema(depth)),
            10 => ("unevaluatedProperties", self.schema(depth)),
            11 => ("unevaluatedItems", self.schema(depth)),
            12 => ("items", self.schema(depth)),
            13 => ("prefixItems", self.schemas(depth)),
            14 => ("contains", self.schema(depth)),
            15 => ("propertyNames", self.schema(depth)),
            16 => ("dependentSchemas", self.named(depth)),
            17 => ("pattern", json!(self.pattern())),
            18 => ("uniqueItems", json!(true)),
            19 => ("enum", json!([1, "a", ["a"], { "a": 1 }])),
            20 => ("type", json!(["object", "array", "string"])),
            21 => ("$id", json!(self.address())),
            22 => ("$dynamicAnchor", json!("T")),
            23 => ("$dynamicRef", json!("#T")),
            24 => ("$ref", json!(self.address())),
            _ => ("$ref", json!(format!("#/$defs/d{}", self.below(DEFINITIONS)))),
        }
    }

    /// Returns an address of a resource, in one of several spellings.
    fn address(&mut self) -> String {
        let number = self.below(12);
        let name = number % 3;
        match number / 3 {
            0 | 1 => format!("r{number}"),
            2 => format!("https://json-schema.org/r{name}"),
            _ => format!("HTTP://A/../R{name}"),
        }
    }

    fn value(&mut self, depth: u8) -> Value {
        match self.below(5) {
            _ if depth == 0 => json!("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"),
            0 => json!({ "a": self.value(depth - 1) }),
            1 => json!([self.value(depth - 1)]),
            2 => json!({ "a": self.value(depth - 1), "b": 1, "ab": "a" }),
            3 => json!([self.value(depth - 1), [], "a"]),
            _ => json!({ "b": self.value(depth - 1) }),
        }
    }
}
