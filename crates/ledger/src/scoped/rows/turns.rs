//! Turns are visible with their session.
use super::VisibleRows;
use crate::rows::{QueryRows, ReadRows, Rows, SessionNo, TurnQueries, TurnRow, TurnRows, TurnWrites};
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::id::TurnId;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> TurnRows for VisibleRows<'_, R> {
    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error> {
        self.visible_turn(self.rows.turn(no)?)
    }

    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error> {
        self.visible_turn(self.rows.turn_by_id(id)?)
    }

    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error> {
        self.of(session, || Ok(self.rows.turn_by_key(session, key)?.map(|row| self.turn_seen(row))))
    }

    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let rows = self.of(session, || self.rows.turns(session, from, limit))?;
        Ok(rows.into_iter().map(|row| self.turn_seen(row)).collect())
    }

    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let rows = self.of(session, || self.rows.queued(session, limit))?;
        Ok(rows.into_iter().map(|row| self.turn_seen(row)).collect())
    }

    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error> {
        self.visible_turn(self.rows.last_retry(of)?)
    }
}

impl<R: Deref<Target: QueryRows>> TurnQueries for VisibleRows<'_, R> {
    fn turns_after(&self, after: TurnNo, limit: usize) -> Result<Vec<TurnRow>, Error> {
        self.operator_only(|| self.rows.turns_after(after, limit))
    }

    fn newest_turn(&self) -> Result<TurnNo, Error> {
        if self.sees_all_orgs() { self.rows.newest_turn() } else { Ok(TurnNo(0)) }
    }
}

impl<R: DerefMut<Target: Rows>> TurnWrites for VisibleRows<'_, R> {
    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error> {
        self.may_write(row.session)?;
        let no = self.rows.insert_turn(row)?;
        self.seen.get_mut().turns.insert(no);
        Ok(no)
    }

    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.put_turn(row)
    }
}
