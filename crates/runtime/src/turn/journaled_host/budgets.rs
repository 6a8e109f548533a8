//! The budgets of a turn: reservations before its effects, and what each write counts as used.
use super::JournaledHost;
use crate::limits::budget_meter::{BudgetMeter, named};
use crate::turn::host::{BudgetReservations, ReservationOutcome, TurnBudget, TurnJournal};
use outlast_ports::budget::{BudgetReservation, BudgetShortfall, BudgetUpdate, ReservationResult};
use outlast_ports::turns::TurnTransition;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::{Error, ReplayKey};
use std::time::Duration;

impl JournaledHost {
    /// Returns what the next write counts as used, if budgets are tracked now.
    pub(super) fn budget_update(&mut self, transition: &TurnTransition) -> Option<BudgetUpdate> {
        let now = self.writer.now();
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

    /// Returns the budget accounting, if budgets are tracked now.
    fn active_meter(&mut self) -> Option<&mut BudgetMeter> {
        let operator_budgets = &self.operator_budgets;
        self.meter.as_mut().filter(|meter| meter.counts(operator_budgets))
    }

    /// Records the model requests whose reservations the next write counts as used without a settlement, so that costs
    /// and budgets agree: the request for `next`, which is made again, or all of them at the end of the turn. They are
    /// requests of dead workers, and requests of this drive that a tool abandoned.
    pub(super) async fn note_lost_requests(&mut self, next: Option<&ReplayKey>) -> Result<(), Error> {
        let is_open_here = match next {
            Some(next) => self.unsettled.contains(next),
            None => !self.unsettled.is_empty(),
        };
        if !self.has_earlier_drives && !is_open_here {
            return Ok(());
        }
        let open = self.writer.store().open_reservations(self.writer.lease.turn).await?;
        let Some(meter) = &self.meter else { return Ok(()) };
        let is_lost = |key: &ReplayKey| next.is_none_or(|next| key == next);
        let lost = open.into_iter().filter(|open| open.key.is_model_request() && is_lost(&open.key));
        let lost = lost.filter(|open| !meter.settles(&open.key));
        let lost: Vec<_> = lost.filter_map(|lost| meter.lost_request(lost)).collect();
        for lost in lost {
            self.buffer_fact(Fact::Interrupted(lost));
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
            .active_meter()
            .map(|meter| BudgetUpdate { reservation: Some(reservation.clone()), ..meter.take(now) });
        let receipt = self.commit(TurnTransition::Continue).await?;
        let last = receipt.places.last().map_or(Seq(0), |place| place.seq);
        let short = match receipt.hold_result {
            Some(ReservationResult::Exhausted(short)) => {
                if let (Some(meter), true) = (&mut self.meter, short.pauses_turns) {
                    meter.add_unfit(reservation);
                }
                Some(short)
            }
            Some(ReservationResult::Reserved { low, .. }) => {
                self.was_reserved(&reservation.key);
                self.tell_low(low);
                None
            }
            None => None,
        };
        Ok(ReservationOutcome { last, short })
    }

    /// Returns the reservation for an effect that will not begin under this lease.
    pub(super) fn release_reservation(&mut self) {
        if let Some(key) = self.meter.as_mut().and_then(BudgetMeter::release_reservation) {
            self.unsettled.remove(&key);
        }
    }

    /// Remembers that this drive reserved budget for a model request.
    fn was_reserved(&mut self, key: &ReplayKey) {
        if key.is_model_request() {
            self.unsettled.insert(key.clone());
        }
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
        let Some(meter) = self.active_meter() else {
            return Ok(ReservationOutcome { last: self.flush().await?, short: None });
        };
        let low = meter.take_low();
        if meter.begin(&reservation) {
            self.tell_low(low);
            self.was_reserved(&reservation.key);
            return Ok(ReservationOutcome { last: self.flush().await?, short: None });
        }
        self.release_reservation();
        self.note_lost_requests(Some(&reservation.key)).await?;
        self.commit_reservation(reservation).await
    }

    fn settle(&mut self, key: &ReplayKey, used: Option<UsageAmount>) {
        self.unsettled.remove(key);
        if let Some(meter) = self.active_meter() {
            meter.settle(key, used);
        }
    }

    fn exclude_provider_wait(&mut self, time: Duration) {
        if let Some(meter) = self.meter.as_mut() {
            meter.exclude(time);
        }
    }
}

impl TurnBudget for JournaledHost {
    fn is_metered(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.counts(&self.operator_budgets))
    }

    async fn reserve_ahead(&mut self, reservation: BudgetReservation) -> Result<(), Error> {
        if self.buffer.facts.is_empty() || !self.is_metered() {
            return self.flush().await.map(drop);
        }
        self.release_reservation();
        let ReservationOutcome { short, .. } = self.commit_reservation(reservation.clone()).await?;
        if let (Some(meter), None) = (&mut self.meter, short) {
            meter.hold_ahead(reservation);
        }
        Ok(())
    }

    fn settle_cancelled(&mut self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount) {
        self.unsettled.remove(key);
        if let Some(meter) = self.active_meter() {
            meter.settle_cancelled(key, used, assumed);
        }
    }
}
