//! What a model request ends with, who receives its reply, and the pauses between attempts.
//!
//! [`crate::turn::metered_model_call`] sends the request.
use outlast_ports::budget::BudgetShortfall;
use outlast_ports::clock::Entropy;
use outlast_vocab::effect::{ModelFailure, ModelOutcome};
use outlast_vocab::message::ModelName;
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use std::time::Duration;

/// Who receives the reply while it streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyAudience {
    /// All subscribers of the session.
    Subscribers,
    /// All subscribers of the session, but only after the policy has judged the complete answer.
    ///
    /// Partial text is not persisted either: redacted text must not reach the disk.
    SubscribersAfterPolicy,
    /// No one, because a tool makes the request.
    None,
}

/// The result of a model request.
pub(crate) enum ModelRequestResult {
    /// A complete reply, or an error that a retry cannot fix.
    Outcome(ModelOutcome),
    /// The next attempt is too far off to wait for in memory.
    Wait {
        /// The key of the wait.
        key: ReplayKey,
        /// How long to wait.
        pause: Duration,
    },
    /// The provider was down, or refused the call, for as long as the turn may wait.
    GaveUp(ModelFailure),
    /// The provider refuses the call until a person fixes something, such as a key or an account.
    Stuck(Error),
    /// A budget is too low for an attempt.
    BudgetExhausted(BudgetShortfall),
}

impl ModelRequestResult {
    /// Whether the model rejected the request because it exceeds the context window.
    pub(crate) fn is_too_long(&self) -> bool {
        let Self::Outcome(ModelOutcome::Failed(failed)) = self else { return false };
        failed.failure.code == Kind::ModelContextExceeded
    }
}

/// Returns the provider part of a model name.
pub(crate) fn provider_of(model: &ModelName) -> &str {
    model.as_str().split('/').next().unwrap_or_default()
}

/// Returns the pause before attempt `tried + 1`: doubled each time, up to `most`.
pub(crate) fn backoff(first: Duration, most: Duration, tried: u32) -> Duration {
    first.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(most)
}

/// Like [`backoff`], randomized within its upper half so that rejected callers do not retry together.
pub(crate) fn jittered(first: Duration, most: Duration, tried: u32, entropy: &dyn Entropy) -> Duration {
    let pause = backoff(first, most, tried);
    let [high, low, ..] = entropy.random();
    let share = u32::from(u16::from_be_bytes([high, low]));
    pause / 2 + pause / 2 * share / u32::from(u16::MAX)
}

pub(crate) fn failed(error: &Error, streamed: bool) -> ModelOutcome {
    ModelOutcome::Failed(ModelFailure { failure: Failure::from(error), streamed })
}
