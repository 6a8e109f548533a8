//! Waits of turns and their resolutions.
use super::Tables;
use crate::rows::{ResolutionRow, WaitRows, WaitWrites, WaitingTurns};
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};

impl WaitRows for Tables {
    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error> {
        Ok(self.waits.get(&turn).cloned().unwrap_or_default())
    }

    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error> {
        Ok(self.resolutions.get(&(turn, key.clone())).cloned())
    }
}

impl WaitingTurns for Tables {
    fn waiting(&self, of: OrgVisibility, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error> {
        let visible = |turn: &TurnNo| self.turns.get(turn).is_some_and(|turn| self.covers(of, turn.session));
        let turns = self.waits.iter().filter(|(turn, _)| visible(turn));
        let all = turns.flat_map(|(turn, waits)| waits.iter().map(move |wait| (*turn, wait.clone())));
        Ok(all.filter(|(_, wait)| wait.kind == kind).take(limit).collect())
    }
}

impl WaitWrites for Tables {
    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error> {
        let mut waits = self.waits.get(&turn).cloned().unwrap_or_default();
        match waits.iter_mut().find(|other| other.key == wait.key) {
            Some(same) => *same = wait.clone(),
            None => waits.push(wait.clone()),
        }
        self.set(|tables| &mut tables.waits, turn, Some(waits));
        Ok(())
    }

    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.set(|tables| &mut tables.waits, turn, None);
        Ok(())
    }

    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.resolutions, (row.turn, row.key.clone()), Some(row.resolution.clone()));
        Ok(())
    }
}
