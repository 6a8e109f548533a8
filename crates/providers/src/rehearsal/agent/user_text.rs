//! A piece of user text that is matched without regard to case and sliced with its original case.

/// The maximum number of prefixes that [`UserText::without_prefixes`] removes. Without it, a long run of prefixes would take
/// quadratic time.
const PREFIXES_MAX: usize = 8;

/// A text and its lower-case form. Only ASCII is changed, so both have the same length and can be sliced alike.
#[derive(Clone, Copy)]
pub(super) struct UserText<'a> {
    /// The original text.
    pub(super) text: &'a str,
    /// The text in lower case.
    pub(super) low: &'a str,
}

impl<'a> UserText<'a> {
    pub(super) fn from(self, start: usize) -> Self {
        Self { text: &self.text[start..], low: &self.low[start..] }
    }

    pub(super) fn to(self, end: usize) -> Self {
        Self { text: &self.text[..end], low: &self.low[..end] }
    }

    pub(super) fn trim(self) -> Self {
        let end = self.low.trim_end().len();
        let start = end - self.low[..end].trim_start().len();
        self.to(end).from(start)
    }

    /// Returns the text after the first matching prefix.
    pub(super) fn strip_prefix_of(self, beginnings: &[&str]) -> Option<Self> {
        let beginning = beginnings.iter().find(|beginning| self.low.starts_with(**beginning))?;
        Some(self.from(beginning.len()).trim())
    }

    /// Removes these prefixes repeatedly.
    pub(super) fn without_prefixes(self, beginnings: &[&str]) -> Self {
        (0..PREFIXES_MAX).fold(self, |said, _| said.strip_prefix_of(beginnings).unwrap_or(said))
    }

    /// Removes these suffixes repeatedly.
    pub(super) fn without_suffixes(mut self, ends: &[&str]) -> Self {
        while let Some(rest) = ends.iter().find_map(|end| self.low.strip_suffix(end)) {
            self = self.to(rest.len()).trim();
        }
        self
    }

    /// Splits the text at the first of these words. Neither side is empty.
    pub(super) fn split_at_first(self, words: &[&str]) -> Option<(Self, Self)> {
        let found = words.iter().filter_map(|word| Some((self.low.find(word)?, word.len())));
        self.cut(found.min())
    }

    /// Splits the text at the last of these words. Neither side is empty.
    pub(super) fn split_at_last(self, words: &[&str]) -> Option<(Self, Self)> {
        let found = words.iter().filter_map(|word| Some((self.low.rfind(word)?, word.len())));
        self.cut(found.max())
    }

    fn cut(self, at: Option<(usize, usize)>) -> Option<(Self, Self)> {
        let (start, length) = at?;
        let (before, after) = (self.to(start).trim(), self.from(start + length).trim());
        (!before.low.is_empty() && !after.low.is_empty()).then_some((before, after))
    }

    /// Returns the text inside quotes, if the whole text is quoted.
    pub(super) fn quoted(self) -> Option<&'a str> {
        let inside = |quote| self.text.strip_prefix(quote)?.strip_suffix(quote);
        inside('"').or_else(|| inside('`'))
    }

    /// Returns the original text without surrounding quotes.
    pub(super) fn plain(self) -> String {
        self.quoted().unwrap_or(self.text).to_owned()
    }
}
