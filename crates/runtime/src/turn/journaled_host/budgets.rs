//! The budgets of a turn: reservations before its effects, and what each write counts as used.
use super::JournaledHost;
use crate::limits::budget_meter::{BudgetMeter, named};
use crate::limits::operator_budgets::OperatorBudgets;
use crate::turn::host::{BudgetReservations, ReservationOutcome, TurnBudget, TurnJournal};
use outlast_kernel::conversation::Conversation;
use outlast_ports::budget::{
    BudgetReservation, BudgetShortfall, BudgetUpdate, OpenReservation, ReservationResult,
};
use outlast_ports::turns::TurnTransition;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::Message;
use outlast_vocab::record::{Fact, InterruptedReply, Seq};
use outlast_vocab::{Error, Millis, ReplayKey};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The budget accounting of a turn, and the model requests of this drive that are not settled.
pub(super) struct BudgetAccounting {
    /// `None` if budgets are not tracked.
    meter: Option<BudgetMeter>,
    operator_budgets: Arc<OperatorBudgets>,
    /// Whether an earlier drive may have left reservations behind.
    has_earlier_drives: bool,
    /// The model requests that this drive reserved budget for and that are not settled.
    unsettled: BTreeSet<ReplayKey>,
}

impl BudgetAccounting {
    /// Creates the accounting of a drive that has reserved nothing.
    pub(super) fn new(
        meter: Option<BudgetMeter>,
        operator_budgets: Arc<OperatorBudgets>,
        has_earlier_drives: bool,
    ) -> Self {
        Self { meter, operator_budgets, has_earlier_drives, unsettled: BTreeSet::new() }
    }

    /// Returns what the next write counts as used, if budgets are tracked now.
    pub(super) fn update(&mut self, transition: &TurnTransition, now: Millis) -> Option<BudgetUpdate> {
        let meter = self.active_meter()?;
        if *transition != TurnTransition::Continue {
            meter.release_reservation();
        }
        let waits = match transition {
            TurnTransition::Park(waits) => meter.reservations_of_waits(waits),
            _ => Vec::new(),
        };
        Some(BudgetUpdate { waits, ..meter.take(now) })
    }

    /// Returns the budget meter, if budgets are tracked now.
    fn active_meter(&mut self) -> Option<&mut BudgetMeter> {
        let operator_budgets = &self.operator_budgets;
        self.meter.as_mut().filter(|meter| meter.counts(operator_budgets))
    }

    fn is_metered(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.counts(&self.operator_budgets))
    }

    /// Whether there is a reservation for an effect that has not begun.
    pub(super) fn has_reservation(&self) -> bool {
        self.meter.as_ref().is_some_and(BudgetMeter::is_ready)
    }

    /// Sets what the session's next turn has to read in addition to its input, if budgets are tracked now.
    pub(super) fn set_next_turn_usage(&mut self, before: Option<&Conversation>, messages: &[Message]) {
        if let (Some(meter), Some(before)) = (self.active_meter(), before) {
            meter.set_next_turn_usage(before, messages);
        }
    }

    /// Returns whether the request for `next`, or any request of the turn, may have a reservation without a settlement.
    fn may_have_lost(&self, next: Option<&ReplayKey>) -> bool {
        let is_open_here = match next {
            Some(next) => self.unsettled.contains(next),
            None => !self.unsettled.is_empty(),
        };
        self.has_earlier_drives || is_open_here
    }

    /// Returns the records of the lost requests among these open reservations.
    fn lost_requests(&self, open: Vec<OpenReservation>, next: Option<&ReplayKey>) -> Vec<InterruptedReply> {
        let Some(meter) = &self.meter else { return Vec::new() };
        let is_lost = |key: &ReplayKey| next.is_none_or(|next| key == next) && !meter.settles(key);
        let lost = open.into_iter().filter(|open| open.key.is_model_request() && is_lost(&open.key));
        lost.filter_map(|lost| meter.lost_request(lost)).collect()
    }

    /// Returns the reservation for an effect that will not begin under this lease.
    pub(super) fn release_reservation(&mut self) {
        if let Some(key) = self.meter.as_mut().and_then(BudgetMeter::release_reservation) {
            self.unsettled.remove(&key);
        }
    }

    /// Remembers that this drive reserved budget for a model request.
    fn was_reserved(&mut self, key: ReplayKey) {
        if key.is_model_request() {
            self.unsettled.insert(key);
        }
    }
}

impl JournaledHost {
    /// Records the model requests whose reservations the next write counts as used without a settlement, so that costs
    /// and budgets agree: the request for `next`, which is made again, or all of them at the end of the turn. They are
    /// requests of dead workers, and requests of this drive that a tool abandoned.
    pub(super) async fn note_lost_requests(&mut self, next: Option<&ReplayKey>) -> Result<(), Error> {
        if self.budgets.may_have_lost(next) {
            let open = self.writer.store().open_reservations(self.writer.lease.turn).await?;
            for lost in self.budgets.lost_requests(open, next) {
                self.buffer_fact(Fact::Interrupted(lost));
            }
        }
        Ok(())
    }

    /// Writes the buffered facts and reserves budget for an effect.
    async fn commit_reservation(
        &mut self,
        reservation: BudgetReservation,
    ) -> Result<ReservationOutcome, Error> {
        let now = self.writer.now();
        self.buffer.budget_update = self
            .budgets
            .active_meter()
            .map(|meter| BudgetUpdate { reservation: Some(reservation.clone()), ..meter.take(now) });
        let receipt = self.commit(TurnTransition::Continue).await?;
        let last = receipt.places.last().map_or(Seq(0), |place| place.seq);
        let short = match receipt.hold_result {
            Some(ReservationResult::Exhausted(short)) => {
                if let (Some(meter), true) = (&mut self.budgets.meter, short.pauses_turns) {
                    meter.add_unfit(reservation);
                }
                Some(short)
            }
            Some(ReservationResult::Reserved { low, .. }) => {
                self.budgets.was_reserved(reservation.key);
                self.tell_low(low);
                None
            }
            None => None,
        };
        Ok(ReservationOutcome { last, short })
    }

    /// Notifies watchers of budgets that are running low.
    fn tell_low(&self, low: Vec<BudgetShortfall>) {
        for short in low {
            let low = || LiveEventKind::BudgetLow { budget: named(&short) };
            self.writer.publish(low);
        }
    }
}

impl BudgetReservations for JournaledHost {
    async fn reserve(&mut self, reservation: BudgetReservation) -> Result<ReservationOutcome, Error> {
        let Some(meter) = self.budgets.active_meter() else {
            return Ok(ReservationOutcome { last: self.flush().await?, short: None });
        };
        let low = meter.take_low();
        if meter.begin(&reservation) {
            self.tell_low(low);
            self.budgets.was_reserved(reservation.key);
            return Ok(ReservationOutcome { last: self.flush().await?, short: None });
        }
        self.budgets.release_reservation();
        self.note_lost_requests(Some(&reservation.key)).await?;
        self.commit_reservation(reservation).await
    }

    fn settle_assumed(&mut self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount) {
        self.budgets.unsettled.remove(key);
        if let Some(meter) = self.budgets.active_meter() {
            meter.settle(key, used, assumed);
        }
    }

    fn exclude_provider_wait(&mut self, time: Duration) {
        if let Some(meter) = &mut self.budgets.meter {
            meter.exclude(time);
        }
    }
}

impl TurnBudget for JournaledHost {
    fn is_metered(&self) -> bool {
        self.budgets.is_metered()
    }

    async fn reserve_ahead(&mut self, reservation: BudgetReservation) -> Result<(), Error> {
        if self.buffer.facts.is_empty() || !self.is_metered() {
            return self.flush().await.map(drop);
        }
        self.budgets.release_reservation();
        let ReservationOutcome { short, .. } = self.commit_reservation(reservation.clone()).await?;
        if let (Some(meter), None) = (&mut self.budgets.meter, short) {
            meter.hold_ahead(reservation);
        }
        Ok(())
    }
}
