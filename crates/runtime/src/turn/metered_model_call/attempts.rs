//! The attempts of a model request: those in the journal, those that failed now, and the one that is being read.
use crate::turn::host::TurnJournal;
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::reply_builder::ReplyBuilder;
use outlast_ports::turns::PartialReplyText;
use outlast_vocab::effect::ModelOutcome;
use outlast_vocab::limits::ATTEMPTS_RECORDED;
use outlast_vocab::message::ModelName;
use outlast_vocab::record::{AttemptsFailed, Fact, FailedAttempt};
use outlast_vocab::{Limits, Millis, ReplayKey};

/// Earlier attempts of a model call, from the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PastAttempts {
    /// Failed attempts.
    pub(super) tried: u32,
    /// Waits for the provider's rate limit.
    pub(super) in_line: u32,
    /// Waits for a provider that was down.
    pub(super) provider_waits: u32,
    /// When the provider went down.
    pub(super) down_since: Option<Millis>,
    /// Whether a person ended the last wait to make the call now.
    pub(super) forced: bool,
    /// Whether a person retried an ended turn as this turn, and the call has not waited yet.
    pub(super) is_retry: bool,
    /// How many models may answer the call.
    pub(super) models: u32,
    /// Whether text of the last attempt was streamed.
    pub(super) streamed: bool,
}

impl PastAttempts {
    /// Reads the earlier attempts of the model call with this key.
    pub(crate) fn of(history: &TurnHistory, key: &ReplayKey) -> Self {
        let provider_waits = history.provider_wait_count(key);
        let retries = history.accepted().is_some_and(|accepted| accepted.retry_of.is_some());
        Self {
            tried: history.failed_attempt_count(key),
            in_line: history.queue_wait_count(key),
            provider_waits,
            down_since: history.provider_down_since(key),
            forced: history.provider_wait_was_ended(key),
            is_retry: retries && provider_waits == 0,
            models: 1,
            streamed: false,
        }
    }

    /// Adds attempts that are not recorded yet.
    pub(crate) fn after(self, tries: &FailedAttempts) -> Self {
        let FailedAttempts(failed) = tries;
        let more = u32::try_from(failed.len()).unwrap_or(u32::MAX);
        let down_since = self.down_since.or_else(|| failed.first().map(|first| first.until));
        Self { tried: self.tried.saturating_add(more), down_since, ..self }
    }

    /// Sets how many models may answer the call.
    pub(crate) fn by_models(self, models: usize) -> Self {
        Self { models: u32::try_from(models).unwrap_or(u32::MAX), ..self }
    }
}

/// The failed attempts of one request. Only the newest are kept.
#[derive(Default)]
pub(crate) struct FailedAttempts(Vec<FailedAttempt>);

impl FailedAttempts {
    pub(super) fn failed(&mut self, failed: FailedAttempt) {
        if self.0.len() == ATTEMPTS_RECORDED {
            self.0.remove(0);
        }
        self.0.push(failed);
    }

    /// Returns the attempts other than the one that produced the outcome of this model. A failed outcome reports its
    /// own attempt: the last one of the model.
    pub(crate) fn before(mut self, outcome: &ModelOutcome, model: &ModelName) -> Vec<FailedAttempt> {
        let is_own = |attempt: &FailedAttempt| attempt.model.as_ref().is_none_or(|asked| asked == model);
        if let (ModelOutcome::Failed(_), Some(own)) = (outcome, self.0.iter().rposition(is_own)) {
            self.0.remove(own);
        }
        self.0
    }

    /// Records the attempts with the next write, if the request has no outcome yet.
    pub(crate) fn note<H: TurnJournal>(self, key: &ReplayKey, host: &mut H) {
        if let Some(fact) = self.fact(key) {
            host.buffer_fact(fact);
        }
    }

    /// Returns the record of the attempts, or `None` if there were none.
    pub(crate) fn fact(self, key: &ReplayKey) -> Option<Fact> {
        let Self(attempts) = self;
        (!attempts.is_empty()).then(|| Fact::Tried(AttemptsFailed { key: key.clone(), attempts }))
    }
}

/// The state of the attempt that is being read.
pub(super) struct AttemptProgress {
    pub(super) building: ReplyBuilder,
    /// Bytes of text so far, including text of earlier attempts.
    pub(super) bytes: usize,
    /// The text, if the model can continue a cut reply.
    pub(super) text: String,
    /// How many bytes of the text are persisted.
    pub(super) persisted: usize,
    pub(super) persisted_at: Millis,
    /// Whether this attempt has persisted anything.
    pub(super) began_persisting: bool,
    /// Whether the reply is text only, so that a model can continue it.
    pub(super) only_text: bool,
    /// Whether the provider has sent anything.
    pub(super) began: bool,
}

impl AttemptProgress {
    pub(super) fn begin(partial_text: &str, now: Millis) -> Self {
        let (building, text, bytes) = (ReplyBuilder::default(), partial_text.to_owned(), partial_text.len());
        Self {
            building,
            bytes,
            text,
            persisted: bytes,
            persisted_at: now,
            began_persisting: false,
            only_text: true,
            began: false,
        }
    }

    /// Whether enough new text has arrived to persist it, or enough time has passed.
    pub(super) fn is_due(&self, limits: &Limits, now: Millis) -> bool {
        let new = self.text.len() - self.persisted;
        let late = self.persisted_at.after(limits.keep_every) <= now;
        self.only_text && (new >= limits.keep_bytes || (new > 0 && late))
    }

    pub(super) fn take_new(&mut self, key: &ReplayKey, attempt: u32, now: Millis) -> PartialReplyText {
        // The first write of an attempt contains the whole text, and so replaces what an earlier attempt
        // persisted.
        let start = if std::mem::replace(&mut self.began_persisting, true) { self.persisted } else { 0 };
        let text = self.text[start..].to_owned();
        (self.persisted, self.persisted_at) = (self.text.len(), now);
        PartialReplyText { key: key.clone(), attempt, start, text }
    }
}
