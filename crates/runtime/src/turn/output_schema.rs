//! Checks the answer of a turn against the output schema of its input, and tool arguments against their schemas.
//!
//! Parses and formats only. The bounded validation itself runs in `validation`.
use crate::limits::validation;
use outlast_validation::{Schema, SchemaVerdict};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind, Limits, limits};
use serde_json::Value;
use std::sync::Arc;

/// Rejects an invalid or oversized schema before the input that carries it is accepted.
pub(crate) fn check_schema(schema: &Value, limits: &Limits) -> Result<(), Error> {
    limits::check("schema_bytes", outlast_vocab::message::json_size(schema), limits.schema_bytes)?;
    limits::check_depth("json_depth", schema, limits.json_depth)?;
    compiled(schema).map(drop)
}

/// Rejects an oversized schema that an earlier version accepted, before its turn does any work.
pub(crate) fn check_size(schema: &Value) -> Result<(), Error> {
    Schema::measure(schema).map_err(|error| error.of(OWNER, Kind::InputInvalid))
}

/// The subject of error messages about an output schema.
const OWNER: &str = "the schema of the answer is";

fn compiled(schema: &Value) -> Result<Arc<Schema>, Error> {
    Schema::new(schema).map(Arc::new).map_err(|error| error.of(OWNER, Kind::InputInvalid))
}

/// Checks a value against a schema.
pub(crate) async fn fits_schema(schema: &Value, value: &Value) -> Result<(), Error> {
    let schema = Schema::new(schema)
        .map_err(|error| error.of("the schema of the arguments is", Kind::InputInvalid))?;
    fits(&Arc::new(schema), value).await
}

/// Checks the arguments of a call against the schema of its tool.
pub(crate) async fn fits(schema: &Arc<Schema>, arguments: &Value) -> Result<(), Error> {
    match validation::check(schema, arguments).await? {
        SchemaVerdict::Valid => Ok(()),
        SchemaVerdict::Errors(errors) => {
            let detail = format!("the arguments do not fit the schema; {}", errors.join("; "));
            Err(Error::new(Kind::ToolArgsInvalid, detail))
        }
    }
}

/// Returns the correction to send to the model if the answer does not match the schema, or `None` if it does.
pub(crate) async fn correction(answer: &str, schema: &Value) -> Result<Option<String>, Error> {
    let checked = match value_of(answer) {
        Ok(value) => validation::check(&compiled(schema)?, &value).await?,
        Err(error) => SchemaVerdict::Errors(vec![error.detail().to_owned()]),
    };
    let SchemaVerdict::Errors(errors) = checked else { return Ok(None) };
    Ok(Some(format!(
        "The answer does not fit its schema:\n- {}\nAnswer again with JSON that fits this schema, and nothing else:\n{schema}",
        errors.join("\n- ")
    )))
}

/// Parses the JSON of an answer. A model may have put it into a code fence.
pub fn value_of(answer: &str) -> Result<Value, Error> {
    let bare = answer.trim();
    let fenced = bare.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let json = fenced.map_or(bare, |rest| rest.strip_prefix("json").unwrap_or(rest));
    serde_json::from_str(json).map_err(|cause| {
        Error::new(Kind::OutputInvalid, format!("expected JSON, got `{}`: {cause}", shown(answer)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    #[track_caller]
    fn check(answer: &str, want: &Expect) {
        let schema = json!({
            "type": "object",
            "properties": { "age": { "type": "integer", "minimum": 0 }, "name": { "type": "string" } },
            "required": ["name"]
        });
        let corrected = futures_util::FutureExt::now_or_never(correction(answer, &schema));
        let corrected = corrected.expect("a small value is validated at once").unwrap();
        want.assert_eq(&corrected.unwrap_or_else(|| "fits".to_owned()));
    }

    #[test]
    fn valid_answer_needs_no_correction() {
        check(r#"{"name": "Ann", "age": 3}"#, &expect!["fits"]);
        check("```json\n{\"name\": \"Ann\"}\n```", &expect!["fits"]);
        check(" ```\n{\"name\": \"Ann\"}``` ", &expect!["fits"]);
    }

    #[test]
    fn correction_lists_all_error_paths_and_schema() {
        check(
            r#"{"age": -1}"#,
            &expect![[r#"
                The answer does not fit its schema:
                - at the root: "name" is a required property
                - at /age: -1 is less than the minimum of 0
                Answer again with JSON that fits this schema, and nothing else:
                {"properties":{"age":{"minimum":0,"type":"integer"},"name":{"type":"string"}},"required":["name"],"type":"object"}"#]],
        );
        check(
            "Ann is three.",
            &expect![[r#"
            The answer does not fit its schema:
            - expected JSON, got `Ann is three.`: expected value at line 1 column 1
            Answer again with JSON that fits this schema, and nothing else:
            {"properties":{"age":{"minimum":0,"type":"integer"},"name":{"type":"string"}},"required":["name"],"type":"object"}"#]],
        );
    }

    #[test]
    fn invalid_schema_is_refused_with_input() {
        let limits = Limits { schema_bytes: 20, ..Limits::default() };
        assert_eq!(check_schema(&json!({ "type": "any" }), &limits).unwrap_err().kind(), Kind::InputInvalid);
        assert_eq!(
            check_schema(&json!({ "title": "x".repeat(30) }), &limits).unwrap_err().kind(),
            Kind::LimitExceeded
        );
        assert!(check_schema(&json!(true), &limits).is_ok());
    }
}
