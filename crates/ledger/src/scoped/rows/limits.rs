//! Budget accounts and rate limits are visible within their organisation, reservations with their turn.
use super::{VisibleRows, invisible_row_error};
use crate::rows::{
    BudgetAccountRow, LimitQueries, LimitRows, LimitWrites, QueryRows, ReadRows, ReservationRow, Rows,
};
use outlast_ports::turns::TurnNo;
use outlast_views::RateView;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::OrgId;
use outlast_vocab::key::ReplayKey;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> LimitRows for VisibleRows<'_, R> {
    fn budget_account(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error> {
        if self.covers(org) { self.rows.budget_account(org, name) } else { Ok(None) }
    }

    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error> {
        self.of_turn(turn, || self.rows.reservations(turn))
    }

    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error> {
        if self.covers(org) { self.rows.rate(org, name) } else { Ok(None) }
    }
}

impl<R: Deref<Target: QueryRows>> LimitQueries for VisibleRows<'_, R> {
    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error> {
        self.rows.budget_accounts(self.narrow(of), after, limit)
    }

    // Whether budgets are set at all does not reveal the budgets of other organisations.
    fn budgets_are_set(&self) -> Result<bool, Error> {
        self.rows.budgets_are_set()
    }

    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<RateView>, Error> {
        self.rows.rates(self.narrow(of), after, limit)
    }
}

impl<R: DerefMut<Target: Rows>> LimitWrites for VisibleRows<'_, R> {
    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error> {
        if self.covers(row.org) { self.rows.put_budget_account(row) } else { Err(invisible_row_error()) }
    }

    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error> {
        if self.covers(org) { self.rows.delete_budget_account(org, name) } else { Err(invisible_row_error()) }
    }

    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_reservation(row)
    }

    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_reservation(turn, key)
    }

    fn put_rate(&mut self, row: &RateView) -> Result<(), Error> {
        if self.covers(row.org) { self.rows.put_rate(row) } else { Err(invisible_row_error()) }
    }
}
