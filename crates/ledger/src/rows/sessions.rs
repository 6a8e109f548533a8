//! Sessions and their heads.
use super::{RecordAddress, RowAccess};
use outlast_ports::turns::{CrashGuard, Fence, TurnNo};
use outlast_views::SessionState;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{OrgId, SessionId, WorkerId};
use outlast_vocab::record::{Seq, TurnEndKind};
use outlast_vocab::{Error, Hash, Millis};

/// A session's number in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub i64);

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number.
    pub no: SessionNo,
    /// Its id.
    pub id: SessionId,
    /// The organisation that owns the session and everything in it.
    pub org: OrgId,
    /// The caller's key for it, unique in its organisation.
    pub key: Option<String>,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// Its scheduling state.
    pub state: SessionState,
    /// The fence of the last claim.
    pub fence: Fence,
    /// The worker that holds the lease.
    pub worker: Option<WorkerId>,
    /// When the lease expires.
    pub lease_until: Millis,
    /// When a parked or held turn is due.
    pub wake_at: Option<Millis>,
    /// The last record.
    pub last_seq: Seq,
    /// The hash of the chain at the last record.
    pub last_hash: Hash,
    /// The number of inputs accepted.
    pub turns: u32,
    /// The turn that is running or parked.
    pub active: Option<TurnNo>,
    /// The number of queued inputs.
    pub queued: u32,
    /// The crash guard's counters for the active turn.
    pub guard: CrashGuard,
    /// The message it was forked from.
    pub forked_from: Option<RecordAddress>,
    /// Its last imported record, or 0 if no record was imported.
    pub imported: Seq,
    /// Its last record that was imported without a signature of this database, or 0 if there is no such record.
    pub foreign: Seq,
    /// What models and priced tools cost in it, where prices were known. `None` for sessions older than the counter.
    pub cost: Option<Cost>,
    /// The turn that ended last. Inputs that joined another turn are ignored.
    pub last_ended: Option<LastEnded>,
}

/// The turn of a session that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEnded {
    /// The turn.
    pub turn: TurnNo,
    /// How it ended.
    pub end: TurnEndKind,
}

/// Reads a session and its heads.
pub trait SessionRows: RowAccess {
    /// Returns the session with this number.
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error>;
    /// Returns the session with this id.
    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error>;
    /// Returns the session of an organisation with this key.
    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error>;
    /// Returns the sessions that were forked from this one.
    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error>;
    /// Returns the heads of a session, by name.
    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error>;
    /// Returns one head. The inner `None` is a head before the first message.
    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error>;
}

/// Lists and counts sessions.
pub trait SessionQueries: SessionRows {
    /// Returns sessions below `before`, by descending number.
    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error>;
    /// Counts the sessions whose last turn ended this way, up to a limit. `end` must not be `answered`, which is not
    /// indexed.
    fn count_last_ended(&self, end: TurnEndKind, limit: usize) -> Result<usize, Error>;
}

/// Writes sessions and their heads.
pub trait SessionWrites: SessionRows {
    /// Inserts a session and assigns its number, ignoring the number in the row. An id in use is refused ([`taken`](super::taken)).
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error>;
    /// Replaces a session.
    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error>;
    /// Deletes a session with all its turns, records, claims, waits, votes, notices, grants, values, attachments,
    /// deliveries and heads. External content that only this session used keeps its row, with no uses. The session
    /// must have no payment in the payment outbox.
    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error>;
    /// Sets a head.
    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error>;
}
