//! The host of a replay. It has the whole recording of a turn and performs nothing.
use super::Divergence;
use crate::host::{Asker, Driven, Host, Reserved, Tier};
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::History;
use outlast_kernel::spending::Spending;
use outlast_kernel::step::{AtCheckpoint, Done};
use outlast_ports::budget::Hold;
use outlast_ports::rate::{Pacing, Want};
use outlast_ports::store::{Said, Store, Upload, ValueWrite};
use outlast_vocab::budget::Amount;
use outlast_vocab::effect::{EffectKind, Joined, Place};
use outlast_vocab::record::{Compacted, End, Fact, Ruled, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Kind, ReplayKey};
use std::sync::Arc;
use std::time::Duration;

/// A host that answers from a recording only.
pub(super) struct Offline {
    history: Arc<History>,
    conversation: Conversation,
    /// The last effect that was reached.
    at: ReplayKey,
    /// The request that is not in the recording.
    beyond: Option<String>,
}

impl Offline {
    /// Creates the host of a turn with its recording.
    pub(super) fn new(history: History, index: u32) -> Self {
        let at = ReplayKey::turn(index);
        Self { history: Arc::new(history), conversation: Conversation::default(), at, beyond: None }
    }

    /// Returns the divergence from the recording, after the turn was driven.
    pub(super) fn divergence(self, driven: Result<Driven, Error>) -> Result<Option<Divergence>, Error> {
        let diverged = |recorded: String, asked: String, differences| {
            Ok(Some(Divergence { effect: self.at.clone(), recorded, asked, differences }))
        };
        match (driven, self.beyond) {
            (Err(_), Some(_)) if self.history.ended().is_none_or(ends_anywhere) => Ok(None),
            (Err(_), Some(asked)) => diverged(told(self.history.ended()), asked, Vec::new()),
            (Err(error), None) if matches!(error.kind(), Kind::JournalDiverged | Kind::CallChanged) => {
                let detail = error.detail().to_owned();
                diverged("another request".to_owned(), "what differs from it".to_owned(), vec![detail])
            }
            (Err(error), None) => Err(error),
            (Ok(Driven::Ended(now)), _) if self.history.ended() != Some(&now) => {
                if self.history.ended().is_none_or(ends_anywhere) {
                    return Ok(None);
                }
                let what = vec![format!("recorded {:?}", self.history.ended()), format!("now {now:?}")];
                diverged(told(self.history.ended()), told(Some(&now)), what)
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
fn ends_anywhere(end: &End) -> bool {
    match end {
        End::Cancelled { .. }
        | End::Aborted { .. }
        | End::Failed { .. }
        | End::Sealed { .. }
        | End::OutOfBudget { .. }
        | End::Joined { .. } => true,
        End::Answered { .. } | End::Refused { .. } | End::OutOfModelCalls { .. } => false,
    }
}

fn told(end: Option<&End>) -> String {
    end.map_or_else(|| "nothing".to_owned(), |end| format!("the end `{}`", end.name()))
}

impl Asker for Offline {
    async fn keep(&mut self, _: Said) -> Result<(), Error> {
        Ok(())
    }

    async fn reserve(&mut self, _: Hold) -> Result<Reserved, Error> {
        Ok(Reserved { last: Seq(0), short: None })
    }

    fn settle(&mut self, _: &ReplayKey, _: Option<Amount>) {}

    fn waited_for_provider(&mut self, _: Duration) {}
}

impl Host for Offline {
    fn tier(&self) -> Tier {
        Tier::Durable
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

    fn reach(&mut self, key: &ReplayKey, kind: EffectKind) -> Result<(), Error> {
        self.at = key.clone();
        // A cancelled turn stops before its next model call.
        let stops = kind == EffectKind::ModelCall && self.history.cancelled().is_some();
        if stops || self.history.has(key) { Ok(()) } else { Err(self.stop(format!("a {kind}"))) }
    }

    fn note(&mut self, _: Fact) {}

    fn ruled(&self, key: &ReplayKey) -> Option<&Ruled> {
        self.history.ruled(key)
    }

    fn spending(&self) -> Spending {
        self.history.spending()
    }

    fn note_values(&mut self, _: Vec<ValueWrite>) {}

    fn note_files(&mut self, _: Vec<Upload>) {}

    async fn want(&mut self, _: Vec<Want>) -> Result<(), Error> {
        Ok(())
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

    async fn compact(&mut self, _: Compacted) -> Result<(), Error> {
        Ok(())
    }

    async fn checkpoint(&mut self, at: &AtCheckpoint, ours: Joined) -> Result<Joined, Error> {
        self.at = at.key().clone();
        if let Some(joined) = self.history.answer(at.key(), &at.effect())? {
            return Ok(joined);
        }
        if ours.is_empty() || self.history.went_on_to(&at.next_model()) {
            return Ok(Joined::default());
        }
        Err(self.stop("an answer that is sent back".to_owned()))
    }

    async fn park(&mut self, _: Vec<Wait>) -> Result<Driven, Error> {
        Ok(Driven::Parked)
    }

    async fn hand_back(&mut self) -> Result<Driven, Error> {
        Ok(Driven::HandedBack)
    }

    async fn finish(&mut self, done: Done) -> Result<Driven, Error> {
        Ok(Driven::Ended(done.end))
    }
}
