//! Cancellation of a turn, as a pair of handles: one requests it, the other observes it.
use tokio::sync::watch;

/// Requests cancellation.
#[derive(Debug)]
pub struct Canceller(watch::Sender<Option<String>>);

/// Observes cancellation.
#[derive(Clone, Debug)]
pub struct CancelSignal(watch::Receiver<Option<String>>);

/// The requests to stop a turn that its driver observes.
pub struct StopSignals {
    /// Cancellation of the turn.
    pub cancel: CancelSignal,
    /// Whether the worker shuts down. If so, the turn is handed back before its next model call.
    pub stopping: watch::Receiver<bool>,
}

/// Creates a pair of handles. Cancellation is not requested yet.
pub fn cancel() -> (Canceller, CancelSignal) {
    let (sender, receiver) = watch::channel(None);
    (Canceller(sender), CancelSignal(receiver))
}

impl Canceller {
    /// Requests cancellation. Only the first reason is kept.
    pub fn cancel(&self, reason: &str) {
        self.0.send_if_modified(|kept_reason| {
            let first = kept_reason.is_none();
            kept_reason.get_or_insert_with(|| reason.to_owned());
            first
        });
    }
}

impl CancelSignal {
    /// Returns the reason if cancellation was requested.
    pub fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits until cancellation is requested, and returns the reason.
    pub async fn requested(&self) -> String {
        let mut kept_reason = self.0.clone();
        match kept_reason.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(reason) => reason.unwrap_or_default(),
            // The canceller was dropped, so cancellation can no longer happen.
            Err(_) => std::future::pending().await,
        }
    }
}
