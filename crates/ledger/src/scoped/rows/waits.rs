//! Waits and resolutions are visible with their turn.
use super::VisibleRows;
use crate::rows::{ReadRows, ResolutionRow, Rows, WaitRows, WaitWrites, WaitingTurns};
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> WaitRows for VisibleRows<'_, R> {
    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error> {
        self.of_turn(turn, || self.rows.waits(turn))
    }

    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error> {
        self.of_turn(turn, || self.rows.resolution(turn, key))
    }
}

impl<R: Deref<Target: ReadRows>> WaitingTurns for VisibleRows<'_, R> {
    fn waiting(&self, of: OrgVisibility, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error> {
        let mut visible = Vec::new();
        for (turn, wait) in self.rows.waiting(self.narrow(of), kind, limit)? {
            if self.is_turn_visible(turn)? {
                visible.push((turn, wait));
            }
        }
        Ok(visible)
    }
}

impl<R: DerefMut<Target: Rows>> WaitWrites for VisibleRows<'_, R> {
    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.put_wait(turn, wait)
    }

    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_waits(turn)
    }

    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.insert_resolution(row)
    }
}
