//! Waits of turns and their resolutions.
use super::RowAccess;
use outlast_ports::turns::TurnNo;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};

/// The resolution of a turn's wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolutionRow {
    /// The turn.
    pub turn: TurnNo,
    /// The key of the wait.
    pub key: ReplayKey,
    /// The resolution.
    pub resolution: Resolution,
}

/// Reads waits and resolutions.
pub trait WaitRows: RowAccess {
    /// Returns the waits of a turn.
    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error>;
    /// Returns the resolution of a wait.
    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error>;
}

/// Finds turns that wait, in all sessions.
pub trait WaitingTurns: RowAccess {
    /// Returns waits of this kind of all turns, oldest turn first.
    fn waiting(&self, of: OrgVisibility, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error>;
}

/// Writes waits and resolutions.
pub trait WaitWrites: WaitRows {
    /// Inserts a wait of a turn, or replaces the one with the same key.
    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error>;
    /// Deletes the waits of a turn.
    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error>;
    /// Inserts a resolution.
    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error>;
}
