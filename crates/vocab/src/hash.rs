//! Content hashes: BLAKE3, printed as 64 hex digits.
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A BLAKE3 hash of 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash that a chain starts with.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }

    /// Returns the hash of a list of parts under a versioned purpose. Each part is prefixed with its length,
    /// so different lists that concatenate to the same bytes have different hashes.
    pub fn of_parts<'a>(purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        absorb(&mut hasher, purpose, parts);
        Self(hasher.finalize().into())
    }

    /// Returns the keyed form of [`Hash::of_parts`], which only a holder of the secret can compute.
    pub fn signed<'a>(secret: &[u8; 32], purpose: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        absorb(&mut hasher, purpose, parts);
        Self(hasher.finalize().into())
    }

    /// Compares in constant time.
    pub fn eq_constant_time(&self, other: &Self) -> bool {
        blake3::Hash::from(self.0) == blake3::Hash::from(other.0)
    }

    /// Returns the raw bytes, as a store writes them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Creates a hash from raw bytes, as a store reads them.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// An incremental hasher. Gives the same hash as [`Hash::of`] of all its input.
#[derive(Clone, Debug, Default)]
pub struct IncrementalHasher(blake3::Hasher);

impl IncrementalHasher {
    /// Adds bytes to the input.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of the input so far.
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
        // BLAKE3 accepts upper-case digits too; the canonical form has none.
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
    fn chunked_bytes_hash_like_the_whole() {
        let mut hashing = IncrementalHasher::default();
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
        assert!(Hash::signed(&[1; 32], "k", parts).eq_constant_time(&Hash::signed(&[1; 32], "k", parts)));
        assert!(!Hash::signed(&[1; 32], "k", parts).eq_constant_time(&Hash::signed(&[2; 32], "k", parts)));
    }
}
