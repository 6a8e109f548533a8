//! The host that records everything in a store, and answers from there after a crash.
//!
//! It buffers what a turn records ([`crate::turn::write_buffer`]) and decides what one commit contains;
//! [`crate::turn::journal_writer`] writes it. Budgets are in [`budgets`].
mod budgets;

use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::payments::PaymentClient;
use crate::limits::budget_meter::BudgetMeter;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::turn::cancel::Canceller;
use crate::turn::host::{
    CallPermits, CallWriteBuffer, ConversationHost, DriveOutcome, HostTier, PartialReplies, TurnJournal,
    TurnLifecycle,
};
use crate::turn::journal_writer::JournalWriter;
use crate::turn::turn_conversation::TurnConversation;
use crate::turn::turn_permits::{PermitWrites, TurnPermits};
use crate::turn::write_buffer::{TurnStart, WriteBuffer};
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::{InterruptedCallAction, TurnHistory, interrupted_call_action};
use outlast_kernel::step::{CheckpointStep, EndedTurn};
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_ports::store::Store;
use outlast_ports::turns::{
    Commit, CommitReceipt, PartialReplyChange, PartialReplyText, TurnAfterCommit, TurnTransition, ValueWrite,
};
use outlast_vocab::effect::{
    BatchCall, CheckpointOutcome, JoinedInput, JournalPosition, Outcome, ToolOutcome,
};
use outlast_vocab::label::Labels;
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{
    CallReclaimed, CompactionMethod, CompactionRecord, EffectAnswered, EffectPerformed, Fact, PolicyDecided,
    Seq, TurnEnd, TurnResumed, TurnStarted,
};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use std::sync::Arc;

use budgets::BudgetAccounting;

/// Records the facts of one turn in a store, under one lease.
pub(crate) struct JournaledHost {
    writer: JournalWriter,
    buffer: WriteBuffer,
    secret: [u8; 32],
    history: Arc<TurnHistory>,
    canceller: Arc<Canceller>,
    conversation: TurnConversation,
    permits: TurnPermits,
    /// Policy decisions of this drive.
    decisions: Vec<PolicyDecided>,
    spending: TurnCost,
    /// Whether persisted text of an unfinished reply may exist.
    keeps_text: bool,
    place: Option<JournalPosition>,
    input_waits: bool,
    budgets: BudgetAccounting,
}

/// The parameters of a journaled host.
pub(crate) struct JournaledHostConfig {
    /// Writes under the lease of the turn.
    pub(crate) writer: JournalWriter,
    /// The secret that signs completion keys.
    pub(crate) secret: [u8; 32],
    /// The recorded history of the turn.
    pub(crate) history: TurnHistory,
    /// Cancels the turn.
    pub(crate) canceller: Arc<Canceller>,
    /// The head that the turn appends to.
    pub(crate) head: String,
    /// The conversation before the turn.
    pub(crate) conversation: TurnConversation,
    /// Set if an earlier lease drove the turn and did not leave it parked.
    pub(crate) resumed: Option<TurnResumed>,
    /// The rate limits of its calls.
    pub(crate) permits: TurnPermits,
    /// Budget accounting, if budgets are tracked.
    pub(crate) meter: Option<BudgetMeter>,
    /// Whether an operator has set a budget.
    pub(crate) operator_budgets: Arc<OperatorBudgets>,
}

impl JournaledHost {
    /// Opens the journal of a turn to drive it. A turn that began earlier keeps its pinned agent. `labels` are the
    /// untrusted sources of the text before the turn, if labels are tracked.
    pub(crate) fn open(
        mut config: JournaledHostConfig,
        agent: &Arc<ResolvedAgent>,
        labels: Option<Labels>,
    ) -> Self {
        let head = std::mem::take(&mut config.head);
        let mut host = Self::aside(config);
        if host.history.started().is_none() {
            let (kernel, package, parent) =
                (outlast_kernel::VERSION, agent.fingerprint, host.conversation.parent());
            let started = TurnStarted { kernel, package, head, parent, labels };
            host.buffer.start = Some(TurnStart { started, agent: agent.clone() });
        }
        host
    }

    /// Opens the journal of a turn to end or park it. The turn does not begin here, so nothing new is pinned.
    pub(crate) fn aside(config: JournaledHostConfig) -> Self {
        let JournaledHostConfig { writer, secret, history, canceller, conversation, permits, .. } = config;
        let JournaledHostConfig { meter, operator_budgets, .. } = config;
        // If the turn is driven again under the same lease, it was already resumed.
        let resumed = config.resumed.filter(|resumed| !history.was_resumed_by(resumed.lease));
        let begun = history.started().is_some();
        let has_earlier_drives = begun || resumed.is_some();
        Self {
            writer,
            buffer: WriteBuffer { resumed, ..WriteBuffer::default() },
            secret,
            canceller,
            conversation,
            permits,
            decisions: Vec::new(),
            spending: history.spending(),
            keeps_text: begun,
            place: history.last_node(),
            // Inputs may be waiting for a turn that began earlier, and no receipt has reported them.
            input_waits: begun,
            budgets: BudgetAccounting::new(meter, operator_budgets, has_earlier_drives),
            history: Arc::new(history),
        }
    }

    /// Ends the turn from outside its steps. Every open call gets an outcome first, priced by the resolved
    /// agent.
    pub(crate) async fn close(
        &mut self,
        end: TurnEnd,
        resolved_agent: Option<&ResolvedAgent>,
        payments: &PaymentClient,
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
                let freed = payments.free_all(open, "the turn ended before the call was done").await;
                self.buffer.facts.extend(freed);
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
    pub(crate) async fn park_stuck(&mut self, failure: Failure, wait: Wait) -> Result<DriveOutcome, Error> {
        self.buffer_fact(Fact::Stuck { failure });
        self.park(vec![wait]).await
    }

    /// Writes everything that is buffered. If the buffer has no change to the budgets, the write counts what the turn
    /// used until now.
    async fn commit(&mut self, transition: TurnTransition) -> Result<CommitReceipt, Error> {
        let now = self.writer.now();
        let counted = self.buffer.budget_update.take();
        let budget_update = counted.or_else(|| self.budgets.update(&transition, now));
        let facts = self.buffer.take_facts();
        let last_node = facts.iter().rposition(Fact::is_node);
        let start = self.buffer.start.take();
        let lease = self.writer.lease;
        let commit = Commit {
            values: std::mem::take(&mut self.buffer.values),
            blobs: start.as_ref().map(|start| start.agent.to_store()).unwrap_or_default(),
            files: self.buffer.take_files(),
            partial: std::mem::take(&mut self.buffer.partial),
            budget_update,
            admissions: std::mem::take(&mut self.buffer.admission_requests),
            ..Commit::new(lease, now, facts, transition)
        };
        let mut receipt = self.writer.write(commit).await?;
        self.permits.add(std::mem::take(&mut receipt.admissions));
        if let Some(start) = start {
            start.agent.was_stored();
        }
        if let Some(last_node) = last_node {
            self.place = receipt.places.get(last_node).copied();
        }
        self.input_waits = receipt.has_joining_input;
        if let Some(reason) = &receipt.cancelled {
            self.canceller.cancel(reason);
        }
        Ok(receipt)
    }
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
        Some(self.writer.store())
    }

    fn secret(&self) -> Option<[u8; 32]> {
        Some(self.secret)
    }

    fn buffer_fact(&mut self, fact: Fact) {
        // A reply that is complete, or will not come, needs no persisted text.
        if self.keeps_text
            && matches!(&fact, Fact::Performed(EffectPerformed { outcome: Outcome::ModelCall(_), .. }))
        {
            (self.buffer.partial, self.keeps_text) = (PartialReplyChange::Delete, false);
        }
        self.spending.add_fact(&fact);
        if let Fact::Ruled(decision) = &fact {
            self.decisions.push(decision.clone());
        }
        self.buffer.facts.push(fact);
    }

    async fn flush(&mut self) -> Result<Seq, Error> {
        if self.buffer.is_empty() {
            return Ok(self.place.map_or(Seq(0), |place| place.seq));
        }
        let receipt = self.commit(TurnTransition::Continue).await?;
        Ok(receipt.places.last().map_or(Seq(0), |place| place.seq))
    }

    async fn reread(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.history =
            Arc::new(TurnHistory::of(self.writer.store().turn_records(self.writer.lease.turn).await?)?);
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

impl PartialReplies for JournaledHost {
    async fn persist_partial_reply(&mut self, partial_text: PartialReplyText) -> Result<(), Error> {
        (self.buffer.partial, self.keeps_text) = (PartialReplyChange::Append(partial_text), true);
        self.commit(TurnTransition::Continue).await.map(drop)
    }

    async fn persisted_partial_reply(&self, key: &ReplayKey) -> Result<Option<String>, Error> {
        if !self.keeps_text {
            return Ok(None);
        }
        let partial_text = self.writer.store().partial_reply(self.writer.lease.turn).await?;
        Ok(partial_text.filter(|partial_text| partial_text.key == *key).map(|partial_text| partial_text.text))
    }
}

impl ConversationHost for JournaledHost {
    async fn load_conversation(&mut self, bytes: usize) -> Result<(), Error> {
        let store = self.writer.store().as_ref();
        let calls = self.conversation.load(store, &self.history, bytes).await?;
        if !calls.is_empty() && !self.history.was_repaired() {
            self.buffer.facts.push(Fact::Repaired { calls });
        }
        Ok(())
    }

    fn conversation(&mut self) -> &mut Conversation {
        self.conversation.get()
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
        let PermitWrites { requests, facts } = self.permits.request(requests).await;
        self.buffer.admission_requests.extend(requests);
        self.buffer.facts.extend(facts);
        Ok(())
    }

    fn take_permit_decisions(&mut self) -> Vec<AdmissionDecision> {
        self.permits.take()
    }
}

impl CallWriteBuffer for JournaledHost {
    fn buffer_values(&mut self, values: Vec<ValueWrite>) {
        self.buffer.values.extend(values);
    }

    fn buffer_files(&mut self, files: Vec<Upload>) {
        self.buffer.files.extend(files);
    }
}

impl TurnLifecycle for JournaledHost {
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
            self.writer.store().joinable(self.writer.lease.session).await?
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
        if self.budgets.has_reservation() {
            self.budgets.release_reservation();
            self.commit(TurnTransition::Continue).await?;
        }
        self.flush().await?;
        self.writer.store().release_lease(self.writer.lease, self.writer.now()).await?;
        Ok(DriveOutcome::HandedBack)
    }

    async fn finish(&mut self, done: EndedTurn) -> Result<DriveOutcome, Error> {
        let EndedTurn { end, messages } = done;
        self.budgets.release_reservation();
        self.note_lost_requests(None).await?;
        self.budgets.set_next_turn_usage(self.conversation.loaded(), &messages);
        let transition = match &end {
            TurnEnd::Answered { .. } => TurnTransition::EndUnlessJoined,
            _ => TurnTransition::End,
        };
        let receipt = self.commit(transition(end.clone())).await?;
        let (hub, turn) = (&self.writer.journal.hub, self.writer.lease.turn);
        Ok(match receipt.after {
            TurnAfterCommit::Ended => {
                self.conversation.cache(self.writer.caller(), messages, self.place, receipt.last.seq);
                hub.ended(turn, &end);
                DriveOutcome::Ended(end)
            }
            TurnAfterCommit::Next(work) => {
                hub.ended(turn, &end);
                DriveOutcome::Next(end, work)
            }
            TurnAfterCommit::Continues | TurnAfterCommit::Ready | TurnAfterCommit::Parked => {
                DriveOutcome::Again
            }
        })
    }
}
