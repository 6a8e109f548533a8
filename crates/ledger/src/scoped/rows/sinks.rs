//! Sinks and deliveries are for the operator.
use super::VisibleRows;
use crate::rows::{
    DeliveryQueue, DeliveryRow, QueryRows, ReadRows, Rows, SinkQueries, SinkRow, SinkRows, SinkWrites,
};
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::TurnNo;
use outlast_vocab::{Error, Millis};
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: ReadRows>> SinkRows for VisibleRows<'_, R> {
    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        self.operator_only(|| self.rows.sink(name))
    }

    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.delivery(sink, turn, moment))
    }
}

impl<R: Deref<Target: ReadRows>> DeliveryQueue for VisibleRows<'_, R> {
    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.deliveries(sink, after, limit))
    }

    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.deliveries_due(sink, now, limit))
    }

    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.deliveries_taken(sink, limit))
    }

    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_delivery(sink))
    }
}

impl<R: Deref<Target: QueryRows>> SinkQueries for VisibleRows<'_, R> {
    fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        self.operator_only(|| self.rows.sinks())
    }

    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error> {
        self.operator_only(|| self.rows.count_deliveries(sink))
    }
}

impl<R: DerefMut<Target: Rows>> SinkWrites for VisibleRows<'_, R> {
    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.put_sink(row)
    }

    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.put_delivery(row)
    }

    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.delete_delivery(sink, turn, moment)
    }
}
