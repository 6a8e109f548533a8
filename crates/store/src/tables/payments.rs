//! The payment outbox.
use super::Tables;
use super::column::{count, id, json, limit, read_count, read_json};
use outlast_ledger::rows::{PaymentQueue, PaymentRows, PaymentWrites, PendingPaymentRow};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

/// The columns of a payment that its authority has not accepted.
macro_rules! select_payments {
    ($rest:literal) => {
        concat!("SELECT turn, payment, since, attempts, due_at, failure FROM owed ", $rest)
    };
}

impl PaymentRows for Tables<'_> {
    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error> {
        let sql = select_payments!("WHERE turn = ?1 AND key = ?2");
        self.one(sql, params![turn.0, key.as_str()], read_pending_payment)
    }
}

impl PaymentQueue for Tables<'_> {
    fn pending_payments(&self, of: OrgVisibility, most: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        match of {
            OrgVisibility::Everything => {
                let sql = select_payments!("ORDER BY since, turn, key LIMIT ?1");
                self.all(sql, [limit(most)], read_pending_payment)
            }
            OrgVisibility::Org(org) => {
                let sql = select_payments!(
                    "WHERE (SELECT org FROM sessions WHERE no = (SELECT session FROM turns WHERE no = owed.turn)) = ?1
                     ORDER BY since, turn, key LIMIT ?2"
                );
                self.all(sql, params![id(org.to_u128()), limit(most)], read_pending_payment)
            }
        }
    }

    fn payments_due(&self, now: Millis, most: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let sql = select_payments!("WHERE due_at <= ?1 ORDER BY due_at, turn, key LIMIT ?2");
        self.all(sql, params![count(now.0), limit(most)], read_pending_payment)
    }

    fn next_payment_due(&self) -> Result<Option<Millis>, Error> {
        let sql = "SELECT due_at FROM owed ORDER BY due_at LIMIT 1";
        self.one(sql, [], |row| read_count(row, 0).map(Millis))
    }
}

impl PaymentWrites for Tables<'_> {
    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error> {
        let PendingPaymentRow { turn, payment, since, attempts, due_at, failure } = row;
        self.run(
            "INSERT INTO owed (turn, key, payment, since, attempts, due_at, failure) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (turn, key) DO UPDATE SET payment = ?3, since = ?4, attempts = ?5, due_at = ?6, failure = ?7",
            params![
                turn.0,
                payment.key.as_str(),
                json(payment)?,
                count(since.0),
                attempts,
                count(due_at.0),
                json(failure)?,
            ],
        )?;
        Ok(())
    }

    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.run("DELETE FROM owed WHERE turn = ?1 AND key = ?2", params![turn.0, key.as_str()])?;
        Ok(())
    }
}

fn read_pending_payment(row: &Row<'_>) -> rusqlite::Result<PendingPaymentRow> {
    Ok(PendingPaymentRow {
        turn: TurnNo(row.get(0)?),
        payment: read_json(row, 1)?,
        since: Millis(read_count(row, 2)?),
        attempts: row.get(3)?,
        due_at: Millis(read_count(row, 4)?),
        failure: read_json(row, 5)?,
    })
}
