//! A schema that has been measured and compiled.
use crate::pattern::COMPILED_BYTES;
use crate::schema_graph::{SchemaGraph, SchemaRejection};
use crate::unique_items::UniqueItems;
use crate::work_estimate::{BACKTRACKS, DEPTH_INLINE, EstimateLimits, WorkLimitExceeded, estimate};
use jsonschema::{PatternOptions, Validator};
use outlast_vocab::limits::{VALIDATION_STEPS, VALIDATION_STEPS_INLINE};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::fmt;

/// The most errors that are listed for one value.
const ERRORS_LISTED: usize = 8;

/// The most bytes of one listed error.
const ERROR_BYTES: usize = 1_000;

/// An external JSON Schema within the limits.
pub struct Schema {
    graph: SchemaGraph,
    validator: Validator,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("parts", &self.graph.parts.len()).finish_non_exhaustive()
    }
}

/// The reason why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaError {
    /// It is not a valid JSON Schema, for this reason.
    Invalid(String),
    /// It exceeds the limit of this name.
    TooLarge {
        /// The name of the limit.
        name: &'static str,
        /// Its value.
        most: u64,
        /// The size of the schema, or [`u64::MAX`] if it is too large to count.
        needs: u64,
    },
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => f.write_str(what),
            Self::TooLarge { name, most, needs: u64::MAX } => {
                write!(
                    f,
                    "{name} is limited to {most}, but with its references written out this needs more than can be counted"
                )
            }
            Self::TooLarge { name, most, needs } => {
                write!(
                    f,
                    "{name} is limited to {most}, but with its references written out this needs {needs}"
                )
            }
        }
    }
}

impl SchemaError {
    /// Returns the error for `owner` (like "the schema of the answer"): of kind `invalid` if it is not a JSON
    /// Schema, or [`Kind::LimitExceeded`] if it is too large.
    pub fn of(&self, owner: &str, invalid: Kind) -> Error {
        match self {
            Self::Invalid(what) => Error::new(invalid, format!("{owner} no JSON Schema: {what}")),
            Self::TooLarge { .. } => Error::new(Kind::LimitExceeded, format!("{owner} too large: {self}")),
        }
    }
}

/// The result of a validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaVerdict {
    /// The value matches the schema.
    Valid,
    /// The value does not match the schema, for these reasons. Never empty.
    Errors(Vec<String>),
}

impl Schema {
    /// Measures and compiles a schema.
    ///
    /// # Errors
    /// Returns the reason why the schema is refused. A schema that is too large is not compiled.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let graph = measured(schema)?;
        // Checking the format `regex` would compile the value as a regular expression, so it is only an
        // annotation here.
        let options = jsonschema::options()
            .with_format("regex", |_: &str| true)
            .with_keyword("uniqueItems", |_, value, _| {
                Ok(Box::new(UniqueItems(value == &Value::Bool(true))))
            });
        let options = if graph.backtracks {
            let limit = usize::try_from(BACKTRACKS).unwrap_or(usize::MAX);
            options.with_pattern_options(
                PatternOptions::fancy_regex().backtrack_limit(limit).size_limit(COMPILED_BYTES),
            )
        } else {
            options.with_pattern_options(PatternOptions::regex().size_limit(COMPILED_BYTES))
        };
        let validator = options
            .build(schema)
            .map_err(|cause| SchemaError::Invalid(shorten_message(cause.to_string())))?;
        Ok(Self { graph, validator })
    }

    /// Measures a schema without compiling it. Returns its size with its references expanded.
    ///
    /// # Errors
    /// Returns why [`Self::new`] would refuse the schema before it compiles it.
    pub fn measure(schema: &Value) -> Result<u64, SchemaError> {
        measured(schema).map(|graph| graph.size)
    }

    /// Returns whether [`Self::check`] is quick for this value and uses little stack. Otherwise, run it on a
    /// separate thread.
    pub fn is_quick_for(&self, value: &Value) -> bool {
        let allowed = EstimateLimits { steps: VALIDATION_STEPS_INLINE, depth: DEPTH_INLINE };
        estimate(&self.graph, value, allowed).is_ok_and(|cost| cost.errors <= VALIDATION_STEPS_INLINE)
    }

    /// Validates a value.
    ///
    /// # Errors
    /// Returns [`Kind::LimitExceeded`], without validating, if the validation could take more than
    /// [`VALIDATION_STEPS`](outlast_vocab::limits::VALIDATION_STEPS) steps.
    pub fn check(&self, value: &Value) -> Result<SchemaVerdict, Error> {
        let cost = estimate(&self.graph, value, EstimateLimits::MOST).map_err(|WorkLimitExceeded| {
            let detail = format!(
                "validation_steps is limited to {VALIDATION_STEPS}, but validating this value against its schema may need more; \
                 simplify the schema or shorten the value"
            );
            Error::new(Kind::LimitExceeded, detail)
        })?;
        if self.validator.is_valid(value) {
            return Ok(SchemaVerdict::Valid);
        }
        if cost.errors > VALIDATION_STEPS {
            return Ok(SchemaVerdict::Errors(vec!["somewhere; locating it would take too long".to_owned()]));
        }
        let errors = self.validator.iter_errors(value).take(ERRORS_LISTED).map(|error| {
            let path = error.instance_path().to_string();
            shorten_message(format!("at {}: {error}", if path.is_empty() { "the root" } else { &path }))
        });
        Ok(SchemaVerdict::Errors(errors.collect()))
    }
}

fn measured(schema: &Value) -> Result<SchemaGraph, SchemaError> {
    SchemaGraph::new(schema).map_err(|refused| match refused {
        SchemaRejection::Invalid(what) => SchemaError::Invalid(what),
        SchemaRejection::Exceeds { name, most, needs } => SchemaError::TooLarge { name, most, needs },
    })
}

/// Shortens a message to a readable length.
fn shorten_message(mut message: String) -> String {
    if message.len() > ERROR_BYTES {
        message.truncate(message.floor_char_boundary(ERROR_BYTES));
        message.push('…');
    }
    message
}
