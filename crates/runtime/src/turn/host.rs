//! Hosts record the outcomes of a turn's effects and answer from that record.
//!
//! The turn code is the same for all hosts. [`crate::turn::journaled_host`] records in a store, [`crate::turn::inline_host`]
//! records nothing. A host implements one trait per concern, so that code names only the concerns that it uses:
//!
//! | trait | concern |
//! |---|---|
//! | [`TurnJournal`] | the history of the turn, and the facts that the next write adds to it |
//! | [`BudgetReservations`] | budget for one effect: reserve, then settle |
//! | [`TurnBudget`] | whether the turn is metered, and reservations that are made ahead or cancelled |
//! | [`PartialReplies`] | the persisted text of an unfinished reply |
//! | [`ConversationHost`] | the messages before the turn |
//! | [`CallPermits`] | rate limits of tool calls |
//! | [`CallWriteBuffer`] | values and attachments that calls write |
//! | [`TurnLifecycle`] | checkpoints, parking, and the end of the turn |
//!
//! [`Host`] is all of them, for [`crate::turn::drive`].
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::step::{CheckpointStep, EndedTurn};
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::budget::{BudgetReservation, BudgetShortfall};
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_ports::store::Store;
use outlast_ports::turns::{ClaimedTurn, PartialReplyText, ValueWrite};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{CheckpointOutcome, EffectKind, JournalPosition};
use outlast_vocab::record::{CompactionRecord, Fact, PolicyDecided, Seq, TurnEnd};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, ReplayKey};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What a host guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTier {
    /// Outcomes survive a crash.
    Durable,
    /// Nothing is stored.
    Ephemeral,
}

/// The result of driving a turn.
#[derive(Debug)]
pub enum DriveOutcome {
    /// It ended.
    Ended(TurnEnd),
    /// It ended, and this is the session's next turn.
    Next(TurnEnd, Box<ClaimedTurn>),
    /// It is parked.
    Parked,
    /// The worker shuts down; another worker continues.
    HandedBack,
    /// It must be driven again from its journal: its wait is already over, or an input wants to join.
    Again,
}

/// The result of a budget reservation.
#[derive(Debug)]
pub struct ReservationOutcome {
    /// The position of the last record written.
    pub last: Seq,
    /// The budget that is too low, if any.
    pub short: Option<BudgetShortfall>,
}

/// The journal of one turn while it is driven.
///
/// Facts are buffered and written at the next [`TurnJournal::flush`], so that related facts share one write.
pub trait TurnJournal: Send {
    /// Returns what this host guarantees.
    fn tier(&self) -> HostTier;

    /// Returns the recorded history of the turn.
    fn history(&self) -> &Arc<TurnHistory>;

    /// Returns the position of the last message written.
    fn place(&self) -> Option<JournalPosition>;

    /// Returns the store behind this host, if any.
    fn store(&self) -> Option<&Arc<dyn Store>>;

    /// Returns the secret that signs completion keys.
    fn secret(&self) -> Option<[u8; 32]>;

    /// Announces the next effect. A host that performs nothing rejects an effect without a recorded outcome.
    fn begin_effect(&mut self, _: &ReplayKey, _: EffectKind) -> Result<(), Error> {
        Ok(())
    }

    /// Buffers a fact for the next write.
    fn buffer_fact(&mut self, fact: Fact);

    /// Buffers facts for the next write.
    fn buffer_facts(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            self.buffer_fact(fact);
        }
    }

    /// Writes the buffered facts. Returns the position of the last record.
    fn flush(&mut self) -> impl Future<Output = Result<Seq, Error>> + Send;

    /// Reads the history of the turn again, including everything written since.
    fn reread(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the policy's decision at this key, from the journal or from this drive.
    fn policy_ruling(&self, key: &ReplayKey) -> Option<&PolicyDecided>;

    /// Returns the cost of the turn so far.
    fn spending(&self) -> TurnCost;
}

/// Budget for one effect: reserved before it begins, settled when it is over.
pub trait BudgetReservations: Send {
    /// Writes the buffered facts and reserves budget for an effect. The effect may begin unless a budget is
    /// too low.
    fn reserve(
        &mut self,
        reservation: BudgetReservation,
    ) -> impl Future<Output = Result<ReservationOutcome, Error>> + Send;

    /// Settles what an effect used.
    fn settle(&mut self, key: &ReplayKey, used: UsageAmount) {
        self.settle_assumed(key, used, UsageAmount::ZERO);
    }

    /// Settles an effect whose usage is not fully known. `assumed` is the part of `used` that is assumed.
    fn settle_assumed(&mut self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount);

    /// Excludes time spent waiting for the provider from the budgets.
    fn exclude_provider_wait(&mut self, time: Duration);
}

/// The budgets of a whole turn.
pub trait TurnBudget: BudgetReservations {
    /// Whether budgets are tracked for this turn.
    fn is_metered(&self) -> bool;

    /// Writes the buffered facts, and reserves budget for an upcoming effect if enough is left.
    fn reserve_ahead(
        &mut self,
        reservation: BudgetReservation,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The persisted text of an unfinished reply, so that a model can continue it after a crash.
pub trait PartialReplies: Send {
    /// Persists text of an unfinished reply.
    fn persist_partial_reply(
        &mut self,
        partial_text: PartialReplyText,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the text of this model call that a dead process had persisted.
    fn persisted_partial_reply(
        &self,
        _: &ReplayKey,
    ) -> impl Future<Output = Result<Option<String>, Error>> + Send {
        std::future::ready(Ok(None))
    }
}

/// The messages before a turn.
pub trait ConversationHost: Send {
    /// Loads the messages before this turn, up to `bytes`.
    fn load_conversation(&mut self, bytes: usize) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the conversation before this turn. Call [`ConversationHost::load_conversation`] first.
    fn conversation(&mut self) -> &mut Conversation;

    /// Compacts the conversation that the model is shown.
    fn compact(&mut self, compacted: CompactionRecord) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Rate limits of tool calls.
pub trait CallPermits: Send {
    /// Buffers rate-limited calls. The next write checks their rate limits.
    fn request_permits(
        &mut self,
        requests: Vec<AdmissionRequest>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes the rate-limit decisions of the last write, in order. Empty if a budget was too low.
    fn take_permit_decisions(&mut self) -> Vec<AdmissionDecision>;
}

/// What calls write in addition to their answers. It is committed with the next write.
pub trait CallWriteBuffer: Send {
    /// Buffers values for the next write.
    fn buffer_values(&mut self, values: Vec<ValueWrite>);

    /// Buffers attachments for the next write.
    fn buffer_files(&mut self, files: Vec<Upload>);
}

/// The points where a turn lets others in, pauses or ends.
pub trait TurnLifecycle: Send {
    /// Collects what joins the turn here: waiting inputs, and `ours`, which the turn adds itself.
    fn checkpoint(
        &mut self,
        at: &CheckpointStep,
        ours: CheckpointOutcome,
    ) -> impl Future<Output = Result<CheckpointOutcome, Error>> + Send;

    /// Parks the turn.
    fn park(&mut self, waits: Vec<Wait>) -> impl Future<Output = Result<DriveOutcome, Error>> + Send;

    /// Hands the turn back, so that another worker can claim it.
    fn hand_back(&mut self) -> impl Future<Output = Result<DriveOutcome, Error>> + Send;

    /// Ends the turn.
    fn finish(&mut self, done: EndedTurn) -> impl Future<Output = Result<DriveOutcome, Error>> + Send;
}

/// Everything that driving a turn needs from its host.
pub trait Host:
    TurnJournal + TurnBudget + PartialReplies + ConversationHost + CallPermits + CallWriteBuffer + TurnLifecycle
{
}

impl<T> Host for T where
    T: TurnJournal
        + TurnBudget
        + PartialReplies
        + ConversationHost
        + CallPermits
        + CallWriteBuffer
        + TurnLifecycle
{
}
