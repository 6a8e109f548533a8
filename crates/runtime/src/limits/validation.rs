//! Runs validation against external schemas, and redactions, without blocking turns.
//!
//! Short work runs in place. Longer work runs on a separate thread, and only a few of those run at the same time. The
//! work is bounded before it begins ([`Schema::check`]), so every thread ends.
use outlast_validation::{ReplaceError, Schema, SchemaVerdict, replace_all};
use outlast_vocab::limits::{REDACTION_STEPS, REDACTION_STEPS_INLINE};
use outlast_vocab::policy::Redaction;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::thread;
use tokio::sync::{Semaphore, oneshot};

/// The stack size of a validation thread. A deep value against nested references takes many calls.
const STACK_BYTES: usize = 64 << 20;

/// Limits the number of validation threads to half of the processors, at least one.
static LONG: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new((processors / 2).max(1)))
});

/// Validates a value. Dropping the future abandons a long validation. Its thread ends when the validation does.
pub(crate) async fn check(schema: &Arc<Schema>, value: &Value) -> Result<SchemaVerdict, Error> {
    if schema.is_quick_for(value) {
        return schema.check(value);
    }
    // Boxed, because it is rare and would make the future of every turn larger.
    Box::pin(check_apart(schema, value)).await
}

/// Validates a value on a separate thread.
async fn check_apart(schema: &Arc<Schema>, value: &Value) -> Result<SchemaVerdict, Error> {
    let (schema, value) = (schema.clone(), value.clone());
    apart(move || schema.check(&value)).await?
}

/// Applies the redactions of a rule to a text.
pub(crate) async fn redacted(text: &str, redact: &[Redaction]) -> Result<String, Error> {
    match redact_all(text, redact, REDACTION_STEPS_INLINE) {
        Err(ReplaceError::TooMuchWork) => {}
        redacted => return redacted.map_err(refused),
    }
    let (text, redact) = (text.to_owned(), redact.to_vec());
    Box::pin(apart(move || redact_all(&text, &redact, REDACTION_STEPS))).await?.map_err(refused)
}

fn redact_all(text: &str, redact: &[Redaction], mut steps_left: u64) -> Result<String, ReplaceError> {
    redact
        .iter()
        .try_fold(text.to_owned(), |text, one| replace_all(&text, &one.pattern, &one.with, &mut steps_left))
}

fn refused(error: ReplaceError) -> Error {
    match error {
        ReplaceError::Invalid(what) => {
            Error::new(Kind::PolicyFailed, format!("a pattern of a redaction is invalid: {what}"))
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
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let failed = |what: String| Error::new(Kind::IoFailed, format!("a value could not be validated: {what}"));
    let permit = LONG.clone().acquire_owned().await.map_err(|cause| failed(cause.to_string()))?;
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

    fn numbers(count: u32) -> (Arc<Schema>, Value) {
        let schema = Schema::new(&json!({ "items": { "type": "integer", "minimum": 0 } })).unwrap();
        (Arc::new(schema), json!((0..count).collect::<Vec<u32>>()))
    }

    #[test]
    fn short_validation_runs_in_place() {
        let (schema, value) = numbers(10);
        assert_eq!(check(&schema, &value).now_or_never().unwrap().unwrap(), SchemaVerdict::Valid);
    }

    #[tokio::test]
    async fn long_validation_leaves_its_caller_free() {
        let (schema, value) = numbers(50_000);
        let mut checking = Box::pin(check(&schema, &value));
        assert!(poll_immediate(&mut checking).await.is_none(), "the first poll does not validate");
        assert_eq!(checking.await.unwrap(), SchemaVerdict::Valid);
        // A caller that gives up must not block the next one.
        let mut abandoned = Box::pin(check(&schema, &value));
        assert!(poll_immediate(&mut abandoned).await.is_none());
        drop(abandoned);
        assert_eq!(check(&schema, &value).await.unwrap(), SchemaVerdict::Valid);
    }

    fn redact(pattern: &str) -> Vec<Redaction> {
        vec![Redaction { pattern: pattern.to_owned(), with: "x".to_owned() }]
    }

    #[tokio::test]
    async fn long_redaction_leaves_its_caller_free() {
        let (long, numbers) = ("a b ".repeat(1 << 14), redact("[0-9]{1,200}"));
        let mut redacting = Box::pin(redacted(&long, &numbers));
        assert!(poll_immediate(&mut redacting).await.is_none(), "the first poll does not redact");
        assert_eq!(redacting.await.unwrap(), long);
        // A caller that gives up must not block the next one.
        let mut abandoned = Box::pin(redacted(&long, &numbers));
        assert!(poll_immediate(&mut abandoned).await.is_none());
        drop(abandoned);
        assert_eq!(redacted(&long, &numbers).await.unwrap(), long);
    }

    #[tokio::test]
    async fn redaction_is_bounded() {
        assert_eq!(redacted("a b", &redact("b")).now_or_never().unwrap().unwrap(), "a x");
        let long = "a b ".repeat(1 << 14);
        // It takes more steps than run in place.
        assert_eq!(redacted(&long, &redact("[0-9]{1,200}")).await.unwrap(), long);
        let quadratic = redacted(&long, &redact(".*[0-9]|[a-z]")).await.unwrap_err();
        assert_eq!(quadratic.kind(), Kind::LimitExceeded);
    }

    #[tokio::test]
    async fn unbounded_validation_is_refused() {
        let (schema, value) = numbers(1_000_000);
        assert_eq!(check(&schema, &value).await.unwrap_err().kind(), Kind::LimitExceeded);
    }
}
