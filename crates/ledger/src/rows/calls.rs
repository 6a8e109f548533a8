//! Claims of tool calls.
use super::{RowAccess, SessionNo};
use outlast_ports::turns::{Fence, TurnNo};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::CallId;
use outlast_vocab::record::ClaimRef;
use outlast_vocab::{Error, Millis};

/// A claim: a call that was started and has no outcome yet, or whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// Its session.
    pub session: SessionNo,
    /// The record that made the claim, and the call within it.
    pub claim: ClaimRef,
    /// Its turn.
    pub turn: TurnNo,
    /// Outlast's id of the call.
    pub call: CallId,
    /// The fence under which the claim may be settled.
    pub fence: Fence,
    /// Whether the outcome is unknown and a person has to settle it.
    pub unknown: bool,
    /// When it was claimed.
    pub since: Millis,
}

/// Reads claims.
pub trait CallRows: RowAccess {
    /// Returns one claim.
    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error>;
    /// Returns the claims of a turn.
    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error>;
}

/// Finds calls of unknown outcome, in all sessions.
pub trait UnknownCalls: RowAccess {
    /// Returns claims of unknown outcome after a given one, by ascending time and call id.
    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error>;
}

/// Writes claims.
pub trait CallWrites: CallRows {
    /// Inserts or replaces a claim.
    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error>;
    /// Deletes a claim.
    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error>;
}
