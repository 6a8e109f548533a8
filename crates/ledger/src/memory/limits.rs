//! Limits: budget accounts with their reservations, and rate limits.
use super::{Tables, page};
use crate::rows::{BudgetAccountRow, LimitQueries, LimitRows, LimitWrites, ReservationRow};
use outlast_ports::turns::TurnNo;
use outlast_views::RateView;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::OrgId;
use outlast_vocab::key::ReplayKey;

impl LimitRows for Tables {
    fn budget_account(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error> {
        Ok(self.accounts.get(&(org, name.to_owned())).cloned())
    }

    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error> {
        Ok(self.reservations.values().filter(|row| row.turn == turn).cloned().collect())
    }

    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error> {
        Ok(self.rates.get(&(org, name.to_owned())).cloned())
    }
}

impl LimitQueries for Tables {
    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error> {
        let visible =
            |row: &&BudgetAccountRow| of.covers(row.org) && Some((row.org, row.name.as_str())) > after;
        Ok(page(self.accounts.values().filter(visible), limit))
    }

    fn budgets_are_set(&self) -> Result<bool, Error> {
        Ok(self.accounts.values().any(|row| row.operator_budget.is_some()))
    }

    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<RateView>, Error> {
        let visible = |row: &&RateView| of.covers(row.org) && Some((row.org, row.name.as_str())) > after;
        Ok(page(self.rates.values().filter(visible), limit))
    }
}

impl LimitWrites for Tables {
    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.accounts, (row.org, row.name.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error> {
        self.set(|tables| &mut tables.accounts, (org, name.to_owned()), None);
        Ok(())
    }

    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.reservations, (row.turn, row.key.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.set(|tables| &mut tables.reservations, (turn, key.clone()), None);
        Ok(())
    }

    fn put_rate(&mut self, row: &RateView) -> Result<(), Error> {
        self.set(|tables| &mut tables.rates, (row.org, row.name.clone()), Some(row.clone()));
        Ok(())
    }
}
