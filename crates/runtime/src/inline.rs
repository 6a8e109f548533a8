//! The host that stores nothing: for scripts, tests and baseline benchmarks.
use crate::host::{Asker, Driven, Host, Reserved, Tier};
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::History;
use outlast_kernel::spending::Spending;
use outlast_kernel::step::{AtCheckpoint, Done};
use outlast_ports::budget::Hold;
use outlast_ports::rate::{Pacing, Want};
use outlast_ports::store::{Said, Store, Upload, ValueWrite};
use outlast_vocab::budget::Amount;
use outlast_vocab::effect::{Joined, Place};
use outlast_vocab::message::Message;
use outlast_vocab::record::{Compacted, Fact, Ruled, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Kind, ReplayKey, TurnId};
use std::sync::Arc;
use std::time::Duration;

/// Stores nothing. Operations that need durability (durable steps, waits, pending completions) fail.
#[derive(Debug, Default)]
pub struct Inline {
    history: Arc<History>,
    conversation: Conversation,
    spending: Spending,
    ruled: Vec<Ruled>,
}

impl Inline {
    /// Creates a host for a turn that follows these messages.
    pub fn after(earlier: Vec<Message>) -> Self {
        let mut conversation = Conversation::default();
        conversation.push(TurnId::from_u128(0), earlier);
        Self { conversation, ..Self::default() }
    }
}

/// The error for operations that need a durable host.
pub(crate) fn not_durable(what: &str) -> Error {
    Error::new(Kind::HostNotDurable, format!("{what} needs a durable host, but this one keeps nothing"))
}

impl Asker for Inline {
    async fn keep(&mut self, _: Said) -> Result<(), Error> {
        Ok(())
    }

    async fn reserve(&mut self, _: Hold) -> Result<Reserved, Error> {
        Ok(Reserved { last: Seq(0), short: None })
    }

    fn settle(&mut self, _: &ReplayKey, _: Option<Amount>) {}

    fn waited_for_provider(&mut self, _: Duration) {}
}

impl Host for Inline {
    fn tier(&self) -> Tier {
        Tier::Ephemeral
    }

    fn history(&self) -> &Arc<History> {
        &self.history
    }

    fn place(&self) -> Option<Place> {
        None
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        None
    }

    fn secret(&self) -> Option<[u8; 32]> {
        None
    }

    fn note(&mut self, fact: Fact) {
        self.spending.take(&fact);
        if let Fact::Ruled(ruled) = fact {
            self.ruled.push(ruled);
        }
    }

    fn ruled(&self, key: &ReplayKey) -> Option<&Ruled> {
        self.ruled.iter().find(|ruled| ruled.key == *key)
    }

    fn spending(&self) -> Spending {
        self.spending
    }

    fn note_values(&mut self, _: Vec<ValueWrite>) {}

    fn note_files(&mut self, _: Vec<Upload>) {}

    async fn want(&mut self, wants: Vec<Want>) -> Result<(), Error> {
        if wants.is_empty() { Ok(()) } else { Err(not_durable("keeping to a rate")) }
    }

    fn paced(&mut self) -> Vec<Pacing> {
        Vec::new()
    }

    async fn said(&self, _: &ReplayKey) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn flush(&mut self) -> Result<Seq, Error> {
        Ok(Seq(0))
    }

    fn is_metered(&self) -> bool {
        false
    }

    async fn reserve_ahead(&mut self, _: Hold) -> Result<(), Error> {
        Ok(())
    }

    async fn reread(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn recall(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn conversation(&mut self) -> &mut Conversation {
        &mut self.conversation
    }

    async fn compact(&mut self, compacted: Compacted) -> Result<(), Error> {
        self.conversation.compact(compacted);
        Ok(())
    }

    async fn checkpoint(&mut self, _: &AtCheckpoint, ours: Joined) -> Result<Joined, Error> {
        Ok(ours)
    }

    async fn park(&mut self, _: Vec<Wait>) -> Result<Driven, Error> {
        Err(not_durable("holding a turn still"))
    }

    async fn hand_back(&mut self) -> Result<Driven, Error> {
        Err(not_durable("giving a turn to another worker"))
    }

    async fn finish(&mut self, done: Done) -> Result<Driven, Error> {
        Ok(Driven::Ended(done.end))
    }
}
