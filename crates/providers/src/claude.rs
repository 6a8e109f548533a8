//! The features of Claude models by version. The Messages API accepts different options for different models.

/// The version of a model, parsed from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaudeVersion {
    major: u32,
    minor: u32,
}

impl ClaudeVersion {
    /// Parses the version from a name: `claude-opus-4-5-20251101` is 4.5, `claude-3-5-haiku-latest` is 3.5. A name
    /// without a version is treated as new.
    pub(crate) fn of(model: &str) -> Self {
        // A date has more digits than a version.
        let number = |word: &str| if word.len() < 3 { word.parse().ok() } else { None };
        let mut words = model.split(['-', '.', '@']).skip_while(|word| number(word).is_none());
        let major = words.next().and_then(number).unwrap_or(u32::MAX);
        let minor = words.next().and_then(number).unwrap_or(0);
        Self { major, minor }
    }

    const fn at_least(self, major: u32, minor: u32) -> bool {
        self.major > major || (self.major == major && self.minor >= minor)
    }

    /// Returns whether the model can continue a reply that has begun (prefill).
    pub(crate) const fn supports_prefill(self) -> bool {
        !self.at_least(4, 6)
    }

    /// Returns whether the model decides how long to think and only takes an effort level.
    pub(crate) const fn has_effort_levels(self) -> bool {
        self.at_least(4, 6)
    }

    /// Returns whether the model hides its reasoning unless asked to show it.
    pub(crate) const fn hides_reasoning(self) -> bool {
        self.at_least(4, 7)
    }

    /// Returns whether the answer can be constrained with a JSON Schema.
    pub(crate) const fn supports_schema(self) -> bool {
        self.at_least(4, 5)
    }

    /// Returns the most tokens of a reply for the older models that reject a higher limit.
    pub(crate) const fn reply_tokens(self) -> Option<u32> {
        if self.at_least(4, 0) || (self.major == 3 && self.minor >= 7) {
            None
        } else if self.at_least(3, 5) {
            Some(8_192)
        } else {
            Some(4_096)
        }
    }

    /// Returns the default maximum of answer tokens. The API requires a number.
    pub(crate) fn answer_tokens_default(self) -> u32 {
        self.reply_tokens().unwrap_or(32_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claude_version_is_parsed_from_model_name() {
        let version = |name| (ClaudeVersion::of(name).major, ClaudeVersion::of(name).minor);
        assert_eq!(version("claude-opus-4-5-20251101"), (4, 5));
        assert_eq!(version("claude-sonnet-4-20250514"), (4, 0));
        assert_eq!(version("claude-3-5-haiku-latest"), (3, 5));
        assert_eq!(version("claude-3-haiku-20240307"), (3, 0));
        assert_eq!(version("claude-sonnet-5"), (5, 0));
        assert_eq!(version("claude-opus-5.5"), (5, 5));
        assert_eq!(version("claude-next"), (u32::MAX, 0));
    }
}
