//! Limits: budget accounts with their reservations, and rate limits.
use super::Tables;
use super::column::{count, id, id_lower_bound, json, limit, read_count, read_id, read_json};
use outlast_ledger::rows::{BudgetAccountRow, LimitQueries, LimitRows, LimitWrites, ReservationRow};
use outlast_ports::turns::TurnNo;
use outlast_views::RateView;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::budget::Budget;
use outlast_vocab::id::OrgId;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::rate::RateState;
use outlast_vocab::{Error, Millis};
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};

/// The columns of a budget account.
macro_rules! select_accounts {
    ($rest:literal) => {
        concat!("SELECT name, budget, spent, held, lost, standing, org, brought FROM purses ", $rest)
    };
}

/// The columns of a rate limit.
macro_rules! rate {
    ($rest:literal) => {
        concat!(
            "SELECT org, name, every_us, burst, next_us, line_us, taken, refused, asked FROM rates ",
            $rest
        )
    };
}

pub(super) const ACCOUNTS: &str =
    select_accounts!("WHERE (org, name) > (?1, ?2) ORDER BY org, name LIMIT ?3");
pub(super) const ACCOUNTS_OF: &str = select_accounts!("WHERE org = ?1 AND name > ?2 ORDER BY name LIMIT ?3");
pub(super) const RATES: &str = rate!("WHERE (org, name) > (?1, ?2) ORDER BY org, name LIMIT ?3");
pub(super) const RATES_OF: &str = rate!("WHERE org = ?1 AND name > ?2 ORDER BY name LIMIT ?3");

impl LimitRows for Tables<'_> {
    fn budget_account(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error> {
        let sql = select_accounts!("WHERE org = ?1 AND name = ?2");
        self.one(sql, params![id(org.to_u128()), name], read_budget_account)
    }

    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error> {
        let sql = "SELECT turn, key, most, purses FROM holds WHERE turn = ?1 ORDER BY key";
        self.all(sql, [turn.0], read_reservation)
    }

    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error> {
        let sql = rate!("WHERE org = ?1 AND name = ?2");
        self.one(sql, params![id(org.to_u128()), name], read_rate)
    }
}

impl LimitQueries for Tables<'_> {
    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        most: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error> {
        let (from, name) = after.map_or((None, ""), |(org, name)| (Some(org), name));
        match (of, from) {
            (OrgVisibility::Everything, _) => {
                let org = id_lower_bound(from.map(OrgId::to_u128));
                self.all(ACCOUNTS, params![org, name, limit(most)], read_budget_account)
            }
            // All names of an organisation come before those of the next.
            (OrgVisibility::Org(org), Some(from)) if from > org => Ok(Vec::new()),
            (OrgVisibility::Org(org), from) => {
                let name = if from == Some(org) { name } else { "" };
                self.all(ACCOUNTS_OF, params![id(org.to_u128()), name, limit(most)], read_budget_account)
            }
        }
    }

    fn budgets_are_set(&self) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM purses WHERE budget IS NOT NULL LIMIT 1";
        Ok(self.one(sql, [], |_| Ok(()))?.is_some())
    }

    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        most: usize,
    ) -> Result<Vec<RateView>, Error> {
        let (from, name) = after.map_or((None, ""), |(org, name)| (Some(org), name));
        match (of, from) {
            (OrgVisibility::Everything, _) => {
                let org = id_lower_bound(from.map(OrgId::to_u128));
                self.all(RATES, params![org, name, limit(most)], read_rate)
            }
            // All names of an organisation come before those of the next.
            (OrgVisibility::Org(org), Some(from)) if from > org => Ok(Vec::new()),
            (OrgVisibility::Org(org), from) => {
                let name = if from == Some(org) { name } else { "" };
                self.all(RATES_OF, params![id(org.to_u128()), name, limit(most)], read_rate)
            }
        }
    }
}

impl LimitWrites for Tables<'_> {
    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error> {
        let BudgetAccountRow {
            org,
            name,
            operator_budget: set,
            agent_budget: brought,
            spent,
            reserved: held,
            lost,
            conversation_cost: standing,
        } = row;
        self.run(
            "INSERT INTO purses (name, budget, spent, held, lost, standing, org, brought)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (org, name) DO UPDATE
             SET budget = ?2, spent = ?3, held = ?4, lost = ?5, standing = ?6, brought = ?8",
            params![
                name,
                set.as_ref().map(json).transpose()?,
                json(spent)?,
                json(held)?,
                json(lost)?,
                json(standing)?,
                id(org.to_u128()),
                brought.as_ref().map(json).transpose()?,
            ],
        )?;
        Ok(())
    }

    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error> {
        self.run("DELETE FROM purses WHERE org = ?1 AND name = ?2", params![id(org.to_u128()), name])?;
        Ok(())
    }

    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error> {
        let ReservationRow { turn, key, amount_max: most, accounts: names } = row;
        self.run(
            "INSERT INTO holds (turn, key, most, purses) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (turn, key) DO UPDATE SET most = ?3, purses = ?4",
            params![turn.0, json(key)?, json(most)?, json(names)?],
        )?;
        Ok(())
    }

    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.run("DELETE FROM holds WHERE turn = ?1 AND key = ?2", params![turn.0, json(key)?])?;
        Ok(())
    }

    fn put_rate(&mut self, row: &RateView) -> Result<(), Error> {
        let RateView {
            org,
            name,
            every,
            burst,
            state: RateState { next, queue_end: line },
            taken,
            refused,
            asked,
        } = row;
        self.run(
            "INSERT INTO rates (org, name, every_us, burst, next_us, line_us, taken, refused, asked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (org, name) DO UPDATE SET
                 every_us = ?3, burst = ?4, next_us = ?5, line_us = ?6, taken = ?7, refused = ?8, asked = ?9",
            params![
                id(org.to_u128()),
                name,
                count(*every),
                burst,
                count(*next),
                count(*line),
                count(*taken),
                count(*refused),
                count(asked.0),
            ],
        )?;
        Ok(())
    }
}

fn read_budget(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Budget>> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        _ => read_json(row, at).map(Some),
    }
}

fn read_budget_account(row: &Row<'_>) -> rusqlite::Result<BudgetAccountRow> {
    Ok(BudgetAccountRow {
        org: OrgId::from_u128(read_id(row, 6)?),
        name: row.get(0)?,
        operator_budget: read_budget(row, 1)?,
        agent_budget: read_budget(row, 7)?,
        spent: read_json(row, 2)?,
        reserved: read_json(row, 3)?,
        lost: read_json(row, 4)?,
        conversation_cost: read_json(row, 5)?,
    })
}

fn read_rate(row: &Row<'_>) -> rusqlite::Result<RateView> {
    Ok(RateView {
        org: OrgId::from_u128(read_id(row, 0)?),
        name: row.get(1)?,
        every: read_count(row, 2)?,
        burst: row.get(3)?,
        state: RateState { next: read_count(row, 4)?, queue_end: read_count(row, 5)? },
        taken: read_count(row, 6)?,
        refused: read_count(row, 7)?,
        asked: Millis(read_count(row, 8)?),
    })
}

fn read_reservation(row: &Row<'_>) -> rusqlite::Result<ReservationRow> {
    Ok(ReservationRow {
        turn: TurnNo(row.get(0)?),
        key: read_json(row, 1)?,
        amount_max: read_json(row, 2)?,
        accounts: read_json(row, 3)?,
    })
}
