//! Turns.
use super::{RecordAddress, RowAccess, SessionNo};
use outlast_ports::turns::TurnNo;
use outlast_views::{TurnState, WriteCount};
use outlast_vocab::id::TurnId;
use outlast_vocab::record::{InputDelivery, Seq};
use outlast_vocab::{Error, Hash};

/// A turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// Its number.
    pub no: TurnNo,
    /// Its id.
    pub id: TurnId,
    /// Its session.
    pub session: SessionNo,
    /// Its index in the session, counted from 0.
    pub index: u32,
    /// The caller's idempotency key, unique in the session.
    pub key: Option<String>,
    /// The fingerprint of the input. It distinguishes a repeated input from a reused key.
    pub input: Hash,
    /// How the input is handled if a turn is already running.
    pub delivery: InputDelivery,
    /// The head that the turn is for.
    pub head: String,
    /// Its state.
    pub state: TurnState,
    /// The record that accepted it.
    pub accepted: Seq,
    /// Its last record that is part of the transcript, or 0 before the turn begins.
    pub last_node: Seq,
    /// The message it follows.
    pub parent: Option<RecordAddress>,
    /// The record that ended it.
    pub ended: Option<Seq>,
    /// Whether a cancel was requested.
    pub cancelled: bool,
    /// How many writes the turn took. `None` if it was imported or is older than the counter.
    pub writes: Option<WriteCount>,
    /// The turn that this one retries.
    pub retry_of: Option<TurnNo>,
}

impl TurnRow {
    /// Returns whether the turn is queued to join a turn on this head.
    pub fn joins(&self, head: &str) -> bool {
        self.state == TurnState::Queued && self.delivery == InputDelivery::Join && self.head == head
    }
}

/// Reads turns.
pub trait TurnRows: RowAccess {
    /// Returns the turn with this number.
    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error>;
    /// Returns the turn with this id.
    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error>;
    /// Returns the turn of a session with this idempotency key.
    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error>;
    /// Returns turns of a session by ascending index, starting at `from`.
    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error>;
    /// Returns turns of a session that have not begun, by ascending index.
    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error>;
    /// Returns the newest retry of a turn.
    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error>;
}

/// Lists the turns of all sessions.
pub trait TurnQueries: TurnRows {
    /// Returns turns by ascending number, starting after `after`.
    fn turns_after(&self, after: TurnNo, limit: usize) -> Result<Vec<TurnRow>, Error>;
    /// Returns the highest number of a turn, or 0 in an empty database.
    fn newest_turn(&self) -> Result<TurnNo, Error>;
}

/// Writes turns.
pub trait TurnWrites: TurnRows {
    /// Inserts a turn and assigns its number, ignoring the number in the row. An id in use is refused ([`taken`](super::taken)).
    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error>;
    /// Replaces a turn.
    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error>;
}
