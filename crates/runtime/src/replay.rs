//! Replays the turns of a session from its archive: every effect is answered from the file, nothing is performed (R14.7).
//!
//! The turns are driven by the code that drives real ones, on a host that has the whole recording and refuses everything that
//! is not in it. Without an agent they run under the packages they were recorded under; with one they run under that, and the
//! first effect that would have been another one is named.
mod differs;
mod offline;

use crate::archive::import;
use crate::attachments::Attachments;
use crate::cancel::cancel;
use crate::catalogue::{Caller, Catalogue};
use crate::drive::{Turn, TurnInput, drive};
use crate::hooks::Heard;
use crate::outfit::{Outfit, World};
use crate::outfits::read;
use crate::provenance::EarlierText;
use crate::system::{SystemClock, SystemEntropy};
use differs::{of_package, of_policy};
use offline::Offline;
use outlast_kernel::replay::History;
use outlast_ports::memory::Memory;
use outlast_ports::store::{Store, TurnView};
use outlast_vocab::package::Pinned;
use outlast_vocab::record::{Accepted, End, Fact, Record, Started};
use outlast_vocab::{Error, Kind, Limits, Millis, ReplayKey, SessionId, TurnId};
use serde::Serialize;
use std::io::{Read, Seek};
use std::sync::Arc;
use tokio::sync::watch;

/// What came of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The session.
    pub session: SessionId,
    /// Its turns, in the order they were accepted.
    pub turns: Vec<ReplayedTurn>,
}

impl Replay {
    /// The first place where a turn parts from its recording, if one does.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.turns.iter().find_map(|turn| turn.divergence.as_ref())
    }

    /// The error of a replay that diverged.
    pub fn error(&self) -> Option<Error> {
        let Divergence { effect, recorded, asked, .. } = self.divergence()?;
        let detail = format!("effect {effect} was recorded as {recorded}, but this run asks for {asked}");
        Some(Error::new(Kind::ReplayDiverged, detail))
    }
}

/// One turn of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayedTurn {
    /// The turn.
    pub turn: TurnId,
    /// Which turn of the session, counted from 0.
    pub index: u32,
    /// How many effects it has in the recording.
    pub effects: usize,
    /// How it ended there, in one word; none if it was not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
    /// Where it parts from the recording, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
}

/// The first effect of a turn that is not as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The effect.
    pub effect: ReplayKey,
    /// What was recorded there.
    pub recorded: String,
    /// What is asked for now.
    pub asked: String,
    /// What differs, a line each.
    pub differences: Vec<String>,
}

/// Replays the session of an archive: as it was recorded, or as this agent would have it.
pub async fn replay(
    from: impl Read + Seek + Send + 'static,
    agent: Option<&Pinned>,
    limits: &Limits,
) -> Result<Replay, Error> {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let attachments = Attachments::new(store.clone(), None, limits.clone());
    let session = import(store.as_ref(), &attachments, from, None, Millis(0)).await?.session;
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let world = World::new(Vec::new(), Catalogue::new(Vec::new())?, clock, entropy, limits.clone());
    let replaying = Replaying { world: Arc::new(world), store, agent };
    let mut turns = Vec::new();
    for view in replaying.store.turns(session, 0, usize::MAX).await? {
        turns.push(replaying.turn(&view).await?);
    }
    Ok(Replay { session, turns })
}

struct Replaying<'a> {
    /// A world that has nothing in it.
    world: Arc<World>,
    store: Arc<dyn Store>,
    agent: Option<&'a Pinned>,
}

impl Replaying<'_> {
    async fn turn(&self, view: &TurnView) -> Result<ReplayedTurn, Error> {
        let records = self.store.turn_records(view.id).await?;
        let effects: Vec<ReplayKey> =
            records.iter().filter_map(|record| effect(&record.fact)).cloned().collect();
        let divergence = self.divergence(view, records, &effects).await?;
        let end = view.end.as_ref().map(End::name);
        Ok(ReplayedTurn { turn: view.id, index: view.index, effects: effects.len(), end, divergence })
    }

    async fn divergence(
        &self,
        view: &TurnView,
        records: Vec<Record>,
        effects: &[ReplayKey],
    ) -> Result<Option<Divergence>, Error> {
        let history = History::of(records.clone())?;
        let (Some(started), Some(accepted)) = (history.started().cloned(), history.accepted().cloned())
        else {
            // What never began asked for nothing.
            return Ok(None);
        };
        let recorded = read(self.store.as_ref(), started.package).await?;
        let now = self.agent.unwrap_or(&recorded);
        let outfit = Arc::new(Outfit::offline(now, &self.world)?);
        if let Some(found) = of_package(&records, &recorded, now) {
            return Ok(Some(found));
        }
        let by_rules = match self.agent {
            Some(_) => of_policy(&records, &Outfit::offline(&recorded, &self.world)?, &outfit).await,
            None => None,
        };
        let driven = self.drive(view, history, &outfit, &started, &accepted).await?;
        // The one that comes first in the recording; what is not in it comes last.
        let place =
            |found: &Divergence| effects.iter().position(|key| found.effect == *key).unwrap_or(usize::MAX);
        Ok([by_rules, driven].into_iter().flatten().min_by_key(place))
    }

    async fn drive(
        &self,
        view: &TurnView,
        history: History,
        outfit: &Arc<Outfit>,
        started: &Started,
        accepted: &Accepted,
    ) -> Result<Option<Divergence>, Error> {
        let (canceller, wish) = cancel();
        if let Some(reason) = history.cancelled() {
            canceller.cancel(reason);
        }
        let stopping = watch::Sender::new(false);
        let labels = started.labels.clone().unwrap_or_default();
        let turn = Turn {
            world: &self.world,
            outfit,
            org: None,
            caller: Caller { session: view.session, turn: view.id },
            index: view.index,
            lease: 1,
            labels: &labels,
            earlier: &EarlierText::default(),
            heard: Heard::default(),
            cancel: wish,
            stopping: stopping.subscribe(),
        };
        let Accepted { before, parts, output, .. } = accepted.clone();
        let input = TurnInput { before, parts, output };
        let mut host = Offline::new(history, view.index);
        let driven = drive(&turn, input, &mut host).await;
        host.divergence(driven)
    }
}

/// The effect that a record is of, if it is the first of it.
fn effect(fact: &Fact) -> Option<&ReplayKey> {
    match fact {
        Fact::Performed(performed) => Some(&performed.key),
        Fact::Asked(asked) => Some(&asked.key),
        _ => None,
    }
}
