//! Rows of sessions and turns as they stand in the tables, so that the writer need not read what it just wrote.
//!
//! They hold inside one connection as long as nobody else writes the file and nothing that it wrote is undone; the
//! writer empties them when either happens.
use outlast_ports::rows::{SessionNo, SessionRow, TurnNo, TurnRow};
use outlast_vocab::SessionId;
use std::cell::RefCell;
use std::collections::HashMap;

/// Rows that are held of each kind; beyond that all are let go, and those that are still in use come back.
const MOST: usize = 1_024;

/// The rows that a writer holds.
#[derive(Default)]
pub(crate) struct Held {
    rows: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<SessionNo, SessionRow>,
    numbers: HashMap<SessionId, SessionNo>,
    turns: HashMap<TurnNo, TurnRow>,
}

impl Held {
    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        *self.rows.borrow_mut() = Kept::default();
    }

    /// A session, if it is held.
    pub(super) fn session(&self, no: SessionNo) -> Option<SessionRow> {
        self.rows.borrow().sessions.get(&no).cloned()
    }

    /// A session by its id, if it is held.
    pub(super) fn session_by_id(&self, id: SessionId) -> Option<SessionRow> {
        let rows = self.rows.borrow();
        rows.sessions.get(rows.numbers.get(&id)?).cloned()
    }

    /// A turn, if it is held.
    pub(super) fn turn(&self, no: TurnNo) -> Option<TurnRow> {
        self.rows.borrow().turns.get(&no).cloned()
    }

    /// Holds a session as it was just read or written.
    pub(super) fn put_session(&self, row: &SessionRow) {
        let mut rows = self.rows.borrow_mut();
        if rows.sessions.len() >= MOST {
            rows.sessions.clear();
            rows.numbers.clear();
        }
        rows.numbers.insert(row.id, row.no);
        rows.sessions.insert(row.no, row.clone());
    }

    /// Holds a turn as it was just read or written. One that has ended will hardly be asked for again.
    pub(super) fn put_turn(&self, row: &TurnRow) {
        let mut rows = self.rows.borrow_mut();
        if row.ended.is_some() {
            rows.turns.remove(&row.no);
            return;
        }
        if rows.turns.len() >= MOST {
            rows.turns.clear();
        }
        rows.turns.insert(row.no, row.clone());
    }
}
