//! Signatures of webhooks, as the Standard Webhooks specification has them: `v1,` and the HMAC-SHA256 of
//! `id.timestamp.body` in base64.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_vocab::{Error, Kind};
use ring::hmac::{HMAC_SHA256, Key, sign};
use std::fmt;

/// How a secret begins.
const PREFIX: &str = "whsec_";

/// How many bytes a secret has, as the specification asks.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secrets that sign a webhook: one, or two while it is being changed. Shown to nobody.
#[derive(Clone)]
pub struct Secrets(Vec<Key>);

impl Secrets {
    /// Reads secrets like `whsec_…`, with spaces between them. No error shows what was read.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let keys: Option<Vec<Key>> = text.split_whitespace().map(key).collect();
        let keys = keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
            let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
            let detail = format!("expected a secret like `{PREFIX}` and base64 of {least} to {most} bytes");
            Error::new(Kind::ConfigInvalid, detail)
        })?;
        Ok(Self(keys))
    }

    /// The signatures of a message, with spaces between them.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        let signature = |key| format!("v1,{}", STANDARD.encode(sign(key, &signed)));
        self.0.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

fn key(text: &str) -> Option<Key> {
    let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then(|| Key::new(HMAC_SHA256, &bytes))
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::digest::{SHA256, digest};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// HMAC as RFC 2104 defines it, from the hash alone.
    fn hmac(secret: &[u8], message: &[u8]) -> Vec<u8> {
        let mut block = [0; 64];
        block[..secret.len()].copy_from_slice(secret);
        let inner = digest(&SHA256, &[&block.map(|byte| byte ^ 0x36), message].concat());
        digest(&SHA256, &[&block.map(|byte| byte ^ 0x5c), inner.as_ref()].concat()).as_ref().to_vec()
    }

    #[test]
    fn a_signature_is_the_one_of_the_specification() {
        let secrets = Secrets::parse(SECRET).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_signature_is_the_hmac_of_id_time_and_body_under_each_secret() {
        let (one, two) = ([7; 24], [9; 64]);
        let text = format!("whsec_{} whsec_{}", STANDARD.encode(one), STANDARD.encode(two));
        let expected = [&one[..], &two].map(|key| format!("v1,{}", STANDARD.encode(hmac(key, b"a.5.{}"))));
        assert_eq!(Secrets::parse(&text).unwrap().sign("a", 5, b"{}"), expected.join(" "));
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_shown() {
        let short = format!("whsec_{}", STANDARD.encode([1; 23]));
        for text in ["", " ", "canary", "whsec_canary!", &short, &format!("{SECRET} canary")] {
            let error = Secrets::parse(text).unwrap_err().to_string();
            assert_eq!(error, "config.invalid: expected a secret like `whsec_` and base64 of 24 to 64 bytes");
        }
        assert_eq!(format!("{:?}", Secrets::parse(SECRET).unwrap()), "[secret]");
    }
}
