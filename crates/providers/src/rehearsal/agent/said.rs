//! A piece of what a user said, to be matched without regard to case and cut without losing it.

/// How often [`Said::without`] looks again. Without a bound, a long run of such words would be read anew at each.
const AGAIN_MOST: usize = 8;

/// A text and the same text in lower case. ASCII only, so both have the same length and can be cut alike.
#[derive(Clone, Copy)]
pub(super) struct Said<'a> {
    /// As it was written.
    pub(super) text: &'a str,
    /// In lower case.
    pub(super) low: &'a str,
}

impl<'a> Said<'a> {
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

    /// What follows the first of these beginnings that fits.
    pub(super) fn after(self, beginnings: &[&str]) -> Option<Self> {
        let beginning = beginnings.iter().find(|beginning| self.low.starts_with(**beginning))?;
        Some(self.from(beginning.len()).trim())
    }

    /// Without these beginnings, one after the other.
    pub(super) fn without(self, beginnings: &[&str]) -> Self {
        (0..AGAIN_MOST).fold(self, |said, _| said.after(beginnings).unwrap_or(said))
    }

    /// Without these ends, one after the other.
    pub(super) fn without_end(mut self, ends: &[&str]) -> Self {
        while let Some(rest) = ends.iter().find_map(|end| self.low.strip_suffix(end)) {
            self = self.to(rest.len()).trim();
        }
        self
    }

    /// What stands before and after the first of these words, and never nothing.
    pub(super) fn around(self, words: &[&str]) -> Option<(Self, Self)> {
        let found = words.iter().filter_map(|word| Some((self.low.find(word)?, word.len())));
        self.cut(found.min())
    }

    /// What stands before and after the last of these words, and never nothing.
    pub(super) fn around_last(self, words: &[&str]) -> Option<(Self, Self)> {
        let found = words.iter().filter_map(|word| Some((self.low.rfind(word)?, word.len())));
        self.cut(found.max())
    }

    fn cut(self, at: Option<(usize, usize)>) -> Option<(Self, Self)> {
        let (start, length) = at?;
        let (before, after) = (self.to(start).trim(), self.from(start + length).trim());
        (!before.low.is_empty() && !after.low.is_empty()).then_some((before, after))
    }

    /// What stands between quotes, if it is quoted as a whole.
    pub(super) fn quoted(self) -> Option<&'a str> {
        let inside = |quote| self.text.strip_prefix(quote)?.strip_suffix(quote);
        inside('"').or_else(|| inside('`'))
    }

    /// As it was written, without quotes around it.
    pub(super) fn plain(self) -> String {
        self.quoted().unwrap_or(self.text).to_owned()
    }
}
