//! Content hashes: BLAKE3, printed as 64 hex digits.
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A BLAKE3 hash of 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What a chain starts from.
    pub const ZERO: Self = Self([0; 32]);

    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }

    /// The hash of a list of parts under a versioned purpose. Each part is framed by its length, so lists that only
    /// join to the same bytes have different hashes (R2.6).
    pub fn of_parts<'a>(purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        absorb(&mut hasher, purpose, parts);
        Self(hasher.finalize().into())
    }

    /// The keyed form of [`Hash::of_parts`]: only who has the secret can make it.
    pub fn signed<'a>(secret: &[u8; 32], purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        absorb(&mut hasher, purpose, parts);
        Self(hasher.finalize().into())
    }

    /// Compares in time that does not depend on where the two differ.
    pub fn same_signature(&self, other: &Self) -> bool {
        blake3::Hash::from(self.0) == blake3::Hash::from(other.0)
    }

    /// The raw bytes, as a store keeps them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash with these bytes, as a store reads them back.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Hashes bytes as they come: the same as [`Hash::of`] of all of them.
#[derive(Clone, Debug, Default)]
pub struct Hashing(blake3::Hasher);

impl Hashing {
    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of everything that was taken in.
    pub fn hash(&self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

fn absorb<'a>(hasher: &mut blake3::Hasher, purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) {
    frame(hasher, purpose.as_bytes());
    for part in parts {
        frame(hasher, part);
    }
}

fn frame(hasher: &mut blake3::Hasher, part: &[u8]) {
    hasher.update(&(part.len() as u64).to_be_bytes());
    hasher.update(part);
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, crate::Error> {
        // BLAKE3 takes capitals, too; the one spelling has none.
        let hash =
            blake3::Hash::from_hex(text).ok().filter(|_| !text.bytes().any(|b| b.is_ascii_uppercase()));
        let hash = hash.ok_or_else(|| {
            let detail = format!("expected a hash of 64 hex digits, got `{text}`");
            crate::Error::new(crate::Kind::IdInvalid, detail)
        })?;
        Ok(Self(hash.into()))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <std::borrow::Cow<'de, str>>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_prints_and_parses_as_hex() {
        let hash = Hash::of(b"outlast");
        assert_eq!(hash.to_string().parse::<Hash>().unwrap(), hash);
        assert_eq!("zz".parse::<Hash>().unwrap_err().kind(), crate::Kind::IdInvalid);
    }

    #[test]
    fn bytes_that_come_in_pieces_have_the_hash_of_the_whole() {
        let mut hashing = Hashing::default();
        for piece in [b"out".as_slice(), b"", b"last"] {
            hashing.update(piece);
        }
        assert_eq!(hashing.hash(), Hash::of(b"outlast"));
    }

    #[test]
    fn a_hash_has_one_spelling() {
        let capitals = Hash::of(b"outlast").to_string().to_uppercase();
        assert_eq!(capitals.parse::<Hash>().unwrap_err().kind(), crate::Kind::IdInvalid);
    }

    #[test]
    fn a_signature_needs_the_secret() {
        let parts: [&[u8]; 1] = [b"wait"];
        assert!(Hash::signed(&[1; 32], "k", parts).same_signature(&Hash::signed(&[1; 32], "k", parts)));
        assert!(!Hash::signed(&[1; 32], "k", parts).same_signature(&Hash::signed(&[2; 32], "k", parts)));
    }
}
