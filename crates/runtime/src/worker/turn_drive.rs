//! Drives one turn under one lease until it ends, parks or is handed back.
use super::active_drives::{ActiveDrives, DriveHandles};
use super::hook_observers::{HookObservers, ObserverEvent};
use super::worker_agents::WorkerAgents;
use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::catalogue::CallingTurn;
use crate::calls::tool_runner::ToolServices;
use crate::limits::budget_meter::BudgetMeter;
use crate::limits::tool_limits::ExternalRateLimiter;
use crate::turn::cancel::StopSignals;
use crate::turn::conversation_cache::ConversationCache;
use crate::turn::drive::TurnDriver;
use crate::turn::host::DriveOutcome;
use crate::turn::journal_writer::{JournalWriter, WorkerJournal};
use crate::turn::journaled_host::{JournaledHost, JournaledHostConfig};
use crate::turn::model_request::backoff;
use crate::turn::provenance::TextSources;
use crate::turn::turn_conversation::TurnConversation;
use crate::turn::turn_permits::TurnPermits;
use crate::turn::turn_run::TurnRun;
use crate::views::metrics::TurnPhase;
use outlast_kernel::label::{of_hooks, of_supplied_messages};
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::retry::ReusableEffects;
use outlast_ports::budget::ReservationResult;
use outlast_ports::turns::{ClaimedTurn, CrashGuard, Lease, TrialState};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::record::{Fact, NodeRef, Record, Seq, TurnEnd, TurnResumed};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, Limits, Millis, OrgId, ReplayKey};
use std::sync::Arc;

/// How often a turn is driven under one lease after transient errors.
const DRIVES_PER_LEASE: u32 = 5;

/// Drives turns under their leases.
pub(super) struct LeasedTurnDriver {
    pub(super) drives: Arc<ActiveDrives>,
    pub(super) agents: Arc<WorkerAgents>,
    pub(super) hosts: SharedHostParts,
    pub(super) turn_driver: TurnDriver,
    pub(super) observers: HookObservers,
}

/// What the hosts of all turns share.
pub(super) struct SharedHostParts {
    pub(super) journal: Arc<WorkerJournal>,
    /// The secret that signs completion keys.
    pub(super) secret: [u8; 32],
    pub(super) conversations: Arc<ConversationCache>,
    pub(super) limiter: Option<ExternalRateLimiter>,
}

/// What is known about a turn under one lease, in addition to its records.
struct LeasedTurn {
    lease: Lease,
    org: OrgId,
    index: u32,
    head: String,
    /// The message that it follows.
    parent: Option<NodeRef>,
    /// The record that accepted its input.
    first: Seq,
    guard: CrashGuard,
    /// Whether it is a suspect that runs alone.
    alone: bool,
    /// Set if an earlier lease drove the turn and did not leave it parked.
    resumed: Option<TurnResumed>,
}

/// One turn under one lease.
struct LeasedDrive<'a> {
    driver: &'a LeasedTurnDriver,
    turn: LeasedTurn,
    handles: DriveHandles,
}

/// Returns the phase that a turn was in before it was claimed, and since when. Only for turns that no dead worker left
/// behind.
fn phase_before(records: &[Record]) -> Option<(TurnPhase, Millis)> {
    let held_still = |record: &&Record| matches!(record.fact, Fact::Parked { .. } | Fact::Stuck { .. });
    match records.iter().rfind(held_still) {
        Some(record) => Some((TurnPhase::Waiting, record.at)),
        None => records.first().map(|accepted| (TurnPhase::Queued, accepted.at)),
    }
}

impl LeasedTurnDriver {
    /// Returns what writes the journals of the turns.
    pub(super) fn journal(&self) -> &WorkerJournal {
        &self.hosts.journal
    }

    /// Drives a turn until it ends, parks or is handed back. After a transient error it is driven again from its
    /// journal. If a person has to fix the error, the turn gets stuck. Any other error ends it.
    pub(super) async fn drive(
        &self,
        work: ClaimedTurn,
        handles: DriveHandles,
    ) -> Result<DriveOutcome, Error> {
        let ClaimedTurn { lease, index, head, parent, guard, trial, records, hold_result, org, resumed } =
            work;
        let since = self.journal().clock.now();
        if !resumed && let Some((phase, began)) = phase_before(&records) {
            self.journal().metrics.passed(phase, began.until(since));
        }
        let Lease { worker, fence, .. } = lease;
        let resumed = resumed.then_some(TurnResumed { worker, lease: fence.0, since });
        let first = records.first().map_or(Seq(0), |record| record.seq);
        let alone = trial.is_some();
        let turn = LeasedTurn { lease, org, index, head, parent, first, guard, alone, resumed };
        LeasedDrive { driver: self, turn, handles }.run(records, hold_result).await
    }

    /// Releases the lease of a session that cannot be driven now.
    pub(super) async fn hand_back(&self, lease: Lease) {
        // If this fails too, the lease expires, because leases without a driver are not renewed.
        let WorkerJournal { store, clock, limits, .. } = self.journal();
        clock.sleep(limits.backoff_first).await;
        if let Err(error) = store.release_lease(lease, clock.now()).await {
            tracing::warn!(%error, "a session could not be handed back");
        }
    }
}

impl LeasedDrive<'_> {
    /// Drives the turn from these records. `hold` is the reservation for its first model call.
    async fn run(
        &self,
        mut records: Vec<Record>,
        mut hold: Option<ReservationResult>,
    ) -> Result<DriveOutcome, Error> {
        let WorkerJournal { store, clock, limits, .. } = self.driver.journal();
        let turn = self.turn.lease.turn;
        let mut tries = 0;
        loop {
            let hold = hold.take();
            let driven = Box::pin(self.once(records, hold.as_ref())).await;
            let error = match driven {
                Ok(DriveOutcome::Again) => {
                    records = store.turn_records(turn).await?;
                    continue;
                }
                Ok(driven) => return Ok(driven),
                Err(error) if error.kind() == Kind::LeaseLost => return Err(error),
                Err(error) => error,
            };
            tries += 1;
            let enough = tries >= DRIVES_PER_LEASE || self.driver.drives.is_stopping();
            if error.class() == Class::Retry && enough {
                return Err(error);
            }
            records = store.turn_records(turn).await?;
            if error.class() == Class::Retry {
                tracing::warn!(%error, tries, "the turn is resumed from its journal");
                let Limits { backoff_first, backoff_most, .. } = **limits;
                clock.sleep(backoff(backoff_first, backoff_most, tries)).await;
                continue;
            }
            match self.give_up(&error, records, hold.as_ref()).await? {
                DriveOutcome::Again => records = store.turn_records(turn).await?,
                driven => return Ok(driven),
            }
        }
    }

    /// Returns the parameters of the host that records the turn. `hold` is the reservation for its first model call.
    fn host_config(
        &self,
        history: TurnHistory,
        agent: Option<&ResolvedAgent>,
        hold: Option<&ReservationResult>,
    ) -> JournaledHostConfig {
        let LeasedTurnDriver { drives, agents, hosts, turn_driver, .. } = self.driver;
        let ToolServices { models, budgets: operator_budgets, .. } = turn_driver.services();
        let LeasedTurn { lease, org, index, ref head, parent, first, resumed, .. } = self.turn;
        let budgets = agent.map(|agent| agents.registry.budgets(agent, OrgVisibility::Org(org)));
        let now = hosts.journal.clock.now();
        let (journal, stopping) = (hosts.journal.clone(), drives.stopping());
        let parent = history.started().map_or(parent, |started| started.parent);
        JournaledHostConfig {
            writer: JournalWriter { journal, lease, stopping },
            secret: hosts.secret,
            history,
            canceller: self.handles.canceller.clone(),
            head: head.clone(),
            conversation: TurnConversation::new(hosts.conversations.clone(), parent, first),
            resumed,
            permits: TurnPermits::new(org, hosts.limiter.clone()),
            meter: Some(BudgetMeter::of(agent, budgets, &models.catalogue, hold, index, now)),
            operator_budgets: operator_budgets.clone(),
        }
    }

    /// Drives the turn once, from these records.
    async fn once(
        &self,
        records: Vec<Record>,
        hold: Option<&ReservationResult>,
    ) -> Result<DriveOutcome, Error> {
        let LeasedTurnDriver { drives, agents, turn_driver, .. } = self.driver;
        let LeasedTurn { lease, org, index, guard, alone, .. } = &self.turn;
        let history = self.history(records).await?;
        if let Some(reason) = history.cancelled() {
            self.handles.canceller.cancel(reason);
        }
        let input = history.accepted().cloned().ok_or_else(|| {
            Error::new(Kind::RecordCorrupt, format!("{} has no record of its input", lease.turn))
        })?;
        if guard.is_guilty() {
            let resolved_agent = agents.of_turn(&history, *org).await.ok();
            let hung = guard.trial == TrialState::Hung;
            let end = TurnEnd::Sealed { claims: guard.deaths, alone: guard.alone, hung };
            let driven = JournaledHost::aside(self.host_config(history, resolved_agent.as_deref(), hold))
                .close(end, resolved_agent.as_deref(), &turn_driver.services().payments)
                .await?;
            return Ok(self.observed(resolved_agent.as_ref(), driven));
        }
        let resolved_agent = agents.of_turn(&history, *org).await?;
        drives.is_answered_by(lease, &resolved_agent.package.agent);
        let config = self.host_config(history, Some(&resolved_agent), hold);
        let labels = match config.history.started() {
            Some(started) => started.labels.clone(),
            None if resolved_agent.keeps_labels() => {
                let mut labels = agents.labels(self.turn.parent).await?;
                labels.extend(of_supplied_messages(&input.before, &resolved_agent.contracts));
                // Reused replies were written by a model that had read what hooks told it.
                labels.extend(config.history.reusable().labels(&resolved_agent.package.hooks));
                Some(labels)
            }
            None => None,
        };
        let mut inherited = match &labels {
            Some(labels) => labels.clone(),
            // It started without labels and may have read anything since.
            None if resolved_agent.keeps_labels() => Labels::from_iter([UntrustedSource::Before]),
            None => Labels::default(),
        };
        if resolved_agent.keeps_labels() {
            inherited.extend(of_hooks(&config.history, &resolved_agent.package.hooks));
        }
        let parent = self.turn.parent;
        let mut host = JournaledHost::open(config, &resolved_agent, labels);
        let stop = StopSignals {
            cancel: self.handles.cancel.clone(),
            // A suspect that runs alone does not yield. The others do.
            stopping: if *alone { drives.stopping() } else { drives.yielding() },
        };
        let (caller, lease) = (self.caller(), lease.fence.0);
        let run = TurnRun { agent: &resolved_agent, caller, index: *index, lease, org: Some(*org) };
        let sources = TextSources::new(inherited, parent);
        let driven = turn_driver.drive(run, &sources, &stop, input, &mut host).await?;
        Ok(self.observed(Some(&resolved_agent), driven))
    }

    fn caller(&self) -> CallingTurn {
        let Lease { session, turn, .. } = self.turn.lease;
        CallingTurn { session, turn }
    }

    /// Builds the history of the turn from its records and from the turn that it retries.
    async fn history(&self, records: Vec<Record>) -> Result<TurnHistory, Error> {
        let history = TurnHistory::of(records)?;
        let Some(original) = history.accepted().and_then(|accepted| accepted.retry_of) else {
            return Ok(history);
        };
        let records = self.driver.journal().store.turn_records(original).await?;
        Ok(history.with_reusable(ReusableEffects::of(&records, self.turn.index)?))
    }

    /// Runs observer hooks if the turn has ended.
    fn observed(&self, resolved_agent: Option<&Arc<ResolvedAgent>>, driven: DriveOutcome) -> DriveOutcome {
        if let (DriveOutcome::Ended(end) | DriveOutcome::Next(end, _), Some(resolved_agent)) =
            (&driven, resolved_agent)
        {
            self.observe(resolved_agent, ObserverEvent::End(end.clone()));
        }
        driven
    }

    fn observe(&self, resolved_agent: &Arc<ResolvedAgent>, event: ObserverEvent) {
        self.driver.observers.notify(resolved_agent, self.caller(), self.turn.index, event);
    }

    /// Ends or parks the turn after an error that cannot be retried.
    async fn give_up(
        &self,
        error: &Error,
        records: Vec<Record>,
        hold: Option<&ReservationResult>,
    ) -> Result<DriveOutcome, Error> {
        let LeasedTurnDriver { agents, turn_driver, .. } = self.driver;
        let (WorkerJournal { clock, limits, .. }, payments) =
            (self.driver.journal(), &turn_driver.services().payments);
        let LeasedTurn { index, org, .. } = self.turn;
        let effect = error.place().effect.map(tracing::field::display);
        tracing::error!(%error, effect, "the turn cannot continue");
        // End or park the turn even if the turn that it retries cannot be read.
        let history = match self.history(records.clone()).await {
            Ok(history) => history,
            Err(_) => TurnHistory::of(records)?,
        };
        let times = history.stuck_count();
        let key = ReplayKey::turn(index).stuck(times);
        let stop = history.cancelled().map(ToOwned::to_owned);
        let stop = stop.map(|reason| history.end_stopped(index, reason));
        let resolved_agent = agents.of_turn(&history, org).await.ok();
        let mut host = JournaledHost::aside(self.host_config(history, resolved_agent.as_deref(), hold));
        let failure = Failure::from(error);
        if let Some(resolved_agent) = &resolved_agent {
            self.observe(resolved_agent, ObserverEvent::Error(failure.clone()));
        }
        let driven = match (error.class(), stop) {
            (_, Some(end)) => host.close(end, resolved_agent.as_deref(), payments).await?,
            (Class::Reject, None) => {
                host.close(TurnEnd::Failed { failure }, resolved_agent.as_deref(), payments).await?
            }
            (Class::Retry | Class::Park | Class::Bug, None) => {
                let pause = backoff(limits.stuck_first, limits.stuck_most, times + 1);
                let deadline = Some(clock.now().after(pause));
                let wait = Wait { key, kind: WaitKind::Event, deadline };
                host.park_stuck(failure, wait).await?
            }
        };
        Ok(self.observed(resolved_agent.as_ref(), driven))
    }
}
