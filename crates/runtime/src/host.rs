//! Hosts: where the outcomes of a turn's effects are kept, and from where they are answered (R3).
//!
//! The turn code is the same for all. [`crate::journaled`] keeps them in a store, [`crate::inline`] keeps nothing.
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::History;
use outlast_kernel::spending::Spending;
use outlast_kernel::step::{AtCheckpoint, Done};
use outlast_ports::budget::{Hold, Short};
use outlast_ports::rate::{Pacing, Want};
use outlast_ports::store::{Said, Store, Upload, ValueWrite, Work};
use outlast_vocab::budget::Amount;
use outlast_vocab::effect::{EffectKind, Joined, Place};
use outlast_vocab::record::{Compacted, End, Fact, Ruled, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, ReplayKey};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What a host promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// What was answered stays answered.
    Durable,
    /// Nothing is kept.
    Ephemeral,
}

/// What became of a turn that was driven.
#[derive(Debug)]
pub enum Driven {
    /// It is over.
    Ended(End),
    /// It is over, and this is the session's next turn.
    Next(End, Box<Work>),
    /// It holds still.
    Parked,
    /// The worker shuts down; another one goes on.
    HandedBack,
    /// It has to be driven again from its journal: what it wanted to wait for is there, or an input wants to join.
    Again,
}

/// What became of a wish to reserve.
#[derive(Debug)]
pub struct Reserved {
    /// The place of the last record that was written.
    pub last: Seq,
    /// The budget that has not enough left, if one has not.
    pub short: Option<Short>,
}

/// What a question to a model needs of whoever asks it.
pub trait Asker: Send {
    /// Makes durable what was said of a reply that is not whole yet (R5.5).
    fn keep(&mut self, said: Said) -> impl Future<Output = Result<(), Error>> + Send;

    /// Writes what was noted, and reserves for an effect that is about to begin. It may begin unless a budget is short.
    fn reserve(&mut self, hold: Hold) -> impl Future<Output = Result<Reserved, Error>> + Send;

    /// Notes what an effect used; none is all that was reserved for it.
    fn settle(&mut self, key: &ReplayKey, used: Option<Amount>);

    /// Notes time that went by because the provider did not answer. No budget counts it.
    fn waited_for_provider(&mut self, time: Duration);
}

/// Keeps the facts of one turn while it is driven.
///
/// Facts are noted first and written at the next [`Host::flush`], so that what belongs together is one write.
pub trait Host: Asker {
    /// What this host promises.
    fn tier(&self) -> Tier;

    /// What is known of the turn from before.
    fn history(&self) -> &Arc<History>;

    /// The last message that is written.
    fn place(&self) -> Option<Place>;

    /// The store behind it, for those who read values.
    fn store(&self) -> Option<&Arc<dyn Store>>;

    /// What signs completion keys.
    fn secret(&self) -> Option<[u8; 32]>;

    /// Says which effect comes now. A host that performs nothing refuses what it has no answer for.
    fn reach(&mut self, _: &ReplayKey, _: EffectKind) -> Result<(), Error> {
        Ok(())
    }

    /// Remembers a fact for the next write.
    fn note(&mut self, fact: Fact);

    /// Remembers facts for the next write.
    fn note_all(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            self.note(fact);
        }
    }

    /// What a policy decided of what is at this place, before this drive or in it.
    fn ruled(&self, key: &ReplayKey) -> Option<&Ruled>;

    /// What the turn has cost so far.
    fn spending(&self) -> Spending;

    /// Remembers values for the next write.
    fn note_values(&mut self, values: Vec<ValueWrite>);

    /// Remembers attachments for the next write.
    fn note_files(&mut self, files: Vec<Upload>);

    /// Remembers calls that want to go out for the next write, which asks their rates.
    fn want(&mut self, wants: Vec<Want>) -> impl Future<Output = Result<(), Error>> + Send;

    /// What the last write made of calls that wanted to go out, in their order; nothing if a budget was short.
    fn paced(&mut self) -> Vec<Pacing>;

    /// What was kept of the reply to this model call, by a process that died.
    fn said(&self, key: &ReplayKey) -> impl Future<Output = Result<Option<String>, Error>> + Send;

    /// Writes what was noted; gives the place of the last record.
    fn flush(&mut self) -> impl Future<Output = Result<Seq, Error>> + Send;

    /// Whether what the turn uses is counted.
    fn is_metered(&self) -> bool;

    /// Notes what calls used that were cut short, and what of that nobody knows.
    fn cut_short(&mut self, _: &ReplayKey, _used: Amount, _lost: Amount) {}

    /// Writes what was noted, and reserves for an effect that will begin soon, if a budget has enough left for it.
    fn reserve_ahead(&mut self, hold: Hold) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads anew what is known of the turn, with what was written since.
    fn reread(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads the messages before this turn, as far as `bytes` go.
    fn recall(&mut self, bytes: usize) -> impl Future<Output = Result<(), Error>> + Send;

    /// The conversation before this turn, once it was recalled.
    fn conversation(&mut self) -> &mut Conversation;

    /// Shows the model less of it from now on (R4.10).
    fn compact(&mut self, compacted: Compacted) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes in what joins the turn here: inputs that wait for it, and `ours`, which the turn itself adds to them.
    fn checkpoint(
        &mut self,
        at: &AtCheckpoint,
        ours: Joined,
    ) -> impl Future<Output = Result<Joined, Error>> + Send;

    /// Holds the turn still.
    fn park(&mut self, waits: Vec<Wait>) -> impl Future<Output = Result<Driven, Error>> + Send;

    /// Gives the turn to another worker.
    fn hand_back(&mut self) -> impl Future<Output = Result<Driven, Error>> + Send;

    /// Ends the turn.
    fn finish(&mut self, done: Done) -> impl Future<Output = Result<Driven, Error>> + Send;
}
