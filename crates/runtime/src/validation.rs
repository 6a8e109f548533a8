//! Runs validation against schemas from outside so that it holds up no turn.
//!
//! A validation that takes a moment runs where it is asked for. A longer one runs on a thread of its own, and a few of those at the
//! same time. The work of each is bounded before it begins ([`Schema::check`]), so that every thread comes to its end.
use outlast_validation::{Checked, Schema};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::thread;
use tokio::sync::{Semaphore, oneshot};

/// Bytes of the stack on which a long validation runs: a deep value against nested references takes many calls.
const STACK_BYTES: usize = 64 << 20;

/// Long validations at the same time: half of the processors, and one at least.
static LONG: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new((processors / 2).max(1)))
});

/// Validates a value. Dropping the future abandons a long validation; its thread ends when the validation does.
pub(crate) async fn check(schema: &Arc<Schema>, value: &Value) -> Result<Checked, Error> {
    if schema.is_quick_for(value) {
        return schema.check(value);
    }
    // Boxed: it is rare, and every turn would have room for it.
    Box::pin(check_apart(schema, value)).await
}

/// Validates a value on a thread of its own.
async fn check_apart(schema: &Arc<Schema>, value: &Value) -> Result<Checked, Error> {
    let failed = |what: String| Error::new(Kind::IoFailed, format!("a value could not be validated: {what}"));
    let permit = LONG.clone().acquire_owned().await.map_err(|cause| failed(cause.to_string()))?;
    let (done, found) = oneshot::channel();
    let (schema, value) = (schema.clone(), value.clone());
    let thread = thread::Builder::new().name("outlast-validation".to_owned()).stack_size(STACK_BYTES);
    let began = thread.spawn(move || {
        let _permit = permit;
        // Nobody waits for it any more if this fails.
        let _ = done.send(schema.check(&value));
    });
    began.map_err(|cause| failed(cause.to_string()))?;
    found.await.map_err(|_| failed("validation panicked".to_owned()))?
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
        assert_eq!(check(&schema, &value).now_or_never().unwrap().unwrap(), Checked::Fits);
    }

    #[tokio::test]
    async fn long_validation_leaves_its_caller_free() {
        let (schema, value) = numbers(50_000);
        let mut checking = Box::pin(check(&schema, &value));
        assert!(poll_immediate(&mut checking).await.is_none(), "the first poll does not validate");
        assert_eq!(checking.await.unwrap(), Checked::Fits);
        // A caller that gives up leaves nothing behind that keeps the next one out.
        let mut abandoned = Box::pin(check(&schema, &value));
        assert!(poll_immediate(&mut abandoned).await.is_none());
        drop(abandoned);
        assert_eq!(check(&schema, &value).await.unwrap(), Checked::Fits);
    }

    #[tokio::test]
    async fn unbounded_validation_is_refused() {
        let (schema, value) = numbers(1_000_000);
        assert_eq!(check(&schema, &value).await.unwrap_err().kind(), Kind::LimitExceeded);
    }
}
