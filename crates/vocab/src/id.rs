//! Prefixed identifiers: one type per noun, and one written form everywhere.
//!
//! Ids created at the edge are UUIDv7, so they sort by age and an index over them grows at its end. Ids
//! created inside a turn are derived from their parts, so a replay creates the same ids.
use crate::Millis;
use std::{fmt, str::FromStr};

/// The error for a string that is not the expected id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidId {
    /// The noun and prefix that were expected.
    pub expected: IdKind,
    /// The string that was found instead.
    pub got: String,
}

/// A noun that has ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdKind {
    /// The noun in plain English.
    pub name: &'static str,
    /// The prefix of its ids, without the underscore.
    pub prefix: &'static str,
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdKind { name, prefix } = self.expected;
        let a = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        write!(f, "expected {a} {name} id (`{prefix}_` and 32 hex digits), got ")?;
        let foreign = NOUNS.iter().find(|noun| {
            noun.prefix != prefix
                && self.got.strip_prefix(noun.prefix).is_some_and(|rest| rest.starts_with('_'))
        });
        match foreign {
            Some(noun) => write!(f, "the {} id `{}`", noun.name, self.got),
            None => write!(f, "`{}`", self.got),
        }
    }
}

impl std::error::Error for InvalidId {}

impl From<InvalidId> for crate::Error {
    fn from(bad: InvalidId) -> Self {
        Self::new(crate::Kind::IdInvalid, bad.to_string())
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal, $noun:literal;)*) => {
        const NOUNS: &[IdKind] = &[$($name::NOUN),*];
        $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The noun and prefix of this kind of id.
            pub const NOUN: IdKind = IdKind { name: $noun, prefix: $prefix };

            /// Creates the id from its 128 bits, as a store reads them.
            pub const fn from_u128(raw: u128) -> Self { Self(raw) }

            /// Returns the 128 bits, as a store writes them.
            pub const fn to_u128(self) -> u128 { self.0 }

            /// Creates a UUIDv7 at the edge, from the time and fresh random bytes.
            pub fn fresh(at: Millis, random: [u8; 10]) -> Self { Self(uuid_v7(at, random)) }

            /// Creates an id inside a turn. The same parts give the same id in every run.
            pub fn derived(parts: &[&[u8]]) -> Self { Self(derive($prefix, parts)) }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{:032x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(self, f) }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(parse_hex)
                    .map(Self)
                    .ok_or_else(|| InvalidId { expected: Self::NOUN, got: text.to_owned() })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> { to.collect_str(self) }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        )*
    };
}

ids! {
    /// A tree of messages that outlives every process that serves it.
    SessionId = "ses", "session";
    /// One input and everything done to answer it.
    TurnId = "trn", "turn";
    /// One request to the outside world within a turn.
    EffectId = "eff", "effect";
    /// One tool call of a model. Also its idempotency key for external systems.
    CallId = "cal", "call";
    /// Durable work outside a turn, with a handle.
    ProcessId = "prc", "process";
    /// An agent definition: prompt, model, tools.
    AgentId = "agt", "agent";
    /// A tenant.
    OrgId = "org", "organisation";
    /// An API key of a caller.
    KeyId = "key", "API key";
    /// Content stored separately from the messages that refer to it.
    AttachmentId = "att", "attachment";
    /// A question for approval.
    ApprovalId = "apr", "approval";
    /// An approval for the rest of a session.
    GrantId = "grt", "grant";
    /// One finished output on its way to one sink.
    DeliveryId = "dlv", "delivery";
    /// One payment. Also its idempotency key at the payment authority.
    PaymentId = "pay", "payment";
    /// One running instance of the runtime.
    WorkerId = "wrk", "worker";
}

fn parse_hex(hex: &str) -> Option<u128> {
    // `from_str_radix` accepts a sign and upper-case digits; the canonical form has neither.
    let one_spelling = hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    one_spelling.then(|| u128::from_str_radix(hex, 16).ok())?
}

fn uuid_v7(at: Millis, random: [u8; 10]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at.0.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&random);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    u128::from_be_bytes(bytes)
}

fn derive(prefix: &str, parts: &[&[u8]]) -> u128 {
    let framed = std::iter::once(prefix.as_bytes()).chain(parts.iter().copied());
    let hash = crate::Hash::of_parts("outlast id v1", framed);
    u128::from_be_bytes(hash.as_bytes()[..16].try_into().expect("a hash has 32 bytes"))
}

impl OrgId {
    /// The default organisation, for installations that define none.
    pub const DEFAULT: Self = Self(0);
}

impl AttachmentId {
    /// Returns the attachment that a text refers to, if the text is exactly `attachment:` and an id.
    pub fn referred_to(text: &str) -> Option<Self> {
        text.strip_prefix("attachment:")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_another_kind_is_refused_naming_both() {
        let turn = TurnId::from_u128(7).to_string();
        assert_eq!(turn.parse::<TurnId>(), Ok(TurnId::from_u128(7)));
        assert_eq!(
            turn.parse::<SessionId>().unwrap_err().to_string(),
            "expected a session id (`ses_` and 32 hex digits), got the turn id \
             `trn_00000000000000000000000000000007`"
        );
    }

    #[test]
    fn an_id_has_one_spelling() {
        for text in [
            "",
            "ses_",
            "ses_+0000000000000000000000000000007",
            "SES_00000000000000000000000000000007",
            "ses_0000000000000000000000000000000A",
            "ses_000000000000000000000000000000007",
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn derived_id_depends_on_part_boundaries() {
        assert_eq!(CallId::derived(&[b"ab", b"c"]), CallId::derived(&[b"ab", b"c"]));
        assert_ne!(CallId::derived(&[b"ab", b"c"]), CallId::derived(&[b"a", b"bc"]));
        assert_ne!(CallId::derived(&[b"ab"]).to_u128(), EffectId::derived(&[b"ab"]).to_u128());
    }

    #[test]
    fn fresh_id_is_time_sortable_uuid_v7() {
        let old = SessionId::fresh(Millis(1), [0xff; 10]);
        let young = SessionId::fresh(Millis(2), [0; 10]);
        assert!(old < young);
        assert_eq!(old.to_string(), "ses_0000000000017fffbfffffffffffffff");
    }
}
