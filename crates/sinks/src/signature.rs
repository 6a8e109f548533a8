//! Webhook signatures according to the Standard Webhooks specification: `v1,` and the base64 of the HMAC-SHA256 of
//! `id.timestamp.body`. This module signs what we send, and receivers can use it to verify.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_vocab::Millis;
use outlast_vocab::redaction::redact;
use outlast_vocab::{Error, Kind};
use ring::hmac::{HMAC_SHA256, Key, sign, verify};
use std::fmt;
use std::time::Duration;

/// The prefix of a secret.
const PREFIX: &str = "whsec_";

/// The length of a secret in bytes, according to the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The maximum difference between the time of a webhook and now.
const TOLERANCE: Duration = Duration::from_mins(5);

/// The signature headers of a webhook: `webhook-id`, `webhook-timestamp` and `webhook-signature`.
#[derive(Clone, Copy, Debug)]
pub struct SignatureHeaders<'a> {
    /// The id of the message, the same on every attempt.
    pub id: &'a str,
    /// The time of sending, in seconds since 1970.
    pub timestamp: &'a str,
    /// The signatures, separated by spaces.
    pub signature: &'a str,
}

/// The secrets of a webhook: one, or two during a rotation. They never appear in output.
#[derive(Clone)]
pub struct WebhookSecrets {
    keys: Vec<Key>,
    /// The secrets as text.
    texts: Vec<String>,
}

impl WebhookSecrets {
    /// Parses secrets such as `whsec_…`, separated by spaces. Errors never show the input.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let keys: Option<Vec<Key>> = text.split_whitespace().map(parse_secret).collect();
        let keys = keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
            let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
            let detail = format!("expected a secret like `{PREFIX}` and base64 of {least} to {most} bytes");
            Error::new(Kind::ConfigInvalid, detail)
        })?;
        Ok(Self { keys, texts: text.split_whitespace().map(str::to_owned).collect() })
    }

    /// Verifies that a webhook was signed with one of these secrets, is unchanged, and is not older than five minutes
    /// (or that far in the future). `body` must be the received bytes.
    ///
    /// Within these minutes the same webhook can arrive twice, from us or from an attacker who replays it. Accept each
    /// id once.
    pub fn verify(&self, signed: SignatureHeaders<'_>, body: &[u8], now: Millis) -> Result<(), Error> {
        let wrong = |detail: &str| Error::new(Kind::InputInvalid, detail);
        let SignatureHeaders { id, timestamp, signature } = signed;
        let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = timestamp.parse::<u64>().ok().filter(|_| digits);
        let seconds = seconds.ok_or_else(|| wrong("the time of the webhook is not in seconds since 1970"))?;
        let message = signed_bytes(id, timestamp, body);
        // A full stop in an id could be confused with the separator before the time.
        let is_ours = !id.is_empty() && !id.contains('.') && self.matches_any(&message, signature);
        if !is_ours {
            return Err(wrong("the webhook has no signature with a known secret"));
        }
        if (now.0 / 1_000).abs_diff(seconds) > TOLERANCE.as_secs() {
            return Err(wrong("the webhook is more than five minutes away from now"));
        }
        Ok(())
    }

    /// Returns whether one of these secrets made one of the signatures. The comparison takes constant time.
    fn matches_any(&self, message: &[u8], signatures: &str) -> bool {
        let signatures = signatures.split_ascii_whitespace().filter_map(|said| said.strip_prefix("v1,"));
        let signatures: Vec<Vec<u8>> = signatures.filter_map(|said| STANDARD.decode(said).ok()).collect();
        self.keys.iter().any(|key| signatures.iter().any(|said| verify(key, message, said).is_ok()))
    }

    /// Returns a text without these secrets, with and without their prefix.
    pub(crate) fn redact(&self, text: &str) -> String {
        let bare = self.texts.iter().filter_map(|secret| secret.strip_prefix(PREFIX));
        redact(text, self.texts.iter().map(String::as_str).chain(bare))
    }

    /// Returns the signatures of a message, separated by spaces.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signed = signed_bytes(id, &timestamp.to_string(), body);
        let signature = |key| format!("v1,{}", STANDARD.encode(sign(key, &signed)));
        self.keys.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

fn signed_bytes(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [format!("{id}.{timestamp}.").as_bytes(), body].concat()
}

fn parse_secret(text: &str) -> Option<Key> {
    let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then(|| Key::new(HMAC_SHA256, &bytes))
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::digest::{SHA256, digest};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// Computes HMAC as in RFC 2104, from the hash alone.
    fn hmac(secret: &[u8], message: &[u8]) -> Vec<u8> {
        let mut block = [0; 64];
        block[..secret.len()].copy_from_slice(secret);
        let inner = digest(&SHA256, &[&block.map(|byte| byte ^ 0x36), message].concat());
        digest(&SHA256, &[&block.map(|byte| byte ^ 0x5c), inner.as_ref()].concat()).as_ref().to_vec()
    }

    #[test]
    fn signature_matches_the_specification_example() {
        let secrets = WebhookSecrets::parse(SECRET).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn signature_has_one_hmac_per_secret() {
        let (one, two) = ([7; 24], [9; 64]);
        let text = format!("whsec_{} whsec_{}", STANDARD.encode(one), STANDARD.encode(two));
        let expected = [&one[..], &two].map(|key| format!("v1,{}", STANDARD.encode(hmac(key, b"a.5.{}"))));
        assert_eq!(WebhookSecrets::parse(&text).unwrap().sign("a", 5, b"{}"), expected.join(" "));
    }

    /// The example from the specification.
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: SignatureHeaders<'_> = SignatureHeaders {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp: "1614265330",
        signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    };
    const SENT: Millis = Millis(1_614_265_330_000);

    fn check(signed: SignatureHeaders<'_>, body: &[u8], now: Millis) -> Result<(), String> {
        WebhookSecrets::parse(SECRET)
            .unwrap()
            .verify(signed, body, now)
            .map_err(|error| error.detail().to_owned())
    }

    #[test]
    fn specification_webhook_verifies_and_tampering_is_rejected() {
        assert_eq!(check(SIGNED, BODY, SENT), Ok(()));
        let flipped = |text: &[u8]| -> Vec<Vec<u8>> {
            let one = |place: usize| {
                let mut text = text.to_vec();
                text[place] ^= 1;
                text
            };
            (0..text.len()).map(one).collect()
        };
        let strings =
            |text: &str| flipped(text.as_bytes()).into_iter().map(|text| String::from_utf8(text).unwrap());
        assert!(flipped(BODY).iter().all(|body| check(SIGNED, body, SENT).is_err()));
        assert!(
            strings(SIGNED.id).all(|id| check(SignatureHeaders { id: &id, ..SIGNED }, BODY, SENT).is_err())
        );
        for timestamp in strings(SIGNED.timestamp) {
            let now = Millis(timestamp.parse().unwrap_or(0) * 1_000);
            assert!(check(SignatureHeaders { timestamp: &timestamp, ..SIGNED }, BODY, now).is_err());
        }
        for signature in strings(SIGNED.signature) {
            assert!(
                check(SignatureHeaders { signature: &signature, ..SIGNED }, BODY, SENT).is_err(),
                "{signature}"
            );
        }
        // The same JSON in other bytes is another body.
        assert!(check(SIGNED, br#"{"test":2432232314}"#, SENT).is_err());
    }

    #[test]
    fn webhook_timestamp_tolerance_is_five_minutes() {
        let at = |millis: i64| check(SIGNED, BODY, Millis(SENT.0.saturating_add_signed(millis)));
        assert_eq!([at(-300_000), at(0), at(300_000)], [Ok(()), Ok(()), Ok(())]);
        let old = Err("the webhook is more than five minutes away from now".to_owned());
        assert_eq!([at(-301_000), at(301_000)], [old.clone(), old]);
        for timestamp in ["", "now", "-1", "+1614265330", "1614265330.0", "99999999999999999999"] {
            assert!(check(SignatureHeaders { timestamp, ..SIGNED }, BODY, SENT).is_err(), "{timestamp}");
        }
    }

    #[test]
    fn rotated_secrets_both_verify_and_missing_secret_fails() {
        let (old, new) =
            (WebhookSecrets::parse(SECRET).unwrap(), format!("whsec_{}", STANDARD.encode([7; 32])));
        let new = WebhookSecrets::parse(&new).unwrap();
        let both = WebhookSecrets { keys: vec![new.keys[0].clone(), old.keys[0].clone()], texts: Vec::new() };
        let signature = both.sign("a", 5, b"{}");
        let signed = SignatureHeaders { id: "a", timestamp: "5", signature: &signature };
        assert!([&old, &new, &both].iter().all(|secrets| secrets.verify(signed, b"{}", Millis(0)).is_ok()));
        assert!(both.verify(SIGNED, BODY, SENT).is_ok());
        assert!(new.verify(SIGNED, BODY, SENT).is_err());
        let bare = signature.split(' ').next().unwrap().trim_start_matches("v1,");
        for signature in ["", "v1,", "v1", bare, &format!("v1a,{bare}"), &format!("v2,{bare}")] {
            assert!(
                both.verify(SignatureHeaders { signature, ..signed }, b"{}", Millis(0)).is_err(),
                "{signature}"
            );
        }
        // The same signed bytes, split at another place.
        let signature = both.sign("a", 5, b"6.{}");
        let cut = SignatureHeaders { id: "a.5", timestamp: "6", signature: &signature };
        assert!(both.verify(cut, b"{}", Millis(6_000)).is_err());
    }

    #[test]
    fn invalid_secret_is_refused_and_not_shown() {
        let short = format!("whsec_{}", STANDARD.encode([1; 23]));
        for text in ["", " ", "canary", "whsec_canary!", &short, &format!("{SECRET} canary")] {
            let error = WebhookSecrets::parse(text).unwrap_err().to_string();
            assert_eq!(error, "config.invalid: expected a secret like `whsec_` and base64 of 24 to 64 bytes");
        }
        assert_eq!(format!("{:?}", WebhookSecrets::parse(SECRET).unwrap()), "[secret]");
    }
}
