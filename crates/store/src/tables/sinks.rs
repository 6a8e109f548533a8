//! Sinks, and the outputs that are not delivered to them yet.
use super::Tables;
use super::column::{count, id, json, limit, read_count, read_json, read_optional_count};
use outlast_ledger::rows::{DeliveryQueue, DeliveryRow, SinkQueries, SinkRow, SinkRows, SinkWrites};
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::TurnNo;
use outlast_vocab::id::WorkerId;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Millis};
use rusqlite::types::ValueRef;
use rusqlite::{Row, params};

/// The columns of a sink, in the order that [`read_sink`] takes them.
macro_rules! sink {
    ($rest:literal) => {
        concat!("SELECT name, since, cursor, delivered FROM sinks ", $rest)
    };
}

/// The columns of a delivery of an output, in the order that [`read_delivery_row`] takes them.
macro_rules! outgoing {
    ($rest:literal) => {
        concat!(
            "SELECT sink, turn, attempts, forgiven, due_at, worker, failure, seq, nth FROM deliveries ",
            $rest
        )
    };
}

pub(super) const DELIVERIES_DUE: &str =
    outgoing!("WHERE sink = ?1 AND due_at <= ?2 ORDER BY due_at, turn, seq, nth LIMIT ?3");
pub(super) const DELIVERIES_TAKEN: &str = outgoing!(
    "INDEXED BY deliveries_taken WHERE sink = ?1 AND worker IS NOT NULL ORDER BY turn, seq, nth LIMIT ?2"
);
pub(super) const NEXT_DELIVERY: &str =
    "SELECT due_at FROM deliveries WHERE sink = ?1 AND due_at IS NOT NULL ORDER BY due_at LIMIT 1";
pub(super) const DELIVERIES: &str =
    outgoing!("WHERE sink = ?1 AND (turn, seq, nth) > (?2, ?3, ?4) ORDER BY turn, seq, nth LIMIT ?5");

impl SinkRows for Tables<'_> {
    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        self.one(sink!("WHERE name = ?1"), [name], read_sink)
    }

    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error> {
        let sql = outgoing!("WHERE sink = ?1 AND turn = ?2 AND seq = ?3 AND nth = ?4");
        let OutputPosition { seq, nth } = moment;
        self.one(sql, params![sink, turn.0, count(seq.0), nth], read_delivery_row)
    }
}

impl DeliveryQueue for Tables<'_> {
    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        most: usize,
    ) -> Result<Vec<DeliveryRow>, Error> {
        let place =
            after.map_or((-1, -1, -1), |DeliveryPosition { turn, moment: OutputPosition { seq, nth } }| {
                (turn.0, count(seq.0), i64::from(nth))
            });
        let params = params![sink, place.0, place.1, place.2, limit(most)];
        self.all(DELIVERIES, params, read_delivery_row)
    }

    fn deliveries_due(&self, sink: &str, now: Millis, most: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.all(DELIVERIES_DUE, params![sink, count(now.0), limit(most)], read_delivery_row)
    }

    fn deliveries_taken(&self, sink: &str, most: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.all(DELIVERIES_TAKEN, params![sink, limit(most)], read_delivery_row)
    }

    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error> {
        Ok(self.one(NEXT_DELIVERY, [sink], |row| read_count(row, 0))?.map(Millis))
    }
}

impl SinkQueries for Tables<'_> {
    fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        self.all(sink!("ORDER BY name"), [], read_sink)
    }

    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error> {
        let sql = "SELECT count(due_at), count(*) - count(due_at) FROM deliveries WHERE sink = ?1";
        let counts = self.one(sql, [sink], |row| Ok((read_count(row, 0)?, read_count(row, 1)?)))?;
        Ok(counts.unwrap_or((0, 0)))
    }
}

impl SinkWrites for Tables<'_> {
    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error> {
        let SinkRow { name, since, cursor, delivered } = row;
        self.run(
            "INSERT INTO sinks (name, since, cursor, delivered) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET since = ?2, cursor = ?3, delivered = ?4",
            params![name, count(since.0), count(*cursor), count(*delivered)],
        )?;
        Ok(())
    }

    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error> {
        let DeliveryRow {
            sink,
            turn,
            position: moment,
            attempts,
            attempts_forgiven: forgiven,
            due_at,
            worker,
            failure,
        } = row;
        self.run(
            "INSERT INTO deliveries (sink, turn, attempts, forgiven, due_at, worker, failure, seq, nth)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (sink, turn, seq, nth)
             DO UPDATE SET attempts = ?3, forgiven = ?4, due_at = ?5, worker = ?6, failure = ?7",
            params![
                sink,
                turn.0,
                attempts,
                forgiven,
                due_at.map(|at| count(at.0)),
                worker.map(|worker| id(worker.to_u128())),
                failure.as_ref().map(json).transpose()?,
                count(moment.seq.0),
                moment.nth,
            ],
        )?;
        Ok(())
    }

    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error> {
        self.run(
            "DELETE FROM deliveries WHERE sink = ?1 AND turn = ?2 AND seq = ?3 AND nth = ?4",
            params![sink, turn.0, count(moment.seq.0), moment.nth],
        )?;
        Ok(())
    }
}

fn read_sink(row: &Row<'_>) -> rusqlite::Result<SinkRow> {
    Ok(SinkRow {
        name: row.get(0)?,
        since: Millis(read_count(row, 1)?),
        cursor: read_count(row, 2)?,
        delivered: read_count(row, 3)?,
    })
}

fn read_delivery_row(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let failure = match row.get_ref(6)? {
        ValueRef::Null => None,
        _ => Some(read_json(row, 6)?),
    };
    Ok(DeliveryRow {
        sink: row.get(0)?,
        turn: TurnNo(row.get(1)?),
        position: OutputPosition { seq: Seq(read_count(row, 7)?), nth: row.get(8)? },
        attempts: row.get(2)?,
        attempts_forgiven: row.get(3)?,
        due_at: read_optional_count(row, 4)?.map(Millis),
        worker: row.get::<_, Option<[u8; 16]>>(5)?.map(|raw| WorkerId::from_u128(u128::from_be_bytes(raw))),
        failure,
    })
}
