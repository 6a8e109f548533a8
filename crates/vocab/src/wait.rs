//! Waits: what a parked turn waits for, the key that resolves a wait, and its resolution.
use crate::error::Failure;
use crate::id::TurnId;
use crate::key::ReplayKey;
use crate::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{fmt, str::FromStr};

/// The reason why a turn is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// A person must approve.
    Approval,
    /// An external system completes a tool call.
    Completion,
    /// An event with a custom key.
    Event,
    /// A point in time.
    Sleep,
    /// A sub-agent works.
    SubAgent,
    /// A user has to connect an account.
    Connection,
    /// The client runs the tool.
    ClientTool,
    /// A person must raise a budget.
    Budget,
    /// The model's provider is down, or limits the rate of calls.
    Provider,
}

impl WaitKind {
    /// Returns whether such a wait ends without any external action.
    pub const fn ends_by_itself(self) -> bool {
        matches!(self, Self::Sleep | Self::Provider)
    }

    /// Returns the name of the kind, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Completion => "outside completion",
            Self::Event => "event",
            Self::Sleep => "sleep",
            Self::SubAgent => "sub-agent",
            Self::Connection => "connection",
            Self::ClientTool => "client-side tool",
            Self::Budget => "budget",
            Self::Provider => "provider",
        }
    }
}

/// One wait of a turn. The same replay key gives the same wait in every run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The replay key that waits.
    pub key: ReplayKey,
    /// The reason for the wait.
    pub kind: WaitKind,
    /// When the wait times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
}

/// The resolution of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// A value.
    Ok(Value),
    /// An error.
    Err(Failure),
    /// The deadline passed.
    Timeout,
    /// The turn was cancelled.
    Cancelled,
}

/// A key that resolves one wait from outside: turn, replay key, and a signature that cannot be guessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionKey {
    /// The turn that waits or will wait.
    pub turn: TurnId,
    /// The replay key of the wait.
    pub key: ReplayKey,
    signature: Hash,
}

impl CompletionKey {
    /// Signs the key of a wait with the secret of the store.
    pub fn sign(secret: &[u8; 32], turn: TurnId, key: ReplayKey) -> Self {
        let signature = signature(secret, turn, &key);
        Self { turn, key, signature }
    }

    /// Returns an error if the key was not signed with this secret. It is the same error as for a wait that
    /// does not exist.
    pub fn check(&self, secret: &[u8; 32]) -> Result<(), Error> {
        if signature(secret, self.turn, &self.key).eq_constant_time(&self.signature) {
            return Ok(());
        }
        Err(Self::not_found())
    }

    /// Returns the error for every invalid key. It does not say why the key is invalid.
    pub fn not_found() -> Error {
        Error::new(Kind::WaitNotFound, "no wait has this completion key")
    }
}

fn signature(secret: &[u8; 32], turn: TurnId, key: &ReplayKey) -> Hash {
    let turn = turn.to_u128().to_be_bytes();
    Hash::signed(secret, "outlast completion key v1", [turn.as_slice(), key.as_str().as_bytes()])
}

impl fmt::Display for CompletionKey {
    /// Writes `cpl_` and hex digits, which survive shells, URLs and e-mail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpl_{:032x}{}", self.turn.to_u128(), self.signature)?;
        self.key.as_str().bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for CompletionKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(Self::not_found)
    }
}

fn parse(text: &str) -> Option<CompletionKey> {
    // Number parsing accepts a sign and upper-case digits; the canonical form has neither.
    let one_spelling = |hex: &&str| hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let hex = text.strip_prefix("cpl_").filter(one_spelling)?;
    let (turn, rest) = hex.split_at_checked(32)?;
    let (signature, key) = rest.split_at_checked(64)?;
    let key: Option<Vec<u8>> = key.as_bytes().chunks(2).map(hex_byte).collect();
    Some(CompletionKey {
        turn: TurnId::from_u128(u128::from_str_radix(turn, 16).ok()?),
        key: serde_json::from_value(Value::String(String::from_utf8(key?).ok()?)).ok()?,
        signature: signature.parse().ok()?,
    })
}

fn hex_byte(pair: &[u8]) -> Option<u8> {
    let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
    u8::from_str_radix(pair, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_key_cannot_be_guessed_or_altered() {
        let key = CompletionKey::sign(&[7; 32], TurnId::from_u128(5), ReplayKey::turn(0).completion());
        let text = key.to_string();
        assert_eq!(text.parse::<CompletionKey>().unwrap(), key);
        assert!(key.check(&[7; 32]).is_ok());
        for (i, old) in text.char_indices().skip(4) {
            let new = if old == '0' { '1' } else { '0' };
            let forged = format!("{}{new}{}", &text[..i], &text[i + 1..]);
            let refused = forged.parse::<CompletionKey>().and_then(|key| key.check(&[7; 32]));
            assert_eq!(refused.unwrap_err().to_string(), CompletionKey::not_found().to_string());
        }
    }

    #[test]
    fn a_completion_key_has_one_spelling() {
        let key = CompletionKey::sign(&[7; 32], TurnId::from_u128(5), ReplayKey::turn(0).completion());
        let text = key.to_string();
        let capitals = format!("cpl_{}", text["cpl_".len()..].to_uppercase());
        for other in [capitals, text.replace("cpl_0", "cpl_+"), text + "+f"] {
            assert_eq!(other.parse::<CompletionKey>().unwrap_err().kind(), Kind::WaitNotFound, "{other}");
        }
    }

    #[test]
    fn invalid_completion_key_looks_like_missing_wait() {
        for text in ["", "cpl_", "cpl_zz", "key", "cpl_é"] {
            assert_eq!(text.parse::<CompletionKey>().unwrap_err().kind(), Kind::WaitNotFound);
        }
    }
}
