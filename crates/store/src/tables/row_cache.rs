//! A cache of session and turn rows, so that the writer does not read what it has just written.
//!
//! The rows are valid on one connection, as long as no other process writes the file and no write is rolled
//! back. The writer clears the cache when either happens.
use outlast_ledger::rows::{SessionNo, SessionRow, TurnRow};
use outlast_ports::turns::TurnNo;
use outlast_vocab::SessionId;
use std::cell::RefCell;
use std::collections::HashMap;

/// The most rows of each kind. When the cache is full, it is cleared, and rows in use are read again.
const CACHED_ROWS_MAX: usize = 1_024;

/// The cache of a writer.
#[derive(Default)]
pub(crate) struct RowCache {
    rows: RefCell<CachedRows>,
}

#[derive(Default)]
struct CachedRows {
    sessions: HashMap<SessionNo, SessionRow>,
    numbers: HashMap<SessionId, SessionNo>,
    turns: HashMap<TurnNo, TurnRow>,
}

impl RowCache {
    /// Clears the cache.
    pub(crate) fn clear(&self) {
        *self.rows.borrow_mut() = CachedRows::default();
    }

    /// Returns a cached session.
    pub(super) fn session(&self, no: SessionNo) -> Option<SessionRow> {
        self.rows.borrow().sessions.get(&no).cloned()
    }

    /// Returns a cached session by its id.
    pub(super) fn session_by_id(&self, id: SessionId) -> Option<SessionRow> {
        let rows = self.rows.borrow();
        rows.sessions.get(rows.numbers.get(&id)?).cloned()
    }

    /// Returns a cached turn.
    pub(super) fn turn(&self, no: TurnNo) -> Option<TurnRow> {
        self.rows.borrow().turns.get(&no).cloned()
    }

    /// Caches a session that was just read or written.
    pub(super) fn put_session(&self, row: &SessionRow) {
        let mut rows = self.rows.borrow_mut();
        if rows.sessions.len() >= CACHED_ROWS_MAX {
            rows.sessions.clear();
            rows.numbers.clear();
        }
        rows.numbers.insert(row.id, row.no);
        rows.sessions.insert(row.no, row.clone());
    }

    /// Caches a turn that was just read or written. An ended turn is removed, because it is rarely read
    /// again.
    pub(super) fn put_turn(&self, row: &TurnRow) {
        let mut rows = self.rows.borrow_mut();
        if row.ended.is_some() {
            rows.turns.remove(&row.no);
            return;
        }
        if rows.turns.len() >= CACHED_ROWS_MAX {
            rows.turns.clear();
        }
        rows.turns.insert(row.no, row.clone());
    }
}
