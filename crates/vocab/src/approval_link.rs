//! Approval links: signed links with which one person gives one answer to one approval question, for a
//! limited time.
//!
//! A link names its question, and a question is identified by the form of what is approved. So a link becomes
//! invalid if the tool, the arguments, their labels or the policy change. A decision is recorded once; using
//! a link again changes nothing.
use crate::access::Principal;
use crate::id::{ApprovalId, TurnId};
use crate::{Error, Hash, Kind, Millis};
use std::fmt::{self, Write};
use std::str::FromStr;

/// The path of links on a server.
pub const LINKS_PATH: &str = "/links/";

/// The answer of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAnswer {
    /// Yes.
    Approve,
    /// No.
    Deny,
}

impl LinkAnswer {
    const fn letter(self) -> char {
        match self {
            Self::Approve => 'a',
            Self::Deny => 'd',
        }
    }
}

/// One person's answer to one question, in a form that the holder can submit: `lnk_` and hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalLink {
    /// The turn that asks.
    pub turn: TurnId,
    /// The question.
    pub question: ApprovalId,
    /// The answer.
    pub answer: LinkAnswer,
    /// The person who answers. Never an agent.
    pub by: Principal,
    /// When the link expires.
    pub expires: Millis,
}

impl ApprovalLink {
    /// Signs the link with the secret of the store.
    pub fn sign(&self, secret: &[u8; 32]) -> String {
        let Self { turn, question, answer: says, by, expires } = self;
        let (turn, question) = (turn.to_u128(), question.to_u128());
        let signature = self.signature(secret);
        let mut text =
            format!("lnk_{signature}{turn:032x}{question:032x}{}{:016x}", says.letter(), expires.0);
        for byte in by.to_string().bytes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Verifies and decodes a link. The error is the same for every invalid text.
    pub fn open(text: &str, secret: &[u8; 32]) -> Result<Self, Error> {
        let no_link = || Error::new(Kind::LinkInvalid, "this link was not created by this server");
        let (link, signature) = parse(text).ok_or_else(no_link)?;
        if link.signature(secret).eq_constant_time(&signature) { Ok(link) } else { Err(no_link()) }
    }

    fn signature(&self, secret: &[u8; 32]) -> Hash {
        let Self { turn, question, answer: says, by, expires } = self;
        let (turn, question) = (turn.to_u128().to_be_bytes(), question.to_u128().to_be_bytes());
        let (says, by, expires) = ([says.letter() as u8], by.to_string(), expires.0.to_be_bytes());
        let parts = [turn.as_slice(), &question, &says, by.as_bytes(), &expires];
        Hash::signed(secret, "outlast approval link v1", parts)
    }
}

fn parse(text: &str) -> Option<(ApprovalLink, Hash)> {
    let rest = text.strip_prefix("lnk_")?;
    let (signature, rest) = rest.split_at_checked(64)?;
    let (turn, rest) = rest.split_at_checked(32)?;
    let (question, rest) = rest.split_at_checked(32)?;
    let (says, rest) = rest.split_at_checked(1)?;
    let (expires, by) = rest.split_at_checked(16)?;
    let by: Option<Vec<u8>> = by.as_bytes().chunks(2).map(byte).collect();
    let by: Principal = String::from_utf8(by?).ok()?.parse().ok()?;
    let link = ApprovalLink {
        turn: TurnId::from_u128(number(turn)?),
        question: ApprovalId::from_u128(number(question)?),
        answer: [LinkAnswer::Approve, LinkAnswer::Deny]
            .into_iter()
            .find(|word| says == word.letter().to_string())?,
        by: Some(by).filter(|by| !matches!(by, Principal::Agent(_)))?,
        expires: Millis(u64::try_from(number(expires)?).ok()?),
    };
    Some((link, signature.parse().ok()?))
}

/// Parses a number in hex in its canonical form: no sign, no upper-case digits.
fn number(hex: &str) -> Option<u128> {
    let fits = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(hex, 16).ok().filter(|_| fits)
}

fn byte(pair: &[u8]) -> Option<u8> {
    let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
    u8::try_from(number(pair)?).ok()
}

/// The public address of a server: scheme, host and optionally a path, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Returns the address of a link on this server.
    pub fn link(&self, signed: &str) -> String {
        format!("{}{LINKS_PATH}{signed}", self.0)
    }

    /// Returns the host name, without its port.
    pub fn host(&self) -> &str {
        let (_, rest) = self.0.split_once("://").unwrap_or_default();
        let host = rest.split('/').next().unwrap_or_default();
        match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
            _ => host,
        }
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PublicUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && !b"?#\"'<>\\".contains(&b));
        if host.is_empty() || host.contains('@') || !plain {
            let detail = format!(
                "expected the public address of the server, like `https://agents.example.com`, got `{}`",
                crate::message::shown(text)
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn link() -> ApprovalLink {
        ApprovalLink {
            turn: TurnId::from_u128(1),
            question: ApprovalId::from_u128(2),
            answer: LinkAnswer::Approve,
            by: "person:ann".parse().unwrap(),
            expires: Millis(5),
        }
    }

    #[test]
    fn link_is_unforgeable_and_has_one_spelling() {
        let text = link().sign(&SECRET);
        assert_eq!(ApprovalLink::open(&text, &SECRET).unwrap(), link());
        assert_eq!(ApprovalLink::open(&text, &[8; 32]).unwrap_err().kind(), Kind::LinkInvalid);
        for (i, old) in text.char_indices() {
            for new in ['0', '1', 'a', 'd', 'F', '+'].into_iter().filter(|new| *new != old) {
                let forged = format!("{}{new}{}", &text[..i], &text[i + 1..]);
                assert_eq!(
                    ApprovalLink::open(&forged, &SECRET).unwrap_err().kind(),
                    Kind::LinkInvalid,
                    "{forged}"
                );
            }
        }
        for other in ["", "lnk_", "lnk_é", &format!("{text}0"), &format!("{text}00"), &text[..text.len() - 2]]
        {
            assert_eq!(ApprovalLink::open(other, &SECRET).unwrap_err().kind(), Kind::LinkInvalid, "{other}");
        }
    }

    #[test]
    fn signature_covers_every_part_of_link() {
        let others = [
            ApprovalLink { turn: TurnId::from_u128(9), ..link() },
            ApprovalLink { question: ApprovalId::from_u128(9), ..link() },
            ApprovalLink { answer: LinkAnswer::Deny, ..link() },
            ApprovalLink { by: "person:bob".parse().unwrap(), ..link() },
            ApprovalLink { expires: Millis(9), ..link() },
        ];
        assert!(others.iter().all(|other| other.signature(&SECRET) != link().signature(&SECRET)));
    }

    #[test]
    fn signed_link_of_agent_is_refused() {
        let by = Principal::Agent(crate::SessionId::from_u128(3));
        let signed = ApprovalLink { by, ..link() }.sign(&SECRET);
        assert_eq!(ApprovalLink::open(&signed, &SECRET).unwrap_err().kind(), Kind::LinkInvalid);
    }

    #[test]
    fn public_address_needs_scheme_and_safe_host() {
        for (text, host) in [
            ("https://a.example/", "a.example"),
            ("http://127.0.0.1:7777", "127.0.0.1"),
            ("http://[::1]:7/x", "[::1]"),
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap().host(), host);
        }
        let url: PublicUrl = "https://a.example/x/".parse().unwrap();
        assert_eq!(url.link("lnk_1"), "https://a.example/x/links/lnk_1");
        for text in [
            "",
            "a.example",
            "https://",
            "ftp://a",
            "https://a?b",
            "https://a b",
            "https://u@a",
            "https://a\"b",
        ] {
            assert_eq!(text.parse::<PublicUrl>().unwrap_err().kind(), Kind::ConfigInvalid, "{text}");
        }
    }
}
