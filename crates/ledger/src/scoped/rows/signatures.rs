//! Everyone gets signatures for visible rows, but only the operator gets the secret.
use super::VisibleRows;
use crate::rows::{ReadRows, Signatures};
use outlast_vocab::id::{OrgId, TurnId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::wait::CompletionKey;
use outlast_vocab::{Error, Hash};
use std::ops::Deref;

impl<R: Deref<Target: ReadRows>> Signatures for VisibleRows<'_, R> {
    // The secret signs keys of every organisation.
    fn secret(&self) -> Result<[u8; 32], Error> {
        self.access.require_operator()?;
        self.rows.secret()
    }

    fn sign(&self, turn: TurnId, wait: ReplayKey) -> Result<CompletionKey, Error> {
        self.rows.sign(turn, wait)
    }

    fn sign_session(&self, org: OrgId, fingerprint: Hash) -> Result<Hash, Error> {
        self.rows.sign_session(org, fingerprint)
    }
}
