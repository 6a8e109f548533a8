//! Drives one turn under one lease until it ends, parks or is handed back.
use super::active_drives::DriveHandles;
use super::{WorkerState, suspect_trial};
use crate::agents::agent_registry;
use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::catalogue::Caller;
use crate::limits::budget_meter::BudgetMeter;
use crate::policy::hooks::{EffectHooks, HookLabels};
use crate::turn::cancel::StopSignals;
use crate::turn::host::DriveOutcome;
use crate::turn::journal_writer::JournalWriter;
use crate::turn::journaled_host::{JournaledHost, JournaledHostConfig};
use crate::turn::model_request::backoff;
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use crate::views::metrics::TurnPhase;
use outlast_kernel::label::{TurnToolsAndHooks, of_hooks, of_supplied_messages, of_turn};
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::retry::ReusableEffects;
use outlast_ports::turns::{ClaimedTurn, CrashGuard, Lease, TrialState};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::record::{Fact, NodeRef, Record, Seq, TurnEnd, TurnResumed};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, Limits, Millis, OrgId, ReplayKey};
use std::sync::Arc;
use tracing::Instrument;

/// How often a turn is driven under one lease after transient errors.
const DRIVES_PER_LEASE: u32 = 5;

/// Drives the turns of a session until none is left or the lease is lost.
pub(super) async fn drive_session(inner: Arc<WorkerState>, mut work: ClaimedTurn, mut handles: DriveHandles) {
    loop {
        let lease = work.lease.clone();
        let span = tracing::info_span!("turn", session = %lease.session, turn = %lease.turn);
        let driven = Box::pin(suspect_trial::run(&inner, work, handles)).instrument(span.clone()).await;
        if inner.drives(&lease) {
            inner.hub.unregister_turn(lease.turn);
        }
        inner.deliveries.wake_sinks();
        if let Ok(DriveOutcome::Ended(end) | DriveOutcome::Next(end, _)) = &driven {
            inner.metrics.ended(end);
            tracing::info!(parent: &span, outcome = end.name(), "the turn ended");
        }
        match driven {
            Ok(DriveOutcome::Next(_, next)) => {
                work = *next;
                handles = inner.begin(&work);
                continue;
            }
            // Its deadline may be the next one that the keeper has to wake for.
            Ok(DriveOutcome::Parked) => inner.wake.notify_one(),
            Ok(DriveOutcome::Ended(_) | DriveOutcome::HandedBack | DriveOutcome::Again) => {}
            Err(error) if error.kind() == Kind::LeaseLost => {
                tracing::info!(parent: &span, %error, "another worker took the session over");
            }
            Err(error) => {
                tracing::error!(parent: &span, %error, "the turn cannot be driven now; the session is handed back");
                hand_back(&inner, lease.clone()).await;
            }
        }
        let full = inner.free_slots() == 0;
        inner.stop_driving(&lease);
        if full {
            // Sessions may wait for the free slot.
            inner.wake.notify_one();
        }
        return;
    }
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

async fn hand_back(inner: &WorkerState, lease: Lease) {
    // If this fails too, the lease expires, because leases without a driver are not renewed.
    inner.clock.sleep(inner.limits.backoff_first).await;
    if let Err(error) = inner.store.release_lease(lease, inner.clock.now()).await {
        tracing::warn!(%error, "a session could not be handed back");
    }
}

/// The event that observer hooks are shown.
enum ObserverEvent {
    /// It failed with an error that cannot be retried.
    Error(Failure),
    /// It ended.
    End(TurnEnd),
}

/// What a drive needs in addition to the records of the turn.
#[derive(Clone, Copy)]
struct DriveFacts {
    index: u32,
    org: OrgId,
    guard: CrashGuard,
    /// Whether it is a suspect that runs alone.
    alone: bool,
}

/// One turn under one lease.
pub(super) struct LeasedDrive<'a> {
    pub(super) inner: &'a Arc<WorkerState>,
    pub(super) handles: DriveHandles,
}

impl LeasedDrive<'_> {
    /// Drives a turn until it ends, parks or is handed back. After a transient error it is driven again from its
    /// journal. If a person has to fix the error, the turn gets stuck. Any other error ends it.
    pub(super) async fn turn(&self, work: ClaimedTurn) -> Result<DriveOutcome, Error> {
        let ClaimedTurn {
            lease,
            index,
            head,
            parent,
            guard,
            trial,
            mut records,
            hold_result: mut held,
            org,
            resumed,
        } = work;
        let facts = DriveFacts { index, org, guard, alone: trial.is_some() };
        let Lease { worker, fence, .. } = lease;
        let since = self.inner.clock.now();
        if !resumed && let Some((phase, began)) = phase_before(&records) {
            self.inner.metrics.passed(phase, began.until(since));
        }
        let resumed = resumed.then_some(TurnResumed { worker, lease: fence.0, since });
        let first = records.first().map_or(Seq(0), |record| record.seq);
        let mut tries = 0;
        loop {
            let held = held.take();
            let opening = |history, agent: Option<&ResolvedAgent>| {
                let WorkerState { clock, models, agent_registry, .. } = &**self.inner;
                let budgets = agent.map(|agent| agent_registry.budgets(agent, OrgVisibility::Org(org)));
                JournaledHostConfig {
                    writer: self.writer(lease.clone()),
                    secret: self.inner.secret,
                    org,
                    history,
                    canceller: self.handles.canceller.clone(),
                    head: head.clone(),
                    parent,
                    conversations: self.inner.conversations.clone(),
                    first,
                    resumed: resumed.clone(),
                    limiter: self.inner.limiter.clone(),
                    meter: Some(BudgetMeter::of(agent, budgets, models, held.as_ref(), index, clock.now())),
                    operator_budgets: self.inner.operator_budgets.clone(),
                }
            };
            let driven = Box::pin(self.once(records, facts, &lease, &opening)).await;
            let error = match driven {
                Ok(DriveOutcome::Again) => {
                    records = self.inner.store.turn_records(lease.turn).await?;
                    continue;
                }
                Ok(driven) => return Ok(driven),
                Err(error) if error.kind() == Kind::LeaseLost => return Err(error),
                Err(error) => error,
            };
            tries += 1;
            let enough = tries >= DRIVES_PER_LEASE || *self.inner.stopping.borrow();
            if error.class() == Class::Retry && enough {
                return Err(error);
            }
            records = self.inner.store.turn_records(lease.turn).await?;
            if error.class() == Class::Retry {
                tracing::warn!(%error, tries, "the turn is driven again from its journal");
                let Limits { backoff_first, backoff_most, .. } = *self.inner.limits;
                self.inner.clock.sleep(backoff(backoff_first, backoff_most, tries)).await;
                continue;
            }
            match self.give_up(&error, records, (index, org), &lease, &opening).await? {
                DriveOutcome::Again => records = self.inner.store.turn_records(lease.turn).await?,
                driven => return Ok(driven),
            }
        }
    }

    fn writer(&self, lease: Lease) -> JournalWriter {
        let inner = &self.inner;
        JournalWriter {
            store: inner.store.clone(),
            lease,
            clock: inner.clock.clone(),
            limits: inner.limits.clone(),
            hub: inner.hub.clone(),
            attachments: inner.attachments.clone(),
            metrics: inner.metrics.clone(),
            unreported_writes: inner.unreported_writes.clone(),
            stopping: inner.stopping.subscribe(),
        }
    }

    async fn once(
        &self,
        records: Vec<Record>,
        DriveFacts { index, org, guard, alone }: DriveFacts,
        lease: &Lease,
        opening: &impl Fn(TurnHistory, Option<&ResolvedAgent>) -> JournaledHostConfig,
    ) -> Result<DriveOutcome, Error> {
        let history = self.history(records, index).await?;
        if let Some(reason) = history.cancelled() {
            self.handles.canceller.cancel(reason);
        }
        let input = history.accepted().cloned().ok_or_else(|| {
            Error::new(Kind::RecordCorrupt, format!("{} has no record of its input", lease.turn))
        })?;
        if guard.is_guilty() {
            let resolved_agent = self.resolved_agent(&history, org).await.ok();
            let hung = guard.trial == TrialState::Hung;
            let end = TurnEnd::Sealed { claims: guard.deaths, alone: guard.alone, hung };
            let driven = JournaledHost::aside(opening(history, resolved_agent.as_deref()))
                .close(end, resolved_agent.as_deref(), &self.inner.payments)
                .await?;
            return Ok(self.observed(resolved_agent.as_ref(), lease, index, driven));
        }
        let resolved_agent = self.resolved_agent(&history, org).await?;
        self.inner.is_answered_by(lease, &resolved_agent.package.agent);
        let opening = opening(history, Some(&resolved_agent));
        let labels = match opening.history.started() {
            Some(started) => started.labels.clone(),
            None if resolved_agent.keeps_labels() => {
                let mut labels = self.labels(opening.parent).await?;
                labels.extend(of_supplied_messages(&input.before, &resolved_agent.contracts));
                // Reused replies were written by a model that had read what hooks told it.
                labels.extend(opening.history.reusable().labels(&resolved_agent.package.hooks));
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
            inherited.extend(of_hooks(&opening.history, &resolved_agent.package.hooks));
        }
        let parent = opening.parent;
        let mut host = JournaledHost::open(opening, &resolved_agent, labels);
        let stop = StopSignals {
            cancel: self.handles.cancel.clone(),
            // A suspect that runs alone does not yield. The others do.
            stopping: if alone { &self.inner.stopping } else { &self.inner.yielding }.subscribe(),
        };
        let caller = Caller { session: lease.session, turn: lease.turn };
        let run = TurnRun { agent: &resolved_agent, caller, index, lease: lease.fence.0, org: Some(org) };
        let sources = TextSources::new(inherited, parent);
        let driven = self.inner.turn_driver.drive(run, &sources, &stop, input, &mut host).await?;
        Ok(self.observed(Some(&resolved_agent), lease, index, driven))
    }

    /// Builds the history of a turn from its records and from the turn that it retries.
    async fn history(&self, records: Vec<Record>, index: u32) -> Result<TurnHistory, Error> {
        let history = TurnHistory::of(records)?;
        let Some(original) = history.accepted().and_then(|accepted| accepted.retry_of) else {
            return Ok(history);
        };
        let records = self.inner.store.turn_records(original).await?;
        Ok(history.with_reusable(ReusableEffects::of(&records, index)?))
    }

    /// Returns the untrusted sources of the conversation up to a message.
    async fn labels(&self, parent: Option<NodeRef>) -> Result<Labels, Error> {
        let Some(parent) = parent else { return Ok(Labels::default()) };
        let WorkerState { agent_registry, store, .. } = &**self.inner;
        // The first record of that turn has the labels of all turns before it.
        let before = store.history(parent, 1).await?;
        let Some(turn) = before.first().and_then(|turn| turn.records.first()).and_then(|record| record.turn)
        else {
            return Ok(Labels::from_iter([UntrustedSource::Before]));
        };
        if store.turn(turn).await?.foreign {
            return Ok(Labels::from_iter([UntrustedSource::Before]));
        }
        let records = store.turn_records(turn).await?;
        // Use the contracts that the turn ran with, because this agent may trust a different tool of the same name.
        let package = records.iter().find_map(|record| match &record.fact {
            Fact::Started(started) => Some(started.package),
            _ => None,
        });
        if let Some(resolved_agent) =
            package.and_then(|package| agent_registry.here(package, OrgVisibility::Everything))
        {
            let (tools, hooks) = (&resolved_agent.contracts, &resolved_agent.package.hooks);
            return Ok(of_turn(&records, TurnToolsAndHooks { tools, hooks }));
        }
        let ran_with = match package {
            Some(package) => agent_registry::read(store.as_ref(), package).await.ok(),
            None => None,
        };
        // If it is unknown what the turn ran with, nothing that it read is trusted.
        let Some(PinnedPackage { package, contracts }) = ran_with else {
            return Ok(of_turn(&records, TurnToolsAndHooks::default()));
        };
        let tools = contracts.as_deref().unwrap_or_default();
        Ok(of_turn(&records, TurnToolsAndHooks { tools, hooks: &package.hooks }))
    }

    /// Runs observer hooks if the turn has ended.
    fn observed(
        &self,
        resolved_agent: Option<&Arc<ResolvedAgent>>,
        lease: &Lease,
        index: u32,
        driven: DriveOutcome,
    ) -> DriveOutcome {
        if let (DriveOutcome::Ended(end) | DriveOutcome::Next(end, _), Some(resolved_agent)) =
            (&driven, resolved_agent)
        {
            self.observe(resolved_agent, lease, index, ObserverEvent::End(end.clone()));
        }
        driven
    }

    /// Runs observer hooks in a separate task, so that they delay nothing.
    fn observe(&self, resolved_agent: &Arc<ResolvedAgent>, lease: &Lease, index: u32, what: ObserverEvent) {
        if resolved_agent.package.hooks.is_empty() {
            return;
        }
        let (resolved_agent, store) = (resolved_agent.clone(), self.inner.store.clone());
        let caller = Caller { session: lease.session, turn: lease.turn };
        self.inner.tasks.spawn(async move {
            let (key, history) = (ReplayKey::turn(index), TurnHistory::default());
            let (history, key, store, hook_labels) = (&history, &key, Some(&store), &HookLabels::default());
            let hooks = EffectHooks {
                resolved_agent: &resolved_agent,
                caller,
                org: None,
                history,
                key,
                store,
                hook_labels,
            };
            match what {
                ObserverEvent::Error(failure) => hooks.on_error(&failure).await,
                ObserverEvent::End(end) => hooks.after_end(&end).await,
            }
        });
    }

    /// Returns the agent that a turn was accepted or started with, or else the default agent.
    async fn resolved_agent(&self, history: &TurnHistory, org: OrgId) -> Result<Arc<ResolvedAgent>, Error> {
        let WorkerState { agent_registry, agent_reloader, store, .. } = &**self.inner;
        let pinned = history.started().map(|started| started.package);
        let pinned = pinned.or_else(|| history.accepted().and_then(|accepted| accepted.package));
        let reach = OrgVisibility::Org(org);
        let Some(fingerprint) = pinned else { return agent_registry.first(reach) };
        match (agent_registry.pinned(fingerprint, reach, store.as_ref()).await, agent_reloader) {
            // Another process may have just stored the agent.
            (Err(error), Some(agent_reloader)) if error.kind() == Kind::PackageUnavailable => {
                if let Err(error) = agent_reloader.look().await {
                    tracing::warn!(%error, "agents in the database could not be looked at");
                }
                agent_registry.pinned(fingerprint, reach, store.as_ref()).await
            }
            (resolved_agent, _) => resolved_agent,
        }
    }

    /// Ends or parks a turn after an error that cannot be retried.
    async fn give_up(
        &self,
        error: &Error,
        records: Vec<Record>,
        (index, org): (u32, OrgId),
        lease: &Lease,
        opening: &impl Fn(TurnHistory, Option<&ResolvedAgent>) -> JournaledHostConfig,
    ) -> Result<DriveOutcome, Error> {
        let effect = error.place().effect.map(tracing::field::display);
        tracing::error!(%error, effect, "the turn cannot go on as it is");
        // End or park the turn even if the turn that it retries cannot be read.
        let history = match self.history(records.clone(), index).await {
            Ok(history) => history,
            Err(_) => TurnHistory::of(records)?,
        };
        let times = history.stuck_count();
        let key = ReplayKey::turn(index).stuck(times);
        let aborted = history.aborted();
        let stop = history.cancelled().map(ToOwned::to_owned);
        let end =
            |reason| if aborted { history.end_aborted(index, reason) } else { TurnEnd::Cancelled { reason } };
        let stop = stop.map(end);
        let resolved_agent = self.resolved_agent(&history, org).await.ok();
        let mut host = JournaledHost::aside(opening(history, resolved_agent.as_deref()));
        let failure = Failure::from(error);
        if let Some(resolved_agent) = &resolved_agent {
            self.observe(resolved_agent, lease, index, ObserverEvent::Error(failure.clone()));
        }
        let driven = match (error.class(), stop) {
            (_, Some(end)) => host.close(end, resolved_agent.as_deref(), &self.inner.payments).await?,
            (Class::Reject, None) => {
                host.close(TurnEnd::Failed { failure }, resolved_agent.as_deref(), &self.inner.payments)
                    .await?
            }
            (Class::Retry | Class::Park | Class::Bug, None) => {
                let Limits { stuck_first, stuck_most, .. } = *self.inner.limits;
                let pause = backoff(stuck_first, stuck_most, times + 1);
                let deadline = Some(self.inner.clock.now().after(pause));
                let wait = Wait { key, kind: WaitKind::Event, deadline };
                host.park_stuck(failure, wait).await?
            }
        };
        Ok(self.observed(resolved_agent.as_ref(), lease, index, driven))
    }
}
