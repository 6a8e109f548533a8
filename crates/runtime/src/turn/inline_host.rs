//! The host that stores nothing: for scripts, tests and baseline benchmarks.
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
use outlast_vocab::effect::{CheckpointOutcome, JournalPosition};
use outlast_vocab::message::Message;
use outlast_vocab::record::{CompactionRecord, Fact, PolicyDecided, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Kind, ReplayKey, TurnId};
use std::sync::Arc;
use std::time::Duration;

/// Stores nothing. Operations that need durability (durable steps, waits, pending completions) fail.
#[derive(Debug, Default)]
pub struct InlineHost {
    history: Arc<TurnHistory>,
    conversation: Conversation,
    spending: TurnCost,
    decisions: Vec<PolicyDecided>,
}

impl InlineHost {
    /// Creates a host for a turn that follows these messages.
    pub fn after(earlier: Vec<Message>) -> Self {
        let mut conversation = Conversation::default();
        conversation.push(TurnId::from_u128(0), earlier);
        Self { conversation, ..Self::default() }
    }
}

/// The error for operations that need a durable host.
pub(crate) fn not_durable(what: &str) -> Error {
    Error::new(Kind::HostNotDurable, format!("{what} requires a durable host, but this one has no storage"))
}

impl TurnJournal for InlineHost {
    fn tier(&self) -> HostTier {
        HostTier::Ephemeral
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

    fn buffer_fact(&mut self, fact: Fact) {
        self.spending.add_fact(&fact);
        if let Fact::Ruled(decision) = fact {
            self.decisions.push(decision);
        }
    }

    async fn flush(&mut self) -> Result<Seq, Error> {
        Ok(Seq(0))
    }

    async fn reread(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn policy_ruling(&self, key: &ReplayKey) -> Option<&PolicyDecided> {
        self.decisions.iter().find(|decision| decision.key == *key)
    }

    fn spending(&self) -> TurnCost {
        self.spending
    }
}

impl BudgetReservations for InlineHost {
    async fn reserve(&mut self, _: BudgetReservation) -> Result<ReservationOutcome, Error> {
        Ok(ReservationOutcome { last: Seq(0), short: None })
    }

    fn settle_assumed(&mut self, _: &ReplayKey, _: UsageAmount, _: UsageAmount) {}

    fn exclude_provider_wait(&mut self, _: Duration) {}
}

impl TurnBudget for InlineHost {
    fn is_metered(&self) -> bool {
        false
    }

    async fn reserve_ahead(&mut self, _: BudgetReservation) -> Result<(), Error> {
        Ok(())
    }
}

impl PartialReplies for InlineHost {
    async fn persist_partial_reply(&mut self, _: PartialReplyText) -> Result<(), Error> {
        Ok(())
    }
}

impl ConversationHost for InlineHost {
    async fn load_conversation(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn conversation(&mut self) -> &mut Conversation {
        &mut self.conversation
    }

    async fn compact(&mut self, compacted: CompactionRecord) -> Result<(), Error> {
        self.conversation.compact(compacted);
        Ok(())
    }
}

impl CallPermits for InlineHost {
    async fn request_permits(&mut self, requests: Vec<AdmissionRequest>) -> Result<(), Error> {
        if requests.is_empty() { Ok(()) } else { Err(not_durable("waiting for a rate limit")) }
    }

    fn take_permit_decisions(&mut self) -> Vec<AdmissionDecision> {
        Vec::new()
    }
}

impl CallWriteBuffer for InlineHost {
    fn buffer_values(&mut self, _: Vec<ValueWrite>) {}

    fn buffer_files(&mut self, _: Vec<Upload>) {}
}

impl TurnLifecycle for InlineHost {
    async fn checkpoint(
        &mut self,
        _: &CheckpointStep,
        ours: CheckpointOutcome,
    ) -> Result<CheckpointOutcome, Error> {
        Ok(ours)
    }

    async fn park(&mut self, _: Vec<Wait>) -> Result<DriveOutcome, Error> {
        Err(not_durable("pausing a turn"))
    }

    async fn hand_back(&mut self) -> Result<DriveOutcome, Error> {
        Err(not_durable("handing a turn to another worker"))
    }

    async fn finish(&mut self, done: EndedTurn) -> Result<DriveOutcome, Error> {
        Ok(DriveOutcome::Ended(done.end))
    }
}
