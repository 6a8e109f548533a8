//! Turns.
use super::{Tables, page};
use crate::rows::{SessionNo, TurnQueries, TurnRow, TurnRows, TurnWrites, taken};
use outlast_ports::turns::TurnNo;
use outlast_views::TurnState;
use outlast_vocab::Error;
use outlast_vocab::id::TurnId;
use std::ops::Bound;

impl TurnRows for Tables {
    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error> {
        Ok(self.turns.get(&no).cloned())
    }

    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error> {
        Ok(self.turn_ids.get(&id).and_then(|no| self.turns.get(no)).cloned())
    }

    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error> {
        let same = |row: &&TurnRow| row.session == session && row.key.as_deref() == Some(key);
        Ok(self.turns.values().find(same).cloned())
    }

    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let order = self.turn_order.range((session, from)..=(session, u32::MAX));
        Ok(page(order.filter_map(|(_, no)| self.turns.get(no)), limit))
    }

    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let order = self.turn_order.range((session, 0)..=(session, u32::MAX));
        let turns = order.filter_map(|(_, no)| self.turns.get(no));
        Ok(page(turns.filter(|row| row.state == TurnState::Queued), limit))
    }

    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error> {
        Ok(self.turns.values().rev().find(|row| row.retry_of == Some(of)).cloned())
    }
}

impl TurnQueries for Tables {
    fn turns_after(&self, after: TurnNo, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let later = (Bound::Excluded(after), Bound::Unbounded);
        Ok(page(self.turns.range(later).map(|(_, row)| row), limit))
    }

    fn newest_turn(&self) -> Result<TurnNo, Error> {
        Ok(self.turns.last_key_value().map_or(TurnNo(0), |(no, _)| *no))
    }
}

impl TurnWrites for Tables {
    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error> {
        if self.turn_ids.contains_key(&row.id) {
            return Err(taken(row.id));
        }
        self.last.turn += 1;
        let no = TurnNo(self.last.turn);
        self.set(|tables| &mut tables.turn_ids, row.id, Some(no));
        self.set(|tables| &mut tables.turn_order, (row.session, row.index), Some(no));
        self.set(|tables| &mut tables.turns, no, Some(TurnRow { no, ..row.clone() }));
        Ok(no)
    }

    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.turns, row.no, Some(row.clone()));
        Ok(())
    }
}
