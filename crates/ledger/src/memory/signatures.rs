//! Signatures with the secret of the database.
use super::Tables;
use crate::rows::Signatures;
use outlast_vocab::Error;

impl Signatures for Tables {
    fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.secret.0)
    }
}
