//! The journal: records, the feed of all sessions, and replies that are still being streamed.
use super::{Tables, page};
use crate::rows::{FeedQueries, FeedRows, JournalRows, JournalWrites, PartialRow, RecordRange, RecordRow};
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;

impl JournalRows for Tables {
    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error> {
        let RecordRange { session, turn, nodes_only, from, to, limit } = range;
        if from > to {
            return Ok(Vec::new());
        }
        let rows =
            self.log_order.range((session, from)..=(session, to)).filter_map(|(_, at)| self.log.get(at));
        let wanted = rows.filter(|row| (turn.is_none() || row.turn == turn) && (row.node || !nodes_only));
        Ok(page(wanted, limit))
    }

    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error> {
        Ok(self.partials.range((turn, 0)..=(turn, usize::MAX)).map(|(_, row)| row.clone()).collect())
    }
}

impl FeedRows for Tables {
    fn feed(&self, of: OrgVisibility, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error> {
        let later = self.log.range(after.saturating_add(1)..);
        let later = later.filter(|(_, row)| self.covers(of, row.session));
        Ok(later.take(limit).map(|(position, row)| (*position, row.clone())).collect())
    }

    fn feed_end(&self) -> Result<u64, Error> {
        Ok(self.log.last_key_value().map_or(0, |(position, _)| *position))
    }
}

impl FeedQueries for Tables {
    fn feed_length(&self, after: u64) -> Result<u64, Error> {
        Ok(self.log.range(after.saturating_add(1)..).count() as u64)
    }
}

impl JournalWrites for Tables {
    fn append(&mut self, row: &RecordRow) -> Result<(), Error> {
        self.last.record += 1;
        let position = self.last.record;
        self.set(|tables| &mut tables.log_order, (row.session, row.seq), Some(position));
        self.set(|tables| &mut tables.log, position, Some(row.clone()));
        Ok(())
    }

    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.partials, (row.turn, row.start), Some(row.clone()));
        Ok(())
    }

    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error> {
        for row in self.partials(turn)? {
            self.set(|tables| &mut tables.partials, (turn, row.start), None);
        }
        Ok(())
    }
}
