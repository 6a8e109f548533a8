//! Signatures with their provider. Reasoning or a call is sent back only to the provider that signed it.
//!
//! A signature is stored as `provider:signature`. Provider names contain no colon.

/// Returns the stored form of a signature.
pub(crate) fn seal(provider: &str, proof: &str) -> String {
    format!("{provider}:{proof}")
}

/// Returns the original signature, if it came from this provider.
pub(crate) fn open<'a>(provider: &str, kept: Option<&'a str>) -> Option<&'a str> {
    kept?.strip_prefix(provider)?.strip_prefix(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_opens_only_for_the_provider_that_gave_it() {
        let kept = seal("gemini", "a:b");
        assert_eq!(open("gemini", Some(&kept)), Some("a:b"));
        assert_eq!(open("gem", Some(&kept)), None);
        assert_eq!(open("gemini2", Some(&kept)), None);
        assert_eq!(open("gemini", None), None);
    }
}
