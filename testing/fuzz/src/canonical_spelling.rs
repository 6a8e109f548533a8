//! Values with a single spelling: canonical JSON, ids, hashes and completion keys.
use outlast_vocab::error::Kind;
use outlast_vocab::id::{
    AgentId, AttachmentId, CallId, EffectId, OrgId, ProcessId, SessionId, TurnId, WorkerId,
};
use outlast_vocab::message::{MediaType, ModelCallId, ModelName, ToolName};
use outlast_vocab::wait::CompletionKey;
use outlast_vocab::{Hash, canonical_json};
use serde_json::Value;
use std::fmt::Display;
use std::str::FromStr;

/// Reads any JSON. Its canonical form can be parsed and is its own canonical form.
pub(crate) fn canonical_json(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let canonical = canonical_json::to_string(&value);
    let read: Value = serde_json::from_str(&canonical).expect("canonical JSON is JSON");
    assert_eq!(canonical_json::to_string(&read), canonical);
    assert_eq!(canonical_json::fingerprint(&read), Hash::of(canonical.as_bytes()));
}

/// Reads any text as an id, hash, name or code. It is rejected with a reason, or printed back unchanged.
pub(crate) fn id(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let kinds = [
        prints_back_unchanged::<SessionId>(text),
        prints_back_unchanged::<TurnId>(text),
        prints_back_unchanged::<EffectId>(text),
        prints_back_unchanged::<CallId>(text),
        prints_back_unchanged::<ProcessId>(text),
        prints_back_unchanged::<AgentId>(text),
        prints_back_unchanged::<OrgId>(text),
        prints_back_unchanged::<AttachmentId>(text),
        prints_back_unchanged::<WorkerId>(text),
    ];
    assert!(kinds.into_iter().filter(|is_id| *is_id).count() <= 1, "`{text}` is an id of two kinds");
    prints_back_unchanged::<Hash>(text);
    prints_back_unchanged::<ModelName>(text);
    prints_back_unchanged::<ToolName>(text);
    prints_back_unchanged::<ModelCallId>(text);
    if let Ok(kind) = text.parse::<Kind>() {
        assert_eq!(kind.code(), text);
    }
    if let Ok(media_type) = MediaType::try_from(text.to_owned()) {
        assert_eq!(String::from(media_type), text);
    }
}

/// Returns whether the text is one of these.
fn prints_back_unchanged<T: FromStr<Err: Display> + Display>(text: &str) -> bool {
    match text.parse::<T>() {
        Ok(parsed) => {
            assert_eq!(parsed.to_string(), text);
            true
        }
        Err(reason) => {
            assert!(!reason.to_string().is_empty());
            false
        }
    }
}

/// Reads a completion key that an attacker might make up.
pub(crate) fn completion_key(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(key) = text.parse::<CompletionKey>() else { return };
    assert_eq!(key.to_string(), text);
    // Signing gives a key for the same place, and only a signed key passes.
    let (secret, other) = ([7; 32], [8; 32]);
    let signed = CompletionKey::sign(&secret, key.turn, key.key.clone());
    assert!(signed.check(&secret).is_ok() && signed.check(&other).is_err());
    assert_eq!(key.check(&secret).is_ok(), key == signed);
}
