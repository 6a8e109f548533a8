//! Replays the turns of an archived session. Every effect is answered from the archive, and nothing is performed.
//!
//! The turns are driven by the code that drives real turns, on a host that has the recording and rejects everything
//! else. Without an agent, turns run under the packages they were recorded with. With one, they run under that agent,
//! and the replay reports the first effect that differs.
//!
//! [`rerun`](mod@rerun) is the other way to use a recording: the turns run for real, under another agent.
mod agent_comparison;
mod recorded_answers;
mod recording_host;
pub mod rerun;
mod rerun_comparison;

use crate::agents::agent_registry::read;
use crate::agents::agent_resolver::AgentResolver;
use crate::agents::resolved_agent::ResolvedAgent;
use crate::archive::import;
use crate::attachments::Attachments;
use crate::calls::catalogue::{CallingTurn, ToolCatalogue};
use crate::turn::cancel::{StopSignals, cancel};
use crate::turn::drive::TurnDriver;
use crate::turn::model_client::ModelCatalogue;
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use crate::worker::system::{SystemClock, SystemEntropy};
use agent_comparison::{of_package, of_policy};
use outlast_kernel::replay::TurnHistory;
use outlast_ports::store::Store;
use outlast_views::TurnView;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::record::{Fact, Record, TurnAccepted, TurnEnd, TurnStarted};
use outlast_vocab::{Error, Kind, Limits, Millis, ReplayKey, SessionId, TurnId};
use recording_host::RecordingHost;
use serde::Serialize;
use std::io::{Read, Seek};
use std::sync::Arc;
use tokio::sync::watch;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The session.
    pub session: SessionId,
    /// Its turns, in the order in which they were accepted.
    pub turns: Vec<ReplayedTurn>,
}

impl Replay {
    /// Returns the first divergence from the recording, if there is one.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.turns.iter().find_map(|turn| turn.divergence.as_ref())
    }

    /// Returns the first divergence as an error.
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
    /// The index of the turn in its session, from 0.
    pub index: u32,
    /// The number of effects in the recording.
    pub effects: usize,
    /// How it ended in the recording. `None` if it had not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
    /// The divergence from the recording, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
}

/// The first effect of a turn that differs from the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The effect.
    pub effect: ReplayKey,
    /// What was recorded.
    pub recorded: String,
    /// What this run asks for.
    pub asked: String,
    /// The differences, one per line.
    pub differences: Vec<String>,
}

/// Replays the session of an archive, as recorded or under another agent. `store` is an empty store that gets the
/// session.
pub async fn replay(
    store: Arc<dyn Store>,
    from: impl Read + Seek + Send + 'static,
    agent: Option<&PinnedPackage>,
    limits: &Limits,
) -> Result<Replay, Error> {
    let limits = Arc::new(limits.clone());
    let attachments = Attachments::new(store.clone(), None, limits.clone());
    let session = import(store.as_ref(), &attachments, from, None, Millis(0)).await?.session;
    // There are no models and no tools, because nothing is performed.
    let (models, clock) = (Arc::new(ModelCatalogue::new(Vec::new())), Arc::new(SystemClock));
    let driver = TurnDriver::new(models.clone(), clock.clone(), Arc::new(SystemEntropy), limits.clone());
    let resolver = AgentResolver::new(models, ToolCatalogue::new(Vec::new())?, clock, limits);
    let replaying = ArchiveReplay { driver, resolver, store, agent };
    let mut turns = Vec::new();
    for view in replaying.store.turns(session, 0, usize::MAX).await? {
        turns.push(replaying.turn(&view).await?);
    }
    Ok(Replay { session, turns })
}

struct ArchiveReplay<'a> {
    driver: TurnDriver,
    resolver: AgentResolver,
    store: Arc<dyn Store>,
    agent: Option<&'a PinnedPackage>,
}

impl ArchiveReplay<'_> {
    async fn turn(&self, view: &TurnView) -> Result<ReplayedTurn, Error> {
        let records = self.store.turn_records(view.id).await?;
        let effects: Vec<ReplayKey> =
            records.iter().filter_map(|record| effect(&record.fact)).cloned().collect();
        let divergence = self.divergence(view, records, &effects).await?;
        let end = view.end.as_ref().map(TurnEnd::name);
        Ok(ReplayedTurn { turn: view.id, index: view.index, effects: effects.len(), end, divergence })
    }

    async fn divergence(
        &self,
        view: &TurnView,
        records: Vec<Record>,
        effects: &[ReplayKey],
    ) -> Result<Option<Divergence>, Error> {
        let history = TurnHistory::of(records.clone())?;
        let (Some(started), Some(accepted)) = (history.started().cloned(), history.accepted().cloned())
        else {
            // A turn that never started has no effects.
            return Ok(None);
        };
        let recorded = read(self.store.as_ref(), started.package).await?;
        let now = self.agent.unwrap_or(&recorded);
        let resolved_agent = Arc::new(ResolvedAgent::offline(now, &self.resolver)?);
        if let Some(found) = of_package(&records, &recorded, now) {
            return Ok(Some(found));
        }
        let by_rules = match self.agent {
            Some(_) => {
                of_policy(&records, &ResolvedAgent::offline(&recorded, &self.resolver)?, &resolved_agent)
                    .await
            }
            None => None,
        };
        let driven = self.drive(view, history, &resolved_agent, started, accepted).await?;
        // Report the one that comes first in the recording. Effects that are not in it come last.
        let place =
            |found: &Divergence| effects.iter().position(|key| found.effect == *key).unwrap_or(usize::MAX);
        Ok([by_rules, driven].into_iter().flatten().min_by_key(place))
    }

    async fn drive(
        &self,
        view: &TurnView,
        history: TurnHistory,
        resolved_agent: &Arc<ResolvedAgent>,
        started: TurnStarted,
        accepted: TurnAccepted,
    ) -> Result<Option<Divergence>, Error> {
        let (canceller, cancel_signal) = cancel();
        if let Some(reason) = history.cancelled() {
            canceller.cancel(reason);
        }
        let stop = StopSignals { cancel: cancel_signal, stopping: watch::Sender::new(false).subscribe() };
        let sources = TextSources::new(started.labels.unwrap_or_default(), None);
        let caller = CallingTurn { session: view.session, turn: view.id };
        let run = TurnRun { agent: resolved_agent, caller, index: view.index, lease: 1, org: None };
        let mut host = RecordingHost::new(history, view.index);
        let driven = Box::pin(self.driver.drive(run, &sources, &stop, accepted, &mut host)).await;
        host.divergence(driven)
    }
}

/// Returns the key of the effect that a record begins, if it begins one.
fn effect(fact: &Fact) -> Option<&ReplayKey> {
    match fact {
        Fact::Performed(performed) => Some(&performed.key),
        Fact::Asked(asked) => Some(&asked.key),
        _ => None,
    }
}
