//! Signatures with their provider. Reasoning or a call is sent back only to the provider that signed it.
//!
//! A signature is stored as `provider:signature`. Provider names contain no colon.

/// Returns the stored form of a signature.
pub(crate) fn tag_signature(provider: &str, proof: &str) -> String {
    format!("{provider}:{proof}")
}

/// Returns the original signature, if it came from this provider.
pub(crate) fn untag_signature<'a>(provider: &str, tagged: Option<&'a str>) -> Option<&'a str> {
    tagged?.strip_prefix(provider)?.strip_prefix(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_returned_only_to_its_provider() {
        let tagged = tag_signature("gemini", "a:b");
        assert_eq!(untag_signature("gemini", Some(&tagged)), Some("a:b"));
        assert_eq!(untag_signature("gem", Some(&tagged)), None);
        assert_eq!(untag_signature("gemini2", Some(&tagged)), None);
        assert_eq!(untag_signature("gemini", None), None);
    }
}
