//! Signatures with the secret of the database.
use super::Tables;
use outlast_ledger::rows::Signatures;
use outlast_vocab::Error;

impl Signatures for Tables<'_> {
    fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.shared.secret)
    }
}
