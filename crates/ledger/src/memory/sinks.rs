//! Sinks, and the outputs that are not delivered to them yet.
use super::{Tables, page};
use crate::rows::{DeliveryQueue, DeliveryRow, SinkQueries, SinkRow, SinkRows, SinkWrites};
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::TurnNo;
use outlast_vocab::{Error, Millis};

impl SinkRows for Tables {
    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        Ok(self.sinks.get(name).cloned())
    }

    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error> {
        Ok(self.deliveries.get(&(sink.to_owned(), turn, moment)).cloned())
    }
}

impl DeliveryQueue for Tables {
    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error> {
        Ok(page(self.deliveries_to(sink).filter(|row| Some(row.place()) > after), limit))
    }

    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        let mut due: Vec<&DeliveryRow> =
            self.deliveries_to(sink).filter(|row| row.due_at.is_some_and(|at| at <= now)).collect();
        due.sort_by_key(|row| row.due_at);
        Ok(page(due.into_iter(), limit))
    }

    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        Ok(page(self.deliveries_to(sink).filter(|row| row.worker.is_some()), limit))
    }

    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error> {
        Ok(self.deliveries_to(sink).filter_map(|row| row.due_at).min())
    }
}

impl SinkQueries for Tables {
    fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        Ok(self.sinks.values().cloned().collect())
    }

    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error> {
        let dead = self.deliveries_to(sink).filter(|row| row.due_at.is_none()).count() as u64;
        Ok((self.deliveries_to(sink).count() as u64 - dead, dead))
    }
}

impl SinkWrites for Tables {
    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.sinks, row.name.clone(), Some(row.clone()));
        Ok(())
    }

    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error> {
        self.set(
            |tables| &mut tables.deliveries,
            (row.sink.clone(), row.turn, row.position),
            Some(row.clone()),
        );
        Ok(())
    }

    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error> {
        self.set(|tables| &mut tables.deliveries, (sink.to_owned(), turn, moment), None);
        Ok(())
    }
}

impl Tables {
    fn deliveries_to(&self, sink: &str) -> impl Iterator<Item = &DeliveryRow> {
        self.deliveries.values().filter(move |row| row.sink == sink)
    }
}
