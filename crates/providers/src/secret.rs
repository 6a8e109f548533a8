//! A key that never appears in logs, errors or `Debug` output.
use outlast_vocab::redaction::SECRET_BYTES_LEAST;
use std::fmt;

/// The replacement for a redacted key.
const HIDDEN: &str = "[key]";

/// A provider's key.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// Returns the key, for the header that carries it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Redacts the key in a text from outside.
    pub(crate) fn hide_in(&self, text: &str) -> String {
        if self.0.len() < SECRET_BYTES_LEAST { text.to_owned() } else { text.replace(&self.0, HIDDEN) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_redacted_in_debug_and_echoed_text() {
        let key = Secret::new("sk-canary-7f3a");
        assert_eq!(format!("{key:?} {:?}", Some(&key)), "[key] Some([key])");
        assert_eq!(key.hide_in("bad key sk-canary-7f3a!"), "bad key [key]!");
    }
}
