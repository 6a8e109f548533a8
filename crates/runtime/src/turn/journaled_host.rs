//! The host that records everything in a store, and answers from there after a crash.
use crate::agents::resolved_agent::{ResolvedAgent, RuntimeServices};
use crate::limits::budget_meter::{BudgetMeter, named};
use crate::limits::tool_limits::ask_limiter;
use crate::turn::cancel::Canceller;
use crate::turn::conversation_cache::{ConversationCache, ConversationPosition};
use crate::turn::conversation_reader::{self, LoadedConversation};
use crate::turn::host::{
    BudgetReservations, CallPermits, CallWriteBuffer, ConversationHost, DriveOutcome, HostTier,
    PartialReplies, ReservationOutcome, TurnBudget, TurnJournal, TurnProgress,
};
use crate::turn::model_request::backoff;
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::{InterruptedCallAction, TurnHistory, interrupted_call_action};
use outlast_kernel::step::{CheckpointStep, EndedTurn};
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::attachment_upload::{AttachmentUpload, Upload};
use outlast_ports::budget::{BudgetReservation, BudgetShortfall, BudgetUpdate, ReservationResult};
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_ports::store::Store;
use outlast_ports::turns::{
    Commit, CommitReceipt, Lease, PartialReplyChange, PartialReplyText, TurnAfterCommit, TurnTransition,
    ValueWrite,
};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{
    BatchCall, CheckpointOutcome, JoinedInput, JournalPosition, Outcome, ToolOutcome,
};
use outlast_vocab::event::{LiveEvent, LiveEventKind};
use outlast_vocab::id::OrgId;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::record::{
    CallReclaimed, CompactionMethod, CompactionRecord, EffectAnswered, EffectPerformed, Fact, NodeRef,
    PolicyDecided, Seq, TurnEnd, TurnResumed, TurnStarted,
};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Failure, Kind, Limits, ReplayKey};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Records the facts of one turn in a store, under one lease.
pub struct JournaledHost {
    services: Arc<RuntimeServices>,
    store: Arc<dyn Store>,
    secret: [u8; 32],
    lease: Lease,
    org: OrgId,
    history: Arc<TurnHistory>,
    canceller: Arc<Canceller>,
    stopping: watch::Receiver<bool>,
    /// The record of the turn's beginning, for the first write. `None` if it is already written.
    begin: Option<TurnStart>,
    /// The record that this lease resumed the turn, for its first write.
    resumed: Option<TurnResumed>,
    parent: Option<NodeRef>,
    buffered_facts: Vec<Fact>,
    /// Policy decisions of this drive.
    decisions: Vec<PolicyDecided>,
    spending: TurnCost,
    values: Vec<ValueWrite>,
    files: Vec<Upload>,
    /// Rate-limited calls for the next write.
    admission_requests: Vec<AdmissionRequest>,
    /// Rate-limit decisions of the last write.
    admissions: Vec<AdmissionDecision>,
    /// How the next write changes the persisted text of an unfinished reply.
    partial: PartialReplyChange,
    /// Whether such text may exist.
    keeps_text: bool,
    place: Option<JournalPosition>,
    recent: Arc<ConversationCache>,
    recalled: Option<Conversation>,
    /// The record that accepted the input.
    first: Seq,
    input_waits: bool,
    /// Budget accounting, if budgets are tracked.
    meter: Option<BudgetMeter>,
    /// Whether an earlier drive may have left reservations behind.
    has_earlier_drives: bool,
    /// The effects that this drive reserved budget for.
    reserved: BTreeSet<ReplayKey>,
}

struct TurnStart {
    started: TurnStarted,
    resolved_agent: Arc<ResolvedAgent>,
}

/// The parameters of a journaled host.
pub struct JournaledHostConfig {
    /// The services of this process.
    pub services: Arc<RuntimeServices>,
    /// The store for the facts.
    pub store: Arc<dyn Store>,
    /// The secret that signs completion keys.
    pub secret: [u8; 32],
    /// The lease that permits writes.
    pub lease: Lease,
    /// The organisation of the session.
    pub org: OrgId,
    /// The recorded history of the turn.
    pub history: TurnHistory,
    /// Cancels the turn.
    pub canceller: Arc<Canceller>,
    /// Whether the worker shuts down.
    pub stopping: watch::Receiver<bool>,
    /// The head that the turn appends to.
    pub head: String,
    /// The message that it follows.
    pub parent: Option<NodeRef>,
    /// The cache of recent conversations.
    pub recent: Arc<ConversationCache>,
    /// The record that accepted the input.
    pub first: Seq,
    /// Set if an earlier lease drove the turn and did not leave it parked.
    pub resumed: Option<TurnResumed>,
    /// Budget accounting, if budgets are tracked.
    pub(crate) meter: Option<BudgetMeter>,
    /// The untrusted sources of the text before the turn, if labels are tracked.
    pub labels: Option<Labels>,
}

impl JournaledHost {
    /// Opens the journal of a turn to drive it. A turn that began earlier keeps its pinned agent.
    pub fn open(opening: JournaledHostConfig, resolved_agent: &Arc<ResolvedAgent>) -> Self {
        let (head, labels) = (opening.head.clone(), opening.labels.clone());
        let mut journal = Self::aside(opening);
        if journal.history.started().is_none() {
            let (kernel, package, parent) =
                (outlast_kernel::VERSION, resolved_agent.fingerprint, journal.parent);
            let started = TurnStarted { kernel, package, head, parent, labels };
            journal.begin = Some(TurnStart { started, resolved_agent: resolved_agent.clone() });
        }
        journal
    }

    /// Opens the journal of a turn to end or park it. The turn does not begin here, so nothing new is pinned.
    pub fn aside(opening: JournaledHostConfig) -> Self {
        let JournaledHostConfig { services, store, secret, lease, org, history, canceller, stopping, .. } =
            opening;
        let JournaledHostConfig { parent, recent, first, meter, resumed, .. } = opening;
        // If the turn is driven again under the same lease, it was already resumed.
        let resumed = resumed.filter(|resumed| !history.was_resumed_by(resumed.lease));
        let begun = history.started().is_some();
        let has_earlier_drives = begun || resumed.is_some();
        let parent = history.started().map_or(parent, |started| started.parent);
        let place = history.last_node();
        let spending = history.spending();
        let history = Arc::new(history);
        Self {
            services,
            store,
            secret,
            lease,
            org,
            history,
            canceller,
            stopping,
            begin: None,
            resumed,
            parent,
            buffered_facts: Vec::new(),
            decisions: Vec::new(),
            spending,
            values: Vec::new(),
            files: Vec::new(),
            admission_requests: Vec::new(),
            admissions: Vec::new(),
            partial: PartialReplyChange::Unchanged,
            keeps_text: begun,
            place,
            recent,
            recalled: None,
            first,
            // Inputs may be waiting for a turn that began earlier, and no receipt has reported them.
            input_waits: begun,
            meter,
            has_earlier_drives,
            reserved: BTreeSet::new(),
        }
    }

    /// Ends the turn from outside its steps. Every open call gets an outcome first, priced by the resolved
    /// agent.
    pub async fn close(
        &mut self,
        end: TurnEnd,
        resolved_agent: Option<&ResolvedAgent>,
    ) -> Result<DriveOutcome, Error> {
        let history = self.history.clone();
        for (claim, key, call) in history.open_calls() {
            let BatchCall::Run(prepared) = &call.call else { continue };
            let reused = history.reusable().outcome(&key);
            let outcome = match (reused, interrupted_call_action(prepared, call.attempts)) {
                (Some(outcome), _) => outcome.clone(),
                (None, InterruptedCallAction::Probe) if !history.awaits_start(&key, prepared) => {
                    ToolOutcome::Unknown
                }
                (None, InterruptedCallAction::Probe | InterruptedCallAction::Repeat { .. }) => {
                    let failure =
                        Failure::new(Kind::ToolInterrupted, "the turn ended before the call was done");
                    ToolOutcome::Done(ToolResult::Err(failure))
                }
            };
            if outcome != ToolOutcome::Unknown {
                let open = history.open_payments(&key).cloned().collect();
                self.buffered_facts
                    .extend(self.services.free_all(open, "the turn ended before the call was done").await);
            }
            let charged =
                || resolved_agent.and_then(|resolved_agent| resolved_agent.charged(&prepared.tool, &outcome));
            let cost = if reused.is_some() { None } else { charged() };
            self.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: call.attempts }));
            self.buffer_fact(Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost }));
        }
        self.finish(end.into()).await
    }

    /// Parks the turn until a person or a deploy fixes it. It also retries at the wait's deadline.
    pub async fn park_stuck(&mut self, failure: Failure, wait: Wait) -> Result<DriveOutcome, Error> {
        self.buffer_fact(Fact::Stuck { failure });
        self.park(vec![wait]).await
    }

    /// Sets the conversation before this turn, with the compactions of this turn applied.
    fn recall_as(&mut self, mut conversation: Conversation) {
        for compacted in self.history.compactions() {
            conversation.compact(compacted.clone());
        }
        self.recalled = Some(conversation);
    }

    /// Caches the conversation, including this turn's messages, for the session's next turn.
    fn keep_conversation(&mut self, messages: Vec<Message>, last: Seq) {
        if let (Some(mut conversation), Some(place), false) =
            (self.recalled.take(), self.place, messages.is_empty())
        {
            conversation.push(self.lease.turn, messages);
            let node = NodeRef { session: self.lease.session, seq: place.seq };
            self.recent.keep(ConversationPosition { node, next: Seq(last.0 + 1) }, conversation);
        }
    }

    /// Writes a commit. If the disk is full, the database is locked or the content store is unavailable, it
    /// retries.
    ///
    /// It retries until the write succeeds or the worker shuts down. Driving the turn again would be wrong
    /// here: the model would be asked twice, and a finished call would get an unknown outcome.
    async fn write(&mut self, commit: Commit) -> Result<CommitReceipt, Error> {
        let Limits { backoff_first, backoff_most, .. } = self.services.limits;
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.try_to_write(commit.clone()).await {
                Err(error) if may_be_written_later(&error) => error,
                written => return written,
            };
            tracing::warn!(%error, tries, "the turn cannot be written now; it holds what it knows");
            let Lease { session, turn, .. } = self.lease;
            let held = || LiveEventKind::Held { failure: Failure::from(&error) };
            self.services.hub.tell(session, || LiveEvent { turn, what: held() });
            let pause = backoff(backoff_first, backoff_most, tries);
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(error),
                () = self.services.clock.sleep(pause) => {}
            }
        }
    }

    /// Uploads the contents of attachments, then writes the commit.
    async fn try_to_write(&self, commit: Commit) -> Result<CommitReceipt, Error> {
        let now = self.services.clock.now();
        if commit.files.is_empty() {
            return self.store.commit(Commit { now, ..commit }).await;
        }
        let attachments = self.services.attachments(&self.store);
        let here = commit.files.clone();
        let files = attachments.place(commit.files).await?;
        let written = self.store.commit(Commit { now, files, ..commit }).await;
        if let Err(error) = &written
            && error.kind() == Kind::AttachmentSwept
        {
            attachments.confirm(here, self.lease.worker, now).await?;
        }
        written
    }

    async fn commit(&mut self, transition: TurnTransition) -> Result<CommitReceipt, Error> {
        let now = self.services.clock.now();
        let budget_update = self.active_meter().map(|meter| {
            if transition != TurnTransition::Continue {
                meter.release_reservation();
            }
            let budget_waits = if let TurnTransition::Park(waits) = &transition {
                meter.reservations_of_waits(waits)
            } else {
                Vec::new()
            };
            BudgetUpdate { waits: budget_waits, ..meter.take(now) }
        });
        self.commit_metered(transition, budget_update).await
    }

    /// Returns the budget accounting, if budgets are tracked now.
    fn active_meter(&mut self) -> Option<&mut BudgetMeter> {
        let services = &self.services;
        self.meter.as_mut().filter(|meter| meter.counts(services))
    }

    /// Records the model requests of dead workers whose reservations the next write counts as used, so that costs and
    /// budgets agree: the request for `next`, which is made again, or all of them at the end of the turn.
    async fn note_lost_requests(&mut self, next: Option<&ReplayKey>) -> Result<(), Error> {
        if !self.has_earlier_drives || next.is_some_and(|next| self.reserved.contains(next)) {
            return Ok(());
        }
        let open = self.store.open_reservations(self.lease.turn).await?;
        let Some(meter) = &self.meter else { return Ok(()) };
        let is_lost = |key: &ReplayKey| match next {
            Some(next) => key == next,
            None => !self.reserved.contains(key),
        };
        let lost = open.into_iter().filter(|open| open.key.is_model_request() && is_lost(&open.key));
        let lost = lost.filter(|open| !meter.settles(&open.key));
        let lost: Vec<_> = lost.filter_map(|lost| meter.lost_request(lost)).collect();
        for lost in lost {
            self.buffer_fact(Fact::Interrupted(lost));
        }
        Ok(())
    }

    /// Writes the buffered facts and reserves budget for an effect.
    async fn commit_holding(
        &mut self,
        reservation: BudgetReservation,
        budget_update: BudgetUpdate,
    ) -> Result<ReservationOutcome, Error> {
        self.reserved.insert(reservation.key.clone());
        let update = BudgetUpdate { reservation: Some(reservation.clone()), ..budget_update };
        let receipt = self.commit_metered(TurnTransition::Continue, Some(update)).await?;
        let last = receipt.places.last().map_or(Seq(0), |place| place.seq);
        let short = match receipt.hold_result {
            Some(ReservationResult::Exhausted(short)) => {
                if let (Some(meter), true) = (&mut self.meter, short.pauses_turns) {
                    meter.does_not_fit(reservation);
                }
                Some(short)
            }
            Some(ReservationResult::Reserved { low, .. }) => {
                self.tell_low(low);
                None
            }
            None => None,
        };
        Ok(ReservationOutcome { last, short })
    }

    /// Notifies watchers of budgets that are running low.
    fn tell_low(&self, low: Vec<BudgetShortfall>) {
        let Lease { session, turn, .. } = self.lease;
        for short in low {
            let low = || LiveEventKind::BudgetLow { budget: named(&short) };
            self.services.hub.tell(session, || LiveEvent { turn, what: low() });
        }
    }

    async fn commit_metered(
        &mut self,
        transition: TurnTransition,
        budget_update: Option<BudgetUpdate>,
    ) -> Result<CommitReceipt, Error> {
        let mut facts = std::mem::take(&mut self.buffered_facts);
        let mut blobs = Vec::new();
        let begin = self.begin.take();
        if let Some(TurnStart { started, resolved_agent }) = &begin {
            facts.insert(0, Fact::Started(started.clone()));
            blobs = resolved_agent.to_store();
        }
        facts.splice(..0, self.resumed.take().map(Fact::Resumed));
        let nodes: Vec<usize> =
            facts.iter().enumerate().filter(|(_, fact)| fact.is_node()).map(|(index, _)| index).collect();
        let values = std::mem::take(&mut self.values);
        let files = std::mem::take(&mut self.files).into_iter().map(AttachmentUpload::Inline).collect();
        let partial = std::mem::take(&mut self.partial);
        let (lease, now) = (self.lease.clone(), self.services.clock.now());
        let admission_requests = std::mem::take(&mut self.admission_requests);
        let waited = self.services.hub.unreported_writes.take(lease.turn);
        let commit = Commit {
            lease,
            now,
            facts,
            values,
            blobs,
            files,
            partial,
            budget_update,
            admissions: admission_requests,
            waited,
            transition,
        };
        let since = self.services.clock.elapsed();
        let mut receipt = self.write(commit).await?;
        let waited = self.services.clock.elapsed().saturating_sub(since);
        self.services.hub.unreported_writes.waited(self.lease.turn, waited);
        self.admissions.append(&mut receipt.admissions);
        self.services.metrics.committed(waited);
        if let Some(begin) = begin {
            begin.resolved_agent.was_stored();
        }
        if let Some(last) = nodes.last() {
            self.place = receipt.places.get(*last).copied();
        }
        self.input_waits = receipt.has_joining_input;
        if let Some(reason) = &receipt.cancelled {
            self.canceller.cancel(reason);
        }
        self.services.hub.committed(self.lease.session, receipt.last.seq);
        Ok(receipt)
    }
}

fn may_be_written_later(error: &Error) -> bool {
    use Kind::{AttachmentSwept, AttachmentUnavailable, StoreBusy, StoreFull};
    matches!(error.kind(), StoreFull | StoreBusy | AttachmentUnavailable | AttachmentSwept)
}

impl TurnJournal for JournaledHost {
    fn tier(&self) -> HostTier {
        HostTier::Durable
    }

    fn history(&self) -> &Arc<TurnHistory> {
        &self.history
    }

    fn place(&self) -> Option<JournalPosition> {
        self.place
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn secret(&self) -> Option<[u8; 32]> {
        Some(self.secret)
    }

    fn buffer_fact(&mut self, fact: Fact) {
        // A reply that is complete, or will not come, needs no persisted text.
        if self.keeps_text
            && matches!(&fact, Fact::Performed(EffectPerformed { outcome: Outcome::ModelCall(_), .. }))
        {
            (self.partial, self.keeps_text) = (PartialReplyChange::Delete, false);
        }
        self.spending.add_fact(&fact);
        if let Fact::Ruled(decision) = &fact {
            self.decisions.push(decision.clone());
        }
        self.buffered_facts.push(fact);
    }

    async fn flush(&mut self) -> Result<Seq, Error> {
        let nothing = self.buffered_facts.is_empty() && self.values.is_empty() && self.files.is_empty();
        if nothing && self.admission_requests.is_empty() {
            return Ok(self.place.map_or(Seq(0), |place| place.seq));
        }
        let receipt = self.commit(TurnTransition::Continue).await?;
        Ok(receipt.places.last().map_or(Seq(0), |place| place.seq))
    }

    async fn reread(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.history = Arc::new(TurnHistory::of(self.store.turn_records(self.lease.turn).await?)?);
        Ok(())
    }

    fn policy_ruling(&self, key: &ReplayKey) -> Option<&PolicyDecided> {
        let now = || self.decisions.iter().find(|decision| decision.key == *key);
        self.history.decision(key).or_else(now)
    }

    fn spending(&self) -> TurnCost {
        self.spending
    }
}

impl BudgetReservations for JournaledHost {
    async fn reserve(&mut self, reservation: BudgetReservation) -> Result<ReservationOutcome, Error> {
        let now = self.services.clock.now();
        let Some(meter) = self.active_meter() else {
            return Ok(ReservationOutcome { last: self.flush().await?, short: None });
        };
        let low = meter.take_low();
        if meter.begin(&reservation) {
            self.tell_low(low);
            self.reserved.insert(reservation.key);
            return Ok(ReservationOutcome { last: self.flush().await?, short: None });
        }
        meter.release_reservation();
        let budget_update = meter.take(now);
        self.note_lost_requests(Some(&reservation.key)).await?;
        self.commit_holding(reservation, budget_update).await
    }

    fn settle(&mut self, key: &ReplayKey, used: Option<UsageAmount>) {
        if let Some(meter) = self.active_meter() {
            meter.settle(key, used);
        }
    }

    fn exclude_provider_wait(&mut self, time: Duration) {
        if let Some(meter) = self.meter.as_mut() {
            meter.leave_out(time);
        }
    }
}

impl TurnBudget for JournaledHost {
    fn is_metered(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.counts(&self.services))
    }

    async fn reserve_ahead(&mut self, reservation: BudgetReservation) -> Result<(), Error> {
        let now = self.services.clock.now();
        if self.buffered_facts.is_empty() {
            return self.flush().await.map(drop);
        }
        let Some(meter) = self.active_meter() else { return self.flush().await.map(drop) };
        meter.release_reservation();
        let budget_update = meter.take(now);
        let ReservationOutcome { short, .. } =
            self.commit_holding(reservation.clone(), budget_update).await?;
        if let (Some(meter), None) = (&mut self.meter, short) {
            meter.is_held(reservation);
        }
        Ok(())
    }

    fn settle_cancelled(&mut self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount) {
        if let Some(meter) = self.active_meter() {
            meter.settle_cancelled(key, used, assumed);
        }
    }
}

impl PartialReplies for JournaledHost {
    async fn persist_partial_reply(&mut self, partial_text: PartialReplyText) -> Result<(), Error> {
        (self.partial, self.keeps_text) = (PartialReplyChange::Append(partial_text), true);
        self.commit(TurnTransition::Continue).await.map(drop)
    }

    async fn persisted_partial_reply(&self, key: &ReplayKey) -> Result<Option<String>, Error> {
        if !self.keeps_text {
            return Ok(None);
        }
        let partial_text = self.store.said(self.lease.turn).await?;
        Ok(partial_text.filter(|partial_text| partial_text.key == *key).map(|partial_text| partial_text.text))
    }
}

impl ConversationHost for JournaledHost {
    async fn load_conversation(&mut self, bytes: usize) -> Result<(), Error> {
        if self.recalled.is_some() {
            return Ok(());
        }
        let Some(node) = self.parent else {
            self.recall_as(Conversation::default());
            return Ok(());
        };
        if let Some(conversation) = self.recent.take(ConversationPosition { node, next: self.first }) {
            self.recall_as(conversation);
            return Ok(());
        }
        let LoadedConversation { conversation, repaired: calls } =
            conversation_reader::conversation(self.store.as_ref(), node, bytes).await?;
        if !calls.is_empty() && !self.history.was_repaired() {
            self.buffered_facts.push(Fact::Repaired { calls });
        }
        self.recall_as(conversation);
        Ok(())
    }

    fn conversation(&mut self) -> &mut Conversation {
        self.recalled.get_or_insert_default()
    }

    async fn compact(&mut self, compacted: CompactionRecord) -> Result<(), Error> {
        self.conversation().compact(compacted.clone());
        let paid_for = matches!(compacted.shorter, CompactionMethod::Summary { .. });
        self.buffer_fact(Fact::Compacted(compacted));
        // A paid summary is written at once, so that it is not requested again. Leaving out results costs
        // nothing.
        if paid_for {
            self.flush().await?;
        }
        Ok(())
    }
}

impl CallPermits for JournaledHost {
    async fn request_permits(&mut self, requests: Vec<AdmissionRequest>) -> Result<(), Error> {
        self.admissions.clear();
        let Some(limiter) = self.services.limiter.clone() else {
            self.admission_requests.extend(requests);
            return Ok(());
        };
        for request in requests {
            let (decision, fact) = ask_limiter(limiter.as_ref(), &self.services, self.org, request).await;
            self.admissions.push(decision);
            self.buffered_facts.extend(fact);
        }
        Ok(())
    }

    fn take_permit_decisions(&mut self) -> Vec<AdmissionDecision> {
        std::mem::take(&mut self.admissions)
    }
}

impl CallWriteBuffer for JournaledHost {
    fn buffer_values(&mut self, values: Vec<ValueWrite>) {
        self.values.extend(values);
    }

    fn buffer_files(&mut self, files: Vec<Upload>) {
        self.files.extend(files);
    }
}

impl TurnProgress for JournaledHost {
    async fn checkpoint(
        &mut self,
        at: &CheckpointStep,
        ours: CheckpointOutcome,
    ) -> Result<CheckpointOutcome, Error> {
        let effect = at.effect();
        if let Some(joined) = self.history.answer(at.key(), &effect)? {
            return Ok(joined);
        }
        if self.history.was_reached(&at.next_model()) {
            return Ok(CheckpointOutcome::default());
        }
        let waiting = if std::mem::take(&mut self.input_waits) {
            self.store.joinable(self.lease.session).await?
        } else {
            Vec::new()
        };
        let inputs = waiting.into_iter().map(|(turn, parts)| JoinedInput { turn, parts }).collect();
        let joined = CheckpointOutcome { inputs, ..ours };
        if joined.is_empty() {
            return Ok(joined);
        }
        self.buffer_fact(Fact::Performed(EffectPerformed::new(at.key().clone(), effect, joined.clone())));
        self.flush().await?;
        Ok(joined)
    }

    async fn park(&mut self, waits: Vec<Wait>) -> Result<DriveOutcome, Error> {
        match self.commit(TurnTransition::Park(waits)).await?.after {
            TurnAfterCommit::Parked => Ok(DriveOutcome::Parked),
            _ => Ok(DriveOutcome::Again),
        }
    }

    async fn hand_back(&mut self) -> Result<DriveOutcome, Error> {
        if let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_ready()) {
            meter.release_reservation();
            self.commit(TurnTransition::Continue).await?;
        }
        self.flush().await?;
        self.store.release_lease(self.lease.clone(), self.services.clock.now()).await?;
        Ok(DriveOutcome::HandedBack)
    }

    async fn finish(&mut self, done: EndedTurn) -> Result<DriveOutcome, Error> {
        let EndedTurn { end, messages } = done;
        self.note_lost_requests(None).await?;
        if self.is_metered()
            && let (Some(meter), Some(before)) = (&mut self.meter, &self.recalled)
        {
            meter.set_next_turn_usage(before, &messages);
        }
        let transition = match &end {
            TurnEnd::Answered { .. } => TurnTransition::EndUnlessJoined(end.clone()),
            _ => TurnTransition::End(end.clone()),
        };
        let receipt = self.commit(transition).await?;
        let driven = match receipt.after {
            TurnAfterCommit::Ended => {
                self.keep_conversation(messages, receipt.last.seq);
                DriveOutcome::Ended(end.clone())
            }
            TurnAfterCommit::Next(work) => DriveOutcome::Next(end.clone(), work),
            TurnAfterCommit::Continues | TurnAfterCommit::Ready | TurnAfterCommit::Parked => {
                return Ok(DriveOutcome::Again);
            }
        };
        self.services.hub.ended(self.lease.turn, &end);
        Ok(driven)
    }
}
