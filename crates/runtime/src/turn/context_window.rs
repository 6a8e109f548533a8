//! The estimate of a model's context window while a request is made to fit it.
//!
//! A provider knows the window, or assumes one. If the model rejects a request as too long, the estimate is lowered:
//! to the window that the provider has learned from the error, or else to half of the rejected request. Nothing of
//! this is recorded. The compactions that follow from it are.
use crate::turn::model::ModelCandidate;
use crate::turn::model_request::ModelRequestResult;
use outlast_ports::model::{ModelCapabilities, TOKEN_BYTES};
use outlast_vocab::effect::{ModelCall, ModelOutcome};

/// The estimate of one model's window.
pub(super) struct WindowEstimate {
    /// What is known about the model, with the estimated window.
    pub(super) info: ModelCapabilities,
    /// Whether the model can write summaries.
    pub(super) can_summarise: bool,
    /// How often the estimate may still be lowered.
    rounds: u32,
}

impl WindowEstimate {
    /// Creates an estimate that may be lowered this many times.
    pub(super) fn new(info: ModelCapabilities, rounds: u32) -> Self {
        Self { info, can_summarise: true, rounds }
    }

    /// Lowers the estimate after a request of `bytes` was rejected. `known` is what the provider knows now. Returns
    /// `false` if the estimate already explains the rejection.
    pub(super) fn lower(&mut self, known: Option<ModelCapabilities>, bytes: usize) -> bool {
        let before = self.info.window_bytes;
        let learned = known.map(|info| info.window_bytes).filter(|window| *window < before);
        let lower = learned.or_else(|| (bytes <= before).then_some(bytes / 2));
        let Some(window_bytes) = lower.filter(|_| self.rounds > 0) else { return false };
        self.rounds -= 1;
        self.info.window_bytes = window_bytes;
        true
    }
}

/// The size of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestSize {
    pub(super) bytes: usize,
    pub(super) reply_tokens: u32,
}

/// A request that the model rejected as too long.
pub(super) struct RejectedRequest {
    pub(super) size: RequestSize,
    pub(super) effect: ModelCall,
    pub(super) result: ModelRequestResult,
}

impl RejectedRequest {
    /// Returns the call and its failure, which names the size of the request and of the window.
    pub(super) fn explained(self, candidate: &ModelCandidate<'_>) -> (ModelCall, ModelRequestResult) {
        let Self { size, effect, mut result } = self;
        if let ModelRequestResult::Outcome(ModelOutcome::Failed(failed)) = &mut result {
            let ModelCandidate { model, provider, info } = *candidate;
            let window = provider.info(model).unwrap_or(info).window_tokens();
            let tokens = size.bytes / TOKEN_BYTES;
            let detail = format!(
                "; the shortest request has about {tokens} tokens, and the context window of `{model}` has about {window}"
            );
            failed.failure.detail.push_str(&detail);
        }
        (effect, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(window: usize, rounds: u32) -> WindowEstimate {
        WindowEstimate::new(ModelCapabilities::of_window(window), rounds)
    }

    #[test]
    fn rejection_lowers_window_to_what_provider_learned() {
        let mut window = estimate(96_000, 8);
        assert!(window.lower(Some(ModelCapabilities::of_window(12_000)), 60_000));
        assert_eq!(window.info.window_bytes, 12_000);
        // The provider learned nothing new, and the request was longer than its window.
        assert!(!window.lower(Some(ModelCapabilities::of_window(12_000)), 13_000));
        assert_eq!(window.info.window_bytes, 12_000);
    }

    #[test]
    fn unexplained_rejection_halves_window_in_bounded_rounds() {
        let mut window = estimate(96_000, 2);
        assert!(window.lower(None, 60_000));
        assert_eq!(window.info.window_bytes, 30_000);
        assert!(window.lower(Some(ModelCapabilities::of_window(96_000)), 20_000));
        assert_eq!(window.info.window_bytes, 10_000);
        assert!(!window.lower(None, 5_000));
        assert_eq!(window.info.window_bytes, 10_000);
    }
}
