//! What a Claude model takes, by its version: the Messages API changed what it accepts from model to model.

/// A model's version, as its name gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claude {
    major: u32,
    minor: u32,
}

impl Claude {
    /// The version in a name: `claude-opus-4-5-20251101` is 4.5, `claude-3-5-haiku-latest` is 3.5. A name without one is
    /// taken for new.
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

    /// Whether it goes on behind the beginning of its own reply.
    pub(crate) const fn goes_on(self) -> bool {
        !self.at_least(4, 6)
    }

    /// Whether it decides itself how long to think, and is told only how hard to try.
    pub(crate) const fn thinks_by_effort(self) -> bool {
        self.at_least(4, 6)
    }

    /// Whether it keeps its thoughts to itself unless asked to show them.
    pub(crate) const fn thinks_silently(self) -> bool {
        self.at_least(4, 7)
    }

    /// Whether the form of its answer can be fixed by a schema.
    pub(crate) const fn takes_schema(self) -> bool {
        self.at_least(4, 5)
    }

    /// Tokens of an answer when nobody says otherwise; the API wants a number.
    pub(crate) const fn answer_tokens(self) -> u32 {
        if self.at_least(4, 0) || (self.major == 3 && self.minor >= 7) {
            32_000
        } else if self.at_least(3, 5) {
            8_192
        } else {
            4_096
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_version() {
        let version = |name| (Claude::of(name).major, Claude::of(name).minor);
        assert_eq!(version("claude-opus-4-5-20251101"), (4, 5));
        assert_eq!(version("claude-sonnet-4-20250514"), (4, 0));
        assert_eq!(version("claude-3-5-haiku-latest"), (3, 5));
        assert_eq!(version("claude-3-haiku-20240307"), (3, 0));
        assert_eq!(version("claude-sonnet-5"), (5, 0));
        assert_eq!(version("claude-opus-5.5"), (5, 5));
        assert_eq!(version("claude-next"), (u32::MAX, 0));
    }
}
