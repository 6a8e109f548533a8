//! Checks the answer of a turn against the output schema of its input, and tool arguments against their schemas.
//!
//! Parses and formats only. The bounded validation itself runs in `validation`.
use crate::limits::fair_permits::WorkOwner;
use crate::limits::validation::MeasuredSchema;
use outlast_validation::SchemaVerdict;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind, Limits, limits};
use serde_json::Value;

/// Rejects an invalid or oversized schema before the input that carries it is accepted.
pub(crate) async fn check_schema(schema: &Value, limits: &Limits, owner: WorkOwner) -> Result<(), Error> {
    limits::check("schema_bytes", outlast_vocab::message::json_size(schema), limits.schema_bytes)?;
    limits::check_depth("json_depth", schema, limits.json_depth)?;
    OutputSchema::new(schema)?.0.compile(owner).await.map(drop)
}

/// The schema of an answer. It is compiled when the first answer is checked.
#[derive(Debug)]
pub(crate) struct OutputSchema(MeasuredSchema);

impl OutputSchema {
    /// Measures a schema. Rejects an oversized one that an earlier version accepted, before its turn does any work.
    pub(crate) fn new(schema: &Value) -> Result<Self, Error> {
        MeasuredSchema::new(schema, "the schema of the answer is", Kind::InputInvalid).map(Self)
    }

    /// Returns the correction to send to the model if the answer does not match the schema, or `None` if it does.
    pub(crate) async fn correction(&self, answer: &str, owner: WorkOwner) -> Result<Option<String>, Error> {
        let checked = match value_of(answer) {
            Ok(value) => self.0.check(&value, owner).await?,
            Err(error) => SchemaVerdict::Errors(vec![error.detail().to_owned()]),
        };
        let SchemaVerdict::Errors(errors) = checked else { return Ok(None) };
        Ok(Some(format!(
            "The answer does not fit its schema:\n- {}\nAnswer again with JSON that fits this schema, and nothing else:\n{}",
            errors.join("\n- "),
            self.0.schema()
        )))
    }
}

/// Checks the arguments of a call against the schema of its tool.
pub(crate) async fn fits(schema: &MeasuredSchema, arguments: &Value, owner: WorkOwner) -> Result<(), Error> {
    match schema.check(arguments, owner).await? {
        SchemaVerdict::Valid => Ok(()),
        SchemaVerdict::Errors(errors) => {
            let detail = format!("the arguments do not fit the schema; {}", errors.join("; "));
            Err(Error::new(Kind::ToolArgsInvalid, detail))
        }
    }
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
    use futures_util::FutureExt;
    use serde_json::json;

    #[track_caller]
    fn check(answer: &str, want: &Expect) {
        let schema = json!({
            "type": "object",
            "properties": { "age": { "type": "integer", "minimum": 0 }, "name": { "type": "string" } },
            "required": ["name"]
        });
        let schema = OutputSchema::new(&schema).unwrap();
        let corrected = schema.correction(answer, None).now_or_never();
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
        let refused = |schema: Value| {
            let checked = check_schema(&schema, &limits, None).now_or_never();
            checked.expect("a small schema is compiled at once").err().map(|error| error.kind())
        };
        assert_eq!(refused(json!({ "type": "any" })), Some(Kind::InputInvalid));
        assert_eq!(refused(json!({ "title": "x".repeat(30) })), Some(Kind::LimitExceeded));
        assert_eq!(refused(json!(true)), None);
    }
}
