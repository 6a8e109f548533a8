//! The host of a replay. It has the whole recording of a turn and performs nothing.
use super::Divergence;
use crate::turn::host::{
    BudgetReservations, CallPermits, CallWriteBuffer, ConversationHost, DriveOutcome, HostTier,
    PartialReplies, ReservationOutcome, TurnBudget, TurnJournal, TurnLifecycle,
};
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::step::{CheckpointStep, EndedTurn};
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::budget::BudgetReservation;
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_ports::store::Store;
use outlast_ports::turns::{PartialReplyText, ValueWrite};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{CheckpointOutcome, EffectKind, JournalPosition};
use outlast_vocab::record::{CompactionRecord, Fact, PolicyDecided, Seq, TurnEnd};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Kind, ReplayKey};
use std::sync::Arc;
use std::time::Duration;

/// A host that answers from a recording only.
pub(super) struct RecordingHost {
    history: Arc<TurnHistory>,
    conversation: Conversation,
    /// The last effect that was reached.
    at: ReplayKey,
    /// The request that is not in the recording.
    beyond: Option<String>,
}

impl RecordingHost {
    /// Creates the host of a turn with its recording.
    pub(super) fn new(history: TurnHistory, index: u32) -> Self {
        let at = ReplayKey::turn(index);
        Self { history: Arc::new(history), conversation: Conversation::default(), at, beyond: None }
    }

    /// Returns the divergence from the recording, after the turn was driven.
    pub(super) fn divergence(self, driven: Result<DriveOutcome, Error>) -> Result<Option<Divergence>, Error> {
        let diverged = |recorded: String, asked: String, differences| {
            Ok(Some(Divergence { effect: self.at.clone(), recorded, asked, differences }))
        };
        match (driven, self.beyond) {
            (Err(_), Some(_)) if self.history.ended().is_none_or(ends_anywhere) => Ok(None),
            (Err(_), Some(asked)) => diverged(describe_end(self.history.ended()), asked, Vec::new()),
            (Err(error), None) if matches!(error.kind(), Kind::JournalDiverged | Kind::CallChanged) => {
                let detail = error.detail().to_owned();
                diverged("another request".to_owned(), "a different one".to_owned(), vec![detail])
            }
            (Err(error), None) => Err(error),
            (Ok(DriveOutcome::Ended(now)), _) if self.history.ended() != Some(&now) => {
                if self.history.ended().is_none_or(ends_anywhere) {
                    return Ok(None);
                }
                let what = vec![format!("recorded {:?}", self.history.ended()), format!("now {now:?}")];
                diverged(describe_end(self.history.ended()), describe_end(Some(&now)), what)
            }
            (Ok(_), _) => Ok(None),
        }
    }

    /// Returns the error that stops the drive at the end of the recording.
    fn stop(&mut self, asked: String) -> Error {
        let detail = format!("{} is not in the recording", self.at);
        self.beyond = Some(asked);
        Error::new(Kind::ReplayDiverged, detail)
    }
}

/// Returns whether a turn may end like this between any two effects, because something outside its steps ended it.
fn ends_anywhere(end: &TurnEnd) -> bool {
    match end {
        TurnEnd::Cancelled { .. }
        | TurnEnd::Aborted { .. }
        | TurnEnd::Abandoned { .. }
        | TurnEnd::Failed { .. }
        | TurnEnd::Sealed { .. }
        | TurnEnd::OutOfBudget { .. }
        | TurnEnd::Joined { .. } => true,
        TurnEnd::Answered { .. } | TurnEnd::Refused { .. } | TurnEnd::OutOfModelCalls { .. } => false,
    }
}

fn describe_end(end: Option<&TurnEnd>) -> String {
    end.map_or_else(|| "nothing".to_owned(), |end| format!("the end `{}`", end.name()))
}

impl TurnJournal for RecordingHost {
    fn tier(&self) -> HostTier {
        HostTier::Durable
    }

    fn history(&self) -> &Arc<TurnHistory> {
        &self.history
    }

    fn place(&self) -> Option<JournalPosition> {
        None
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        None
    }

    fn secret(&self) -> Option<[u8; 32]> {
        None
    }

    fn begin_effect(&mut self, key: &ReplayKey, kind: EffectKind) -> Result<(), Error> {
        self.at = key.clone();
        // A cancelled turn stops before its next model call.
        let stops = kind == EffectKind::ModelCall && self.history.cancelled().is_some();
        if stops || self.history.has(key) { Ok(()) } else { Err(self.stop(format!("a {kind}"))) }
    }

    fn buffer_fact(&mut self, _: Fact) {}

    async fn flush(&mut self) -> Result<Seq, Error> {
        Ok(Seq(0))
    }

    async fn reread(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn policy_ruling(&self, key: &ReplayKey) -> Option<&PolicyDecided> {
        self.history.decision(key)
    }

    fn spending(&self) -> TurnCost {
        self.history.spending()
    }
}

impl BudgetReservations for RecordingHost {
    async fn reserve(&mut self, _: BudgetReservation) -> Result<ReservationOutcome, Error> {
        Ok(ReservationOutcome { last: Seq(0), short: None })
    }

    fn settle_assumed(&mut self, _: &ReplayKey, _: UsageAmount, _: UsageAmount) {}

    fn exclude_provider_wait(&mut self, _: Duration) {}
}

impl TurnBudget for RecordingHost {
    fn is_metered(&self) -> bool {
        false
    }

    async fn reserve_ahead(&mut self, _: BudgetReservation) -> Result<(), Error> {
        Ok(())
    }
}

impl PartialReplies for RecordingHost {
    async fn persist_partial_reply(&mut self, _: PartialReplyText) -> Result<(), Error> {
        Ok(())
    }
}

impl ConversationHost for RecordingHost {
    async fn load_conversation(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn conversation(&mut self) -> &mut Conversation {
        &mut self.conversation
    }

    async fn compact(&mut self, _: CompactionRecord) -> Result<(), Error> {
        Ok(())
    }
}

impl CallPermits for RecordingHost {
    async fn request_permits(&mut self, _: Vec<AdmissionRequest>) -> Result<(), Error> {
        Ok(())
    }

    fn take_permit_decisions(&mut self) -> Vec<AdmissionDecision> {
        Vec::new()
    }
}

impl CallWriteBuffer for RecordingHost {
    fn buffer_values(&mut self, _: Vec<ValueWrite>) {}

    fn buffer_files(&mut self, _: Vec<Upload>) {}
}

impl TurnLifecycle for RecordingHost {
    async fn checkpoint(
        &mut self,
        at: &CheckpointStep,
        ours: CheckpointOutcome,
    ) -> Result<CheckpointOutcome, Error> {
        self.at = at.key().clone();
        if let Some(joined) = self.history.answer(at.key(), &at.effect())? {
            return Ok(joined);
        }
        if ours.is_empty() || self.history.was_reached(&at.next_model()) {
            return Ok(CheckpointOutcome::default());
        }
        Err(self.stop("an answer that is sent back".to_owned()))
    }

    async fn park(&mut self, _: Vec<Wait>) -> Result<DriveOutcome, Error> {
        Ok(DriveOutcome::Parked)
    }

    async fn hand_back(&mut self) -> Result<DriveOutcome, Error> {
        Ok(DriveOutcome::HandedBack)
    }

    async fn finish(&mut self, done: EndedTurn) -> Result<DriveOutcome, Error> {
        Ok(DriveOutcome::Ended(done.end))
    }
}
