//! Compiles external schemas, validates values against them, and runs redactions, without blocking turns.
//!
//! Short work runs in place. Longer work runs on a separate thread, and only a few of those run at the same time:
//! redactions apart from validations, and organisations in turn ([`FairPermits`]). The work is bounded before it begins
//! ([`Schema::measure`], [`Schema::check`]), so every thread ends.
use crate::limits::fair_permits::{FairPermits, WorkOwner};
use outlast_validation::{ReplaceError, Schema, SchemaVerdict, replace_all};
use outlast_vocab::limits::{REDACTION_STEPS, REDACTION_STEPS_INLINE, SCHEMA_SIZE_INLINE};
use outlast_vocab::policy::Redaction;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::thread;
use tokio::sync::{OnceCell, oneshot};

/// The stack size of a validation thread. A deep value against nested references takes many calls.
const STACK_BYTES: usize = 64 << 20;

/// Limits the number of threads that compile schemas and validate values.
static VALIDATIONS: LazyLock<FairPermits> = LazyLock::new(|| FairPermits::new(threads_most()));

/// Limits the number of threads that redact texts. A redaction may take far longer than a validation.
static REDACTIONS: LazyLock<FairPermits> = LazyLock::new(|| FairPermits::new(threads_most()));

/// Returns half of the processors, at least one.
fn threads_most() -> usize {
    (thread::available_parallelism().map_or(1, NonZero::get) / 2).max(1)
}

/// A schema of acceptable size. It is compiled when it is first used.
#[derive(Debug)]
pub(crate) struct MeasuredSchema {
    schema: Value,
    size: u64,
    /// The subject of error messages, like "the schema of the answer is".
    name: String,
    /// The kind of error if the schema is invalid.
    invalid: Kind,
    compiled: OnceCell<Arc<Schema>>,
}

impl MeasuredSchema {
    /// Measures a schema. `name` is the subject of error messages, and `invalid` the kind of error if the schema is invalid.
    pub(crate) fn new(schema: &Value, name: impl Into<String>, invalid: Kind) -> Result<Self, Error> {
        let name = name.into();
        let size = Schema::measure(schema).map_err(|error| error.of(&name, invalid))?;
        Ok(Self { schema: schema.clone(), size, name, invalid, compiled: OnceCell::new() })
    }

    /// Compiles the schema on this thread, before any turn runs. An invalid one is an error.
    pub(crate) fn compile_now(&self) -> Result<(), Error> {
        let compiled = Schema::new(&self.schema).map_err(|error| error.of(&self.name, self.invalid))?;
        // If this fails, it was compiled before.
        let _ = self.compiled.set(Arc::new(compiled));
        Ok(())
    }

    /// Returns the schema.
    pub(crate) fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns the size with references expanded.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Compiles the schema if it was not compiled before. An invalid one is an error.
    pub(crate) async fn compile(&self, owner: WorkOwner) -> Result<&Arc<Schema>, Error> {
        let compile = async || {
            let compiled = if self.size <= SCHEMA_SIZE_INLINE {
                Schema::new(&self.schema)
            } else {
                let schema = self.schema.clone();
                Box::pin(apart(&VALIDATIONS, owner, move || Schema::new(&schema))).await?
            };
            compiled.map(Arc::new).map_err(|error| error.of(&self.name, self.invalid))
        };
        self.compiled.get_or_try_init(compile).await
    }

    /// Validates a value. Dropping the future abandons a long validation. Its thread ends when the validation does.
    pub(crate) async fn check(&self, value: &Value, owner: WorkOwner) -> Result<SchemaVerdict, Error> {
        let schema = self.compile(owner).await?;
        if schema.is_quick_for(value) {
            return schema.check(value);
        }
        // Boxed, because it is rare and would make the future of every turn larger.
        Box::pin(check_apart(schema, value, owner)).await
    }
}

/// Validates a value on a separate thread.
async fn check_apart(schema: &Arc<Schema>, value: &Value, owner: WorkOwner) -> Result<SchemaVerdict, Error> {
    let (schema, value) = (schema.clone(), value.clone());
    apart(&VALIDATIONS, owner, move || schema.check(&value)).await?
}

/// Applies the redactions of a rule to a text.
pub(crate) async fn redacted(text: &str, redact: &[Redaction], owner: WorkOwner) -> Result<String, Error> {
    match redact_all(text, redact, REDACTION_STEPS_INLINE) {
        Err(ReplaceError::TooMuchWork) => {}
        redacted => return redacted.map_err(refused),
    }
    let (text, redact) = (text.to_owned(), redact.to_vec());
    Box::pin(apart(&REDACTIONS, owner, move || redact_all(&text, &redact, REDACTION_STEPS)))
        .await?
        .map_err(refused)
}

fn redact_all(text: &str, redact: &[Redaction], mut steps_left: u64) -> Result<String, ReplaceError> {
    redact
        .iter()
        .try_fold(text.to_owned(), |text, one| replace_all(&text, &one.pattern, &one.with, &mut steps_left))
}

fn refused(error: ReplaceError) -> Error {
    match error {
        ReplaceError::Invalid(what) => {
            Error::new(Kind::PolicyFailed, format!("a redaction pattern is invalid: {what}"))
        }
        ReplaceError::TooMuchWork => Error::new(
            Kind::LimitExceeded,
            format!(
                "redaction_steps is limited to {REDACTION_STEPS}, but the redactions of this text need more"
            ),
        ),
    }
}

/// Runs bounded work on a separate thread. Dropping the future abandons the work. The thread ends when the work does.
async fn apart<T: Send + 'static>(
    permits: &FairPermits,
    owner: WorkOwner,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let failed = |what: String| Error::new(Kind::IoFailed, format!("a value could not be validated: {what}"));
    let permit = permits.acquire(owner).await;
    let (done, found) = oneshot::channel();
    let thread = thread::Builder::new().name("outlast-validation".to_owned()).stack_size(STACK_BYTES);
    let began = thread.spawn(move || {
        let _permit = permit;
        // If this fails, the caller has given up.
        let _ = done.send(work());
    });
    began.map_err(|cause| failed(cause.to_string()))?;
    found.await.map_err(|_| failed("validation panicked".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::poll_immediate;
    use serde_json::json;

    fn integers() -> MeasuredSchema {
        let schema = json!({ "items": { "type": "integer", "minimum": 0 } });
        MeasuredSchema::new(&schema, "the schema is", Kind::InputInvalid).unwrap()
    }

    fn numbers(count: u32) -> Value {
        json!((0..count).collect::<Vec<u32>>())
    }

    /// Polls work once while no thread is free for it. Returns whether the work waits for one.
    async fn waits_for_thread<T>(
        permits: &FairPermits,
        work: &mut (impl Future<Output = T> + Unpin),
    ) -> bool {
        let mut held = Vec::new();
        for _ in 0..threads_most() {
            held.push(permits.acquire(None).await);
        }
        poll_immediate(work).await.is_none()
    }

    #[test]
    fn short_validation_runs_in_place() {
        let checked = integers().check(&numbers(10), None).now_or_never().unwrap();
        assert_eq!(checked.unwrap(), SchemaVerdict::Valid);
    }

    #[tokio::test]
    async fn long_validation_leaves_its_caller_free() {
        let (schema, value) = (integers(), numbers(50_000));
        let mut checking = Box::pin(schema.check(&value, None));
        assert!(waits_for_thread(&VALIDATIONS, &mut checking).await);
        assert_eq!(checking.await.unwrap(), SchemaVerdict::Valid);
        // A caller that gives up must not block the next one.
        poll_immediate(Box::pin(schema.check(&value, None))).await;
        assert_eq!(schema.check(&value, None).await.unwrap(), SchemaVerdict::Valid);
    }

    #[tokio::test]
    async fn large_schema_is_compiled_once_and_apart() {
        let properties: serde_json::Map<String, Value> =
            (0..1_000).map(|n| (n.to_string(), json!({ "type": "string" }))).collect();
        let schema = json!({ "properties": properties });
        let schema = MeasuredSchema::new(&schema, "the schema is", Kind::InputInvalid).unwrap();
        let value = json!({ "1": 1 });
        let mut checking = Box::pin(schema.check(&value, None));
        assert!(waits_for_thread(&VALIDATIONS, &mut checking).await);
        assert!(matches!(checking.await.unwrap(), SchemaVerdict::Errors(_)));
        let again = schema.check(&json!({}), None).now_or_never();
        assert_eq!(again.expect("it is compiled").unwrap(), SchemaVerdict::Valid);
    }

    #[tokio::test]
    async fn redactions_delay_no_validation() {
        let busy = REDACTIONS.acquire(None).await;
        assert_eq!(integers().check(&numbers(50_000), None).await.unwrap(), SchemaVerdict::Valid);
        drop(busy);
    }

    fn redact(pattern: &str) -> Vec<Redaction> {
        vec![Redaction { pattern: pattern.to_owned(), with: "x".to_owned() }]
    }

    #[tokio::test]
    async fn long_redaction_leaves_its_caller_free() {
        let (long, numbers) = ("a b ".repeat(1 << 14), redact("[0-9]{1,200}"));
        let mut redacting = Box::pin(redacted(&long, &numbers, None));
        assert!(waits_for_thread(&REDACTIONS, &mut redacting).await);
        assert_eq!(redacting.await.unwrap(), long);
        // A caller that gives up must not block the next one.
        poll_immediate(Box::pin(redacted(&long, &numbers, None))).await;
        assert_eq!(redacted(&long, &numbers, None).await.unwrap(), long);
    }

    #[tokio::test]
    async fn redaction_is_bounded() {
        assert_eq!(redacted("a b", &redact("b"), None).now_or_never().unwrap().unwrap(), "a x");
        let long = "a b ".repeat(1 << 14);
        // It takes more steps than run in place.
        assert_eq!(redacted(&long, &redact("[0-9]{1,200}"), None).await.unwrap(), long);
        let quadratic = redacted(&long, &redact(".*[0-9]|[a-z]"), None).await.unwrap_err();
        assert_eq!(quadratic.kind(), Kind::LimitExceeded);
    }

    #[tokio::test]
    async fn unbounded_validation_is_refused() {
        let refused = integers().check(&numbers(1_000_000), None).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::LimitExceeded);
    }
}
