//! Records are visible with their session, and partial replies with their turn.
use super::VisibleRows;
use crate::rows::{
    FeedQueries, FeedRows, JournalRows, JournalWrites, PartialRow, QueryRows, ReadRows, RecordRange,
    RecordRow, Rows,
};
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> JournalRows for VisibleRows<'_, R> {
    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error> {
        let rows = self.of(range.session, || self.rows.records(range))?;
        for row in &rows {
            self.record_seen(row);
        }
        Ok(rows)
    }

    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error> {
        self.of_turn(turn, || self.rows.partials(turn))
    }
}

impl<R: Deref<Target: ReadRows>> FeedRows for VisibleRows<'_, R> {
    fn feed(&self, of: OrgVisibility, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error> {
        let mut visible = Vec::new();
        for (position, row) in self.rows.feed(self.narrow(of), after, limit)? {
            if self.is_visible(row.session)? {
                self.record_seen(&row);
                visible.push((position, row));
            }
        }
        Ok(visible)
    }

    fn feed_end(&self) -> Result<u64, Error> {
        self.operator_only(|| self.rows.feed_end())
    }
}

impl<R: Deref<Target: QueryRows>> FeedQueries for VisibleRows<'_, R> {
    fn feed_length(&self, after: u64) -> Result<u64, Error> {
        self.operator_only(|| self.rows.feed_length(after))
    }
}

impl<R: DerefMut<Target: Rows>> JournalWrites for VisibleRows<'_, R> {
    fn append(&mut self, row: &RecordRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.append(row)
    }

    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_partial(row)
    }

    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_partials(turn)
    }
}
