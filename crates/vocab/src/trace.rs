//! Trace ids: W3C Trace Context ids that every process derives in the same way.
//!
//! The trace id of a turn has the bits of the turn id, unless its input has a parent span. A span id is
//! derived from the turn and the replay key of the effect, so reporting an effect again gives the same span.
use crate::key::ReplayKey;
use crate::message::shown;
use crate::{Error, Hash, Kind, TurnId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u128);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(u64);

/// The span that caused an input, from its `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The parent span.
    pub span: SpanId,
    /// Whether the callers sampled the trace.
    pub sampled: bool,
}

impl TraceId {
    /// Returns the trace of a turn whose input has no parent span.
    pub const fn of(turn: TurnId) -> Self {
        Self(turn.to_u128())
    }

    /// Returns the sixteen bytes of the standard form.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns whether the trace is in a sample of this many millionths of all traces. Every process with the
    /// same rate samples the same traces, because the last bits of an id are random.
    pub fn is_sampled_at(self, millionths: u32) -> bool {
        let last = u64::try_from(self.0 & u128::from(u32::MAX)).unwrap_or(u64::MAX);
        last * 1_000_000 < u64::from(millionths) << 32
    }
}

impl SpanId {
    /// Returns the span of a turn.
    pub fn of(turn: TurnId) -> Self {
        Self::derive(turn, &[])
    }

    /// Returns the span of an effect of a turn. `what` distinguishes several spans of one effect.
    pub fn of_effect(turn: TurnId, key: &ReplayKey, what: &str) -> Self {
        Self::derive(turn, &[key.as_str().as_bytes(), what.as_bytes()])
    }

    fn derive(turn: TurnId, parts: &[&[u8]]) -> Self {
        let turn = turn.to_u128().to_be_bytes();
        let hash =
            Hash::of_parts("outlast span v1", std::iter::once(turn.as_slice()).chain(parts.iter().copied()));
        let bytes = *hash.as_bytes();
        // Zero is not a valid span id.
        Self(u64::from_be_bytes(std::array::from_fn(|i| bytes[i])).max(1))
    }

    /// Returns the eight bytes of the standard form.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl FromStr for TraceParent {
    type Err = Error;

    /// Parses any version. As the standard requires, fields that later versions add after the flags are
    /// ignored.
    fn from_str(text: &str) -> Result<Self, Error> {
        read(text.trim()).ok_or_else(|| {
            let detail = format!(
                "expected a traceparent like `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`, got `{}`",
                shown(text)
            );
            Error::new(Kind::InputInvalid, detail)
        })
    }
}

fn read(text: &str) -> Option<TraceParent> {
    let mut parts = text.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = u64::try_from(hex(parts.next()?, 16)?).ok()?;
    let flags = hex(parts.next()?, 2)?;
    let more = parts.next().is_some();
    let fits = trace != 0 && span != 0 && version != 0xff && !(version == 0 && more);
    fits.then_some(TraceParent { trace: TraceId(trace), span: SpanId(span), sampled: flags & 1 == 1 })
}

/// Parses a fixed number of lower-case hex digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let fits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let whole = text.len() == digits && text.bytes().all(fits);
    whole.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, sampled } = self;
        write!(f, "00-{:032x}-{:016x}-{:02x}", trace.0, span.0, u8::from(*sampled))
    }
}

impl TryFrom<String> for TraceParent {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<TraceParent> for String {
    fn from(parent: TraceParent) -> Self {
        parent.to_string()
    }
}

/// Returns the name of a provider in the OpenTelemetry semantic conventions.
pub fn provider_name(provider: &str) -> &str {
    match provider {
        "gemini" => "gcp.gemini",
        "openai-responses" => "openai",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_standard_traceparent_is_parsed() {
        assert_eq!(TEXT.parse::<TraceParent>().unwrap().to_string(), TEXT);
        let later = TEXT.replacen("00", "cc", 1) + "-what-will-be";
        assert_eq!(later.parse::<TraceParent>().unwrap().to_string(), TEXT);
        assert!(!TEXT.replace("-01", "-02").parse::<TraceParent>().unwrap().sampled);
        for wrong in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(wrong.parse::<TraceParent>().unwrap_err().kind(), Kind::InputInvalid, "{wrong}");
        }
    }

    #[test]
    fn span_ids_of_turn_are_stable_and_unique() {
        let (turn, other) = (TurnId::from_u128(7), TurnId::from_u128(8));
        let key = ReplayKey::turn(0).model(0);
        let ids = [
            SpanId::of(turn),
            SpanId::of(other),
            SpanId::of_effect(turn, &key, ""),
            SpanId::of_effect(turn, &key, "wait"),
            SpanId::of_effect(turn, &ReplayKey::turn(0).model(1), ""),
            SpanId::of_effect(other, &key, ""),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert!(!ids[..n].contains(id), "{n}");
        }
        assert_eq!(format!("{:016x}", ids[0].0), "2f9bc3487dd4cb1e");
        assert_eq!(TraceId::of(turn).to_bytes()[15], 7);
    }

    #[test]
    fn larger_sample_includes_smaller_one() {
        let all =
            || (0..1_000u128).map(|n| TraceId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)));
        let sampled = |millionths| all().filter(|trace| trace.is_sampled_at(millionths)).collect::<Vec<_>>();
        assert_eq!((sampled(0).len(), sampled(1_000_000).len()), (0, 1_000));
        let (tenth, half) = (sampled(100_000), sampled(500_000));
        assert!((60..140).contains(&tenth.len()), "{}", tenth.len());
        assert!(tenth.iter().all(|trace| half.contains(trace)));
    }
}
