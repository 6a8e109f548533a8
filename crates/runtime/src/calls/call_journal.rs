//! What a call of a batch tells the driver, and what it knows of its own history.
//!
//! A call never writes to the store. It sends facts to the driver, which owns the journal, and waits until they are
//! durable where necessary. A call and the calls of other tools that it makes share one [`CallJournal`].
use crate::calls::tool_runner::ToolServices;
use crate::limits::budget_meter::{short_of, wait_for};
use crate::turn::host::HostTier;
use crate::turn::inline_host::not_durable;
use outlast_kernel::replay::TurnHistory;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::budget::{BudgetReservation, BudgetSettlement, BudgetShortfall};
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_ports::turns::ValueWrite;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{AwaitEvent, Effect};
use outlast_vocab::payment::Payment;
use outlast_vocab::record::{EffectPerformed, Fact, InterruptedReply, PolicyDecided, UndoableCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Failure, ReplayKey};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A message from a call to the driver.
pub(crate) enum CallMessage {
    /// A fact to include in the next write.
    Note(Fact),
    /// A fact that must be durable before the call continues, with what is written together with it.
    Record(Fact, CallWrites, oneshot::Sender<()>),
    /// A budget reservation for what the call is about to use. The sender gets the budget that is short, if any.
    Reserve(BudgetReservation, oneshot::Sender<Option<BudgetShortfall>>),
    /// A request to go out under the rate limits of the call. The sender gets the decision.
    GoesOut(AdmissionRequest, oneshot::Sender<AdmissionDecision>),
    /// A request to a model that is charged the most that it could use.
    Charge(InterruptedReply, UsageAmount),
    /// The actual usage of earlier reservations.
    Settle(Vec<BudgetSettlement>),
    /// Time spent waiting for a provider that did not answer.
    WaitedForProvider(Duration),
    /// The call at this index of the batch is parked.
    Waits(usize, Wait),
    /// The call at this index of the batch is parked until a person has fixed this failure.
    Stuck(usize, Failure, Wait),
}

/// What a call wrote in addition to its answer.
#[derive(Default)]
pub(crate) struct CallWrites {
    pub(crate) values: Vec<ValueWrite>,
    pub(crate) files: Vec<Upload>,
    /// How to undo the call.
    pub(crate) undo: Option<UndoableCall>,
}

/// The journal of one call of a batch, shared with the calls that it makes.
pub(crate) struct CallJournal {
    pub(crate) services: Arc<ToolServices>,
    pub(crate) tier: HostTier,
    /// The history of the turn when this drive began.
    pub(crate) history: Arc<TurnHistory>,
    /// Whether the usage of the turn was metered when the call began.
    pub(crate) metered: bool,
    /// The index of the call in its batch.
    pub(crate) child: usize,
    pub(crate) to_driver: mpsc::Sender<CallMessage>,
    pub(crate) state: Mutex<CallState>,
}

/// What has happened in this drive, for a call and the calls that it made.
#[derive(Default)]
pub(crate) struct CallState {
    /// Effects answered in this drive. They stay answered when the call is retried.
    answered: TurnHistory,
    /// The actual usage of reservations that the driver has not been sent yet.
    settled: Vec<BudgetSettlement>,
    waited_for_provider: Duration,
    /// Whether the call is parked. Its deadline is suspended then.
    is_parked: bool,
    /// Why rules end the turn, because of something that one of the calls wanted to do.
    interrupts: Vec<CallInterrupt>,
}

/// A rule ends the turn because of a call.
struct CallInterrupt {
    call: ReplayKey,
    failure: Failure,
}

/// The state of a wait.
pub(crate) enum WaitState {
    /// It is over, and the outcome is recorded.
    Answered(Resolution),
    /// It is over, and the outcome is not recorded yet.
    Resolved(AwaitEvent, Resolution),
    /// It is not over.
    Open(Wait),
}

impl CallJournal {
    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the host is not durable. `what` needs that.
    pub(crate) fn durable(&self, what: &str) -> Result<(), Error> {
        match self.tier {
            HostTier::Durable => Ok(()),
            HostTier::Ephemeral => Err(not_durable(what)),
        }
    }

    /// Returns the recorded outcome of an effect of this call, from an earlier drive or from this one.
    pub(crate) fn answered<E: Effect>(
        &self,
        key: &ReplayKey,
        effect: &E,
    ) -> Result<Option<E::Outcome>, Error> {
        match self.history.answer(key, effect)? {
            Some(outcome) => Ok(Some(outcome)),
            None => self.state().answered.answer(key, effect),
        }
    }

    /// Marks an effect as answered in this drive and returns the fact to record.
    pub(crate) fn performed<E: Effect>(&self, key: ReplayKey, effect: E, outcome: E::Outcome) -> Fact {
        self.keep(EffectPerformed::new(key, effect, outcome))
    }

    /// Marks an effect as answered in this drive and returns the fact to record.
    pub(crate) fn keep(&self, performed: EffectPerformed) -> Fact {
        self.state().answered.add_performed(performed.clone());
        Fact::Performed(performed)
    }

    /// Marks a payment as known in this drive and returns the fact to record.
    pub(crate) fn pays(&self, payment: Payment) -> Fact {
        self.state().answered.add_payment(payment.clone());
        Fact::Payment(payment)
    }

    /// Returns the payment under this key in its latest state.
    pub(crate) fn payment(&self, key: &ReplayKey) -> Option<Payment> {
        let now = self.state().answered.payment(key).cloned();
        now.or_else(|| self.history.payment(key).cloned())
    }

    /// Returns the payments of a call, and of the calls that it made, that may still be paid.
    pub(crate) fn open_payments(&self, call: &ReplayKey) -> Vec<Payment> {
        let state = self.state();
        let before = self.history.open_payments(call);
        let before = before.filter(|payment| state.answered.payment(&payment.key).is_none());
        before.chain(state.answered.open_payments(call)).cloned().collect()
    }

    /// Returns how to undo a nested call, if it can be undone.
    pub(crate) fn undo_of(&self, key: &ReplayKey) -> Option<UndoableCall> {
        let before = self.history.undo_of(key).cloned();
        before.or_else(|| self.state().answered.undo_of(key).cloned())
    }

    /// Remembers how to undo a nested call.
    pub(crate) fn add_undoable(&self, undo: UndoableCall) {
        self.state().answered.add_undoable(undo);
    }

    /// Returns why a rule ends the turn, if something that the call, or a call that it made, wanted to do caused that.
    pub(crate) fn interrupted(&self, call: &ReplayKey) -> Option<Failure> {
        let state = self.state();
        let by = |interrupt: &&CallInterrupt| interrupt.call == *call || interrupt.call.is_under(call);
        state.interrupts.iter().find(by).map(|interrupt| interrupt.failure.clone())
    }

    /// Remembers that a rule ends the turn because of a call, which may ignore the error.
    pub(crate) fn interrupt(&self, call: &ReplayKey, failure: &Failure) {
        let interrupt = CallInterrupt { call: call.clone(), failure: failure.clone() };
        self.state().interrupts.push(interrupt);
    }

    /// Returns whether the call is parked. Its deadline is suspended then.
    pub(crate) fn is_parked(&self) -> bool {
        self.state().is_parked
    }

    /// Begins a further attempt of the call.
    pub(crate) fn begin_attempt(&self) {
        self.state().is_parked = false;
    }

    /// Includes a fact in the next write.
    pub(crate) async fn note(&self, fact: Fact) {
        // The driver outlives its calls. If it is gone, so is the turn, and the answer is not read.
        let _ = self.to_driver.send(CallMessage::Note(fact)).await;
    }

    /// Settles a model request that brought no complete reply, and records it with the same write. Cancel safe.
    pub(crate) async fn charge(&self, interrupted: InterruptedReply, most: UsageAmount) {
        let _ = self.to_driver.send(CallMessage::Charge(interrupted, most)).await;
    }

    /// Includes facts in the next write.
    pub(crate) async fn note_all(&self, facts: Vec<Fact>) {
        for fact in facts {
            self.note(fact).await;
        }
    }

    /// Notes a policy decision about a nested call, unless it is already recorded.
    pub(crate) async fn note_decision(&self, decision: PolicyDecided) {
        if self.history.decision(&decision.key) != Some(&decision) {
            self.note(Fact::Ruled(decision)).await;
        }
    }

    /// Makes a fact durable.
    pub(crate) async fn record(&self, fact: Fact) {
        self.record_with(fact, CallWrites::default()).await;
    }

    /// Makes a fact durable together with what was written. Both are committed or neither.
    pub(crate) async fn record_with(&self, fact: Fact, written: CallWrites) {
        self.send_settlements().await;
        let (done, durable) = oneshot::channel();
        let _ = self.to_driver.send(CallMessage::Record(fact, written, done)).await;
        self.answer(durable).await;
    }

    /// Waits for the driver's answer. If the write failed, so did the turn, and the driver drops this call here.
    async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> T {
        match answer.await {
            Ok(answer) => answer,
            Err(_) => pending().await,
        }
    }

    /// Parks the call. The driver drops it here and runs it again when the wait is over.
    pub(crate) async fn park<T>(&self, wait: Wait) -> T {
        self.stop_with(CallMessage::Waits(self.child, wait)).await
    }

    /// Parks the call until a person has fixed this failure. It is also tried again at the wait's deadline.
    pub(crate) async fn park_stuck<T>(&self, failure: Failure, wait: Wait) -> T {
        self.stop_with(CallMessage::Stuck(self.child, failure, wait)).await
    }

    /// Sends the driver the last message of a call that parks.
    async fn stop_with<T>(&self, parked: CallMessage) -> T {
        self.send_settlements().await;
        self.state().is_parked = true;
        let _ = self.to_driver.send(parked).await;
        pending().await
    }

    /// Waits until `key` is resolved or the deadline passes. Returns immediately if either has happened.
    pub(crate) async fn wait_for(
        &self,
        key: ReplayKey,
        kind: WaitKind,
        within: Option<Duration>,
    ) -> Result<Resolution, Error> {
        match self.awaited(&key, kind, within)? {
            WaitState::Answered(resolution) => Ok(resolution),
            WaitState::Resolved(effect, resolution) => {
                self.note(self.performed(key, effect, resolution.clone())).await;
                Ok(resolution)
            }
            WaitState::Open(wait) => self.park(wait).await,
        }
    }

    /// Returns the state of a wait. Its deadline is fixed when the turn first parks on it.
    pub(crate) fn awaited(
        &self,
        key: &ReplayKey,
        kind: WaitKind,
        within: Option<Duration>,
    ) -> Result<WaitState, Error> {
        let now = self.services.models.clock.now();
        let deadline = match self.history.wait(key) {
            Some(wait) => wait.deadline,
            None => within.map(|within| now.after(within)),
        };
        let effect = AwaitEvent { key: key.clone(), deadline };
        if let Some(resolution) = self.answered(key, &effect)? {
            return Ok(WaitState::Answered(resolution));
        }
        Ok(match self.history.resolution(key) {
            Some(resolution) => WaitState::Resolved(effect, resolution.clone()),
            None if deadline.is_some_and(|deadline| deadline <= now) => {
                WaitState::Resolved(effect, Resolution::Timeout)
            }
            None => WaitState::Open(Wait { key: key.clone(), kind, deadline }),
        })
    }

    /// Asks the driver for a permit under the rate limits of a call.
    pub(crate) async fn request_permit(&self, request: AdmissionRequest) -> AdmissionDecision {
        self.send_settlements().await;
        let (reply_to, decision) = oneshot::channel();
        let _ = self.to_driver.send(CallMessage::GoesOut(request, reply_to)).await;
        self.answer(decision).await
    }

    /// Reserves budget for what the call is about to do. If a budget is short, parks the call until the budget is
    /// raised, or returns an error.
    pub(crate) async fn reserve(&self, reservation: BudgetReservation) -> Result<(), Error> {
        let key = reservation.key.clone();
        match self.try_to_reserve(reservation).await {
            None => Ok(()),
            Some(short) => self.out_of_budget(&key, &short).await,
        }
    }

    /// Parks the call until a budget is raised, or returns an error if turns do not wait for it.
    pub(crate) async fn out_of_budget<T>(
        &self,
        key: &ReplayKey,
        short: &BudgetShortfall,
    ) -> Result<T, Error> {
        if !short.pauses_turns {
            return Err(short_of(short));
        }
        let key = key.budget(self.history.budget_wait_count(key));
        self.park(wait_for(key, short)).await
    }

    /// Returns whether the usage of the call is metered. An operator may set a budget while it runs.
    pub(crate) fn is_metered(&self) -> bool {
        self.metered || (self.tier == HostTier::Durable && self.services.budgets.are_set())
    }

    /// Reserves budget, or returns the budget that is short.
    pub(crate) async fn try_to_reserve(&self, reservation: BudgetReservation) -> Option<BudgetShortfall> {
        if !self.is_metered() {
            return None;
        }
        self.send_settlements().await;
        let (reply_to, short) = oneshot::channel();
        let _ = self.to_driver.send(CallMessage::Reserve(reservation, reply_to)).await;
        self.answer(short).await
    }

    /// Queues the usage of a reservation. `assumed` is the part of `used` that is assumed, not known. It is sent before
    /// the next fact or request of this call.
    pub(crate) fn settle(&self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount) {
        if self.is_metered() {
            self.state().settled.push(BudgetSettlement { key: key.clone(), used, lost: assumed });
        }
    }

    /// Queues the time spent waiting for a provider. It is sent before the next fact or request of this call.
    pub(crate) fn waited_for_provider(&self, time: Duration) {
        if self.is_metered() {
            self.state().waited_for_provider += time;
        }
    }

    /// Sends the driver what is queued.
    pub(crate) async fn send_settlements(&self) {
        let (waited, settled) = {
            let mut state = self.state();
            (std::mem::take(&mut state.waited_for_provider), std::mem::take(&mut state.settled))
        };
        if !waited.is_zero() {
            let _ = self.to_driver.send(CallMessage::WaitedForProvider(waited)).await;
        }
        if !settled.is_empty() {
            let _ = self.to_driver.send(CallMessage::Settle(settled)).await;
        }
    }
}
