//! The rows of a database, and the traits that read and write them.
//!
//! The rows are the same in memory, SQLite and PostgreSQL. An engine only reads and writes single rows. It does not
//! know what a write means: [`crate::rules`] implements fences, sequence, hash chain, claims and waits for every
//! engine.
//!
//! Each concern is a module with its rows and up to three kinds of traits:
//!
//! - [`SessionRows`], [`TurnRows`] and others read one row by its key, or the rows of one session or turn.
//! - [`SessionQueries`] and others list and count the rows of all sessions. Only queries use them.
//! - [`SessionWrites`] and others write rows. Only units of work use them.
//!
//! Units of work also find rows in all sessions: by [`SessionQueue`], [`DeliveryQueue`], [`PaymentQueue`],
//! [`NoticeQueue`], [`FeedRows`], [`UnknownCalls`] and [`WaitingTurns`]. These are separate traits, because an engine that
//! keeps the rows of some sessions in memory cannot answer them from there (`docs/adr/0038-postgresql-overlay.md`).
//!
//! A rule takes the one trait that it uses. If it uses several, it takes [`ReadRows`], [`QueryRows`] or [`Rows`]. For a new
//! concern, add a module here and to each implementation, and its traits to these three.
//!
//! Rows are addressed by small numbers that the engine assigns, because an index over random ids halves the write
//! rate of a journal.
mod access;
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

pub use access::RowAccess;
pub use approvals::{
    ApprovalQueries, ApprovalRows, ApprovalWrites, GrantRow, NoticeQueue, NoticeRow, VoteRow,
};
pub use audit::{AuditQueries, AuditWrites};
pub use calls::{CallRows, CallWrites, ClaimRow, UnknownCalls};
pub use configs::{ConfigQueries, ConfigRow, ConfigRows, ConfigWrites};
pub use contents::{
    AttachmentRow, ContentQueries, ContentRows, ContentWrites, DeletionMark, ExternalContentRow, PINNED_USES,
};
pub use journal::{
    FeedQueries, FeedRows, JournalRows, JournalWrites, PartialRow, RecordAddress, RecordBody, RecordRange,
    RecordRow,
};
pub use leases::{LeaseWrites, SessionQueue, WorkerRows};
pub use limits::{BudgetAccountRow, LimitQueries, LimitRows, LimitWrites, ReservationRow};
pub use orgs::{KeyRow, OrgQueries, OrgRows, OrgWrites};
pub use payments::{PaymentQueue, PaymentRows, PaymentWrites, PendingPaymentRow};
pub use search::{SearchQueries, SearchWrites};
pub use sessions::{LastEnded, SessionNo, SessionQueries, SessionRow, SessionRows, SessionWrites};
pub use signatures::Signatures;
pub use sinks::{DeliveryQueue, DeliveryRow, SinkQueries, SinkRow, SinkRows, SinkWrites};
pub use turns::{TurnQueries, TurnRow, TurnRows, TurnWrites};
pub use values::{ValueRows, ValueWrites};
pub use waits::{ResolutionRow, WaitRows, WaitWrites, WaitingTurns};

use outlast_vocab::{Error, Kind, Millis};
use std::fmt;

/// The latest time that a column of every database can store. Anything due later is never due.
pub const LATEST: Millis = Millis(i64::MAX.cast_unsigned());

/// Returns the error for an id that is already in use.
pub fn taken(id: impl fmt::Display) -> Error {
    Error::new(Kind::InputKeyReused, format!("the id {id} is taken; ids are never used twice"))
}

/// What units of work and queries read.
pub trait ReadRows:
    SessionRows
    + SessionQueue
    + WorkerRows
    + TurnRows
    + JournalRows
    + FeedRows
    + CallRows
    + UnknownCalls
    + WaitRows
    + WaitingTurns
    + ValueRows
    + ContentRows
    + SinkRows
    + DeliveryQueue
    + LimitRows
    + PaymentRows
    + PaymentQueue
    + OrgRows
    + ConfigRows
    + ApprovalRows
    + NoticeQueue
    + Signatures
{
}

/// What a query reads.
pub trait QueryRows:
    ReadRows
    + SessionQueries
    + TurnQueries
    + FeedQueries
    + SearchQueries
    + ContentQueries
    + SinkQueries
    + LimitQueries
    + OrgQueries
    + AuditQueries
    + ConfigQueries
    + ApprovalQueries
{
}

/// What a unit of work reads and writes.
pub trait Rows:
    ReadRows
    + SessionWrites
    + LeaseWrites
    + TurnWrites
    + JournalWrites
    + SearchWrites
    + CallWrites
    + WaitWrites
    + ValueWrites
    + ContentWrites
    + SinkWrites
    + LimitWrites
    + PaymentWrites
    + OrgWrites
    + AuditWrites
    + ConfigWrites
    + ApprovalWrites
{
}
