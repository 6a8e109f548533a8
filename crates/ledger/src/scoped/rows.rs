//! Filters rows to those of one organisation.
//!
//! Almost every row belongs to a session, and a session to an organisation. A row is visible if its session is. The
//! visible sessions are cached for the unit of work, so the filter never reads a row twice.
//!
//! Rows without a session are decided one by one in the modules of this one. Content addressed by hash is visible once a visible
//! row refers to it. The tables of workers and sinks appear empty.
mod approvals;
mod audit;
mod calls;
mod configs;
mod contents;
mod journal;
mod leases;
mod limits;
mod orgs;
mod payments;
mod search;
mod sessions;
mod signatures;
mod sinks;
mod turns;
mod values;
mod waits;

use crate::rows::{
    AttachmentRow, QueryRows, ReadRows, RecordBody, RecordRow, RowAccess, Rows, SessionNo, SessionRow,
    SessionRows, TurnRow, TurnRows,
};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::{Access, OrgVisibility};
use outlast_vocab::id::OrgId;
use outlast_vocab::{Error, Hash, Kind};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

/// Rows filtered for this access.
pub(super) struct VisibleRows<'a, R> {
    rows: R,
    access: &'a Access,
    /// The rows that this unit of work found to be visible.
    seen: RefCell<SeenIds>,
}

#[derive(Default)]
struct SeenIds {
    sessions: BTreeSet<SessionNo>,
    turns: BTreeSet<TurnNo>,
    contents: BTreeSet<Hash>,
}

impl<'a, R> VisibleRows<'a, R> {
    pub(super) fn new(rows: R, access: &'a Access) -> Self {
        Self { rows, access, seen: RefCell::default() }
    }

    fn sees_all_orgs(&self) -> bool {
        self.access.visibility == OrgVisibility::Everything
    }

    fn covers(&self, org: OrgId) -> bool {
        self.access.visibility.covers(org)
    }

    /// Returns the narrower of two reaches. No caller combines two different organisations.
    fn narrow(&self, of: OrgVisibility) -> OrgVisibility {
        match self.access.visibility {
            OrgVisibility::Everything => of,
            own @ OrgVisibility::Org(_) => own,
        }
    }

    fn session_seen(&self, row: SessionRow) -> Option<SessionRow> {
        let visible = self.covers(row.org);
        if visible {
            self.seen.borrow_mut().sessions.insert(row.no);
        }
        visible.then_some(row)
    }

    fn turn_seen(&self, row: TurnRow) -> TurnRow {
        self.seen.borrow_mut().turns.insert(row.no);
        row
    }

    fn record_seen(&self, row: &RecordRow) {
        if let RecordBody::Blob(content) = row.body {
            self.seen.borrow_mut().contents.insert(content);
        }
    }

    fn attachment_seen(&self, row: AttachmentRow) -> AttachmentRow {
        self.seen.borrow_mut().contents.insert(row.attachment.content);
        row
    }

    fn is_content_visible(&self, content: Hash) -> bool {
        self.sees_all_orgs() || self.seen.borrow().contents.contains(&content)
    }

    /// Returns rows that only the operator of the database sees. Others get the empty default.
    fn operator_only<T: Default>(&self, rows: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.sees_all_orgs() { rows() } else { Ok(T::default()) }
    }
}

impl<R: Deref<Target: ReadRows>> VisibleRows<'_, R> {
    fn is_visible(&self, session: SessionNo) -> Result<bool, Error> {
        let known = self.sees_all_orgs() || self.seen.borrow().sessions.contains(&session);
        Ok(known || self.session(session)?.is_some())
    }

    fn is_turn_visible(&self, turn: TurnNo) -> Result<bool, Error> {
        let known = self.sees_all_orgs() || self.seen.borrow().turns.contains(&turn);
        Ok(known || self.turn(turn)?.is_some())
    }

    /// Returns rows of a session, or the empty default if the session is not visible.
    fn of<T: Default>(
        &self,
        session: SessionNo,
        rows: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.is_visible(session)? { rows() } else { Ok(T::default()) }
    }

    /// Returns rows of a turn, or the empty default if the turn is not visible.
    fn of_turn<T: Default>(&self, turn: TurnNo, rows: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.is_turn_visible(turn)? { rows() } else { Ok(T::default()) }
    }

    /// Returns a turn if its session is visible.
    fn visible_turn(&self, turn: Option<TurnRow>) -> Result<Option<TurnRow>, Error> {
        let Some(turn) = turn else { return Ok(None) };
        Ok(self.is_visible(turn.session)?.then(|| self.turn_seen(turn)))
    }

    fn may_write(&self, session: SessionNo) -> Result<(), Error> {
        if self.is_visible(session)? { Ok(()) } else { Err(invisible_row_error()) }
    }

    fn may_write_turn(&self, turn: TurnNo) -> Result<(), Error> {
        if self.is_turn_visible(turn)? { Ok(()) } else { Err(invisible_row_error()) }
    }
}

/// Returns the error for a write to an invisible row. The ledger learns of rows only by reading, so this is a bug.
fn invisible_row_error() -> Error {
    Error::new(Kind::Internal, "a write would change data of another organisation")
}

impl<R: Deref<Target: ReadRows>> RowAccess for VisibleRows<'_, R> {
    fn access(&self) -> &Access {
        self.access
    }
}

impl<R: Deref<Target: ReadRows>> ReadRows for VisibleRows<'_, R> {}

impl<R: Deref<Target: QueryRows>> QueryRows for VisibleRows<'_, R> {}

impl<R: DerefMut<Target: Rows>> Rows for VisibleRows<'_, R> {}
