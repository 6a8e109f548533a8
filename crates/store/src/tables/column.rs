//! Converts values to columns and back. A column that cannot be converted back means that the database is
//! corrupt.
use outlast_ledger::rows::{RecordAddress, SessionNo};
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Hash, Kind};
use rusqlite::types::Type;
use rusqlite::{Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// Encodes an id: 16 bytes in the same order as the id.
pub(super) fn id(raw: u128) -> [u8; 16] {
    raw.to_be_bytes()
}

/// Encodes a count or a time. Columns end at 2⁶³ − 1, which is larger than any real count or time. Larger
/// numbers mean "no limit" or "never".
pub(super) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Encodes a number of rows.
pub(super) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// Encodes the position of a record, as two columns.
pub(super) fn record_address(node: Option<RecordAddress>) -> (Option<i64>, Option<i64>) {
    (node.map(|node| node.session.0), node.map(|node| count(node.seq.0)))
}

/// Reads a value that is stored in its text form.
pub(super) fn read_parsed<T: FromStr<Err = Error>>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    text.parse()
        .map_err(|cause: Error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, cause.into()))
}

pub(super) fn read_id(row: &Row<'_>, column: usize) -> Result<u128> {
    row.get(column).map(u128::from_be_bytes)
}

pub(super) fn read_count(row: &Row<'_>, column: usize) -> Result<u64> {
    read_optional_count(row, column)?.ok_or_else(|| unknown_number(column, 0))
}

pub(super) fn read_optional_count(row: &Row<'_>, column: usize) -> Result<Option<u64>> {
    let found: Option<i64> = row.get(column)?;
    found.map(|number| u64::try_from(number).map_err(|_| unknown_number(column, number))).transpose()
}

pub(super) fn read_hash(row: &Row<'_>, column: usize) -> Result<Hash> {
    row.get(column).map(Hash::from_bytes)
}

/// Reads the position of a record from this column and the next.
pub(super) fn read_record_address(row: &Row<'_>, column: usize) -> Result<Option<RecordAddress>> {
    let session: Option<i64> = row.get(column)?;
    let seq = read_optional_count(row, column + 1)?;
    Ok(session.zip(seq).map(|(session, seq)| RecordAddress { session: SessionNo(session), seq: Seq(seq) }))
}

/// Reads a value that is stored as JSON.
pub(super) fn read_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text)
        .map_err(|cause| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, cause.into()))
}

/// The error for a number that stands for nothing.
pub(super) fn unknown_number(column: usize, number: i64) -> rusqlite::Error {
    rusqlite::Error::IntegralValueOutOfRange(column, number)
}

/// Returns the bytes of the id after which a list starts: its cursor, or a value before every id.
pub(super) fn id_lower_bound(after: Option<u128>) -> Vec<u8> {
    after.map(|after| id(after).to_vec()).unwrap_or_default()
}

/// Encodes a value as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|cause| Error::new(Kind::Internal, "a value cannot be written as JSON").because(cause))
}
