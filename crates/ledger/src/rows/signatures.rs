//! Signatures with the secret of the database.
use super::RowAccess;
use outlast_vocab::archive::SessionLine;
use outlast_vocab::id::{OrgId, TurnId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::CompletionKey;
use outlast_vocab::{Error, Hash};

/// Signs completion keys and sessions with the secret of the database.
pub trait Signatures: RowAccess {
    /// Returns the secret that signs completion keys.
    fn secret(&self) -> Result<[u8; 32], Error>;
    /// Returns the completion key of a wait. The caller has access to the turn.
    fn sign(&self, turn: TurnId, wait: ReplayKey) -> Result<CompletionKey, Error> {
        Ok(CompletionKey::sign(&self.secret()?, turn, wait))
    }
    /// Returns the signature which proves that an organisation of this database has a session with this fingerprint.
    /// The caller has access to the session, or a signature to compare.
    fn sign_session(&self, org: OrgId, fingerprint: Hash) -> Result<Hash, Error> {
        Ok(SessionLine::sign(&self.secret()?, org, fingerprint))
    }
}
