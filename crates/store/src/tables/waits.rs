//! Waits of turns and their resolutions.
use super::Tables;
use super::column::{id, json, limit, read_json};
use outlast_ledger::rows::{ResolutionRow, WaitRows, WaitWrites, WaitingTurns};
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use rusqlite::{Row, params};

impl WaitRows for Tables<'_> {
    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error> {
        let sql = "SELECT wait FROM waits WHERE turn = ?1 ORDER BY no";
        self.all(sql, [turn.0], |row| read_json(row, 0))
    }

    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error> {
        let sql = "SELECT resolution FROM resolutions WHERE turn = ?1 AND key = ?2";
        self.one(sql, params![turn.0, key.as_str()], |row| read_json(row, 0))
    }
}

impl WaitingTurns for Tables<'_> {
    fn waiting(&self, of: OrgVisibility, kind: WaitKind, most: usize) -> Result<Vec<(TurnNo, Wait)>, Error> {
        let (kind, most) = (wait_kind(kind), limit(most));
        let read = |row: &Row<'_>| Ok((TurnNo(row.get(0)?), read_json(row, 1)?));
        match of {
            OrgVisibility::Everything => {
                let sql = "SELECT turn, wait FROM waits WHERE kind = ?1
                           ORDER BY turn, no LIMIT ?2";
                self.all(sql, params![kind, most], read)
            }
            OrgVisibility::Org(org) => {
                let sql = "SELECT turn, wait FROM waits WHERE kind = ?1
                           AND (SELECT org FROM turns JOIN sessions ON sessions.no = turns.session
                                WHERE turns.no = waits.turn) = ?3
                           ORDER BY turn, no LIMIT ?2";
                self.all(sql, params![kind, most, id(org.to_u128())], read)
            }
        }
    }
}

impl WaitWrites for Tables<'_> {
    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error> {
        self.run(
            "INSERT INTO waits (turn, key, kind, wait) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (turn, key) DO UPDATE SET kind = ?3, wait = ?4",
            params![turn.0, wait.key.as_str(), wait_kind(wait.kind), json(wait)?],
        )?;
        Ok(())
    }

    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.run("DELETE FROM waits WHERE turn = ?1", [turn.0])?;
        Ok(())
    }

    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO resolutions (turn, key, resolution) VALUES (?1, ?2, ?3)",
            params![row.turn.0, row.key.as_str(), json(&row.resolution)?],
        )?;
        Ok(())
    }
}

/// Returns the name of a wait kind in JSON.
fn wait_kind(kind: WaitKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(kind)) => kind,
        _ => String::new(),
    }
}
