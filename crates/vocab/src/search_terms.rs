//! The words of a message for full-text search: letters and digits, in lower case.
//!
//! All text is split here, so that every database finds the same messages.
use crate::effect::{ModelOutcome, Outcome};
use crate::message::text_of;
use crate::record::{EffectPerformed, Fact};
use crate::{Error, Kind};
use std::collections::BTreeSet;

/// The most characters of a word that are indexed.
const LETTERS: usize = 64;

/// The number of characters of a message that search results show.
pub const EXCERPT: usize = 240;

/// The most words of one search.
const MOST: usize = 16;

/// Splits a text into words, in order.
fn split(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(|part| part.chars().take(LETTERS).flat_map(char::to_lowercase).collect())
}

/// Returns the words of a record that is an input or a reply: each once, separated by spaces. `None` if it
/// has none.
pub fn of_fact(fact: &Fact) -> Option<String> {
    let words: BTreeSet<String> = split(&text_of_fact(fact)?).collect();
    Some(words.into_iter().collect::<Vec<_>>().join(" ")).filter(|words| !words.is_empty())
}

/// Returns the searchable text of a record: an input or a reply.
pub fn text_of_fact(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Accepted(accepted) => Some(text_of(&accepted.parts).into_owned()),
        Fact::Performed(EffectPerformed {
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
        }) => Some(text_of(&reply.parts).into_owned()),
        Fact::Interrupted(interrupted) => Some(interrupted.text.clone()),
        _ => None,
    }
}

/// A search query: messages must contain all of these words, where the last one may be a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchTerms(Vec<String>);

impl SearchTerms {
    /// Parses a query as plain words. It has no operators.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let words: Vec<String> = split(text).collect();
        crate::limits::check("the words of a search", words.len(), MOST)?;
        if words.is_empty() {
            let shown = crate::message::shown(text);
            let detail = format!("expected at least one word to search for, got `{shown}`");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        Ok(Self(words))
    }

    /// Returns the words. The last one may be a prefix.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// Returns whether a message with these words, separated by spaces, matches.
    pub fn fits(&self, words: &str) -> bool {
        let has = |test: &dyn Fn(&str) -> bool| words.split(' ').any(test);
        let Some((last, whole)) = self.0.split_last() else { return false };
        whole.iter().all(|wanted| has(&|word| word == wanted)) && has(&|word| word.starts_with(last.as_str()))
    }

    /// Returns the part of a text around the first word that matches.
    pub fn excerpt(&self, text: &str, letters: usize) -> String {
        let begin = self.first(text).unwrap_or(0);
        let before: usize = text[..begin].char_indices().rev().nth(letters / 3).map_or(0, |(at, _)| at);
        let rest = &text[before..];
        let end = rest.char_indices().nth(letters).map_or(rest.len(), |(at, _)| at);
        let (from, to) = (if before > 0 { "…" } else { "" }, if end < rest.len() { "…" } else { "" });
        format!("{from}{}{to}", rest[..end].trim())
    }

    /// Returns the position of the first word that matches.
    fn first(&self, text: &str) -> Option<usize> {
        let mut from = 0;
        while from < text.len() {
            let begin = from + text[from..].find(char::is_alphanumeric)?;
            let rest = &text[begin..];
            let end = begin + rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
            let word = text[begin..end].to_lowercase();
            if self.0.iter().any(|wanted| word.starts_with(wanted.as_str())) {
                return Some(begin);
            }
            from = end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str) -> SearchTerms {
        SearchTerms::parse(text).unwrap()
    }

    #[test]
    fn message_matches_all_words_and_last_prefix() {
        let words = split("The Invoice of Zürich, no. 42").collect::<Vec<_>>().join(" ");
        assert_eq!(words, "the invoice of zürich no 42");
        for text in ["invoice", "INVOICE the", "zür", "42 inv", "zürich"] {
            assert!(wanted(text).fits(&words), "{text}");
        }
        for text in ["inv 42x", "voice", "inv of", "zurich"] {
            assert!(!wanted(text).fits(&words), "{text}");
        }
    }

    #[test]
    fn search_text_has_no_operators() {
        assert_eq!(wanted("a OR b").words(), ["a", "or", "b"]);
        assert_eq!(wanted("\"x\" NEAR(y) -z* ^col:").words(), ["x", "near", "y", "z", "col"]);
        for text in ["", " ", "\"*\"", "--"] {
            assert_eq!(SearchTerms::parse(text).unwrap_err().kind(), Kind::InputInvalid, "{text}");
        }
        assert_eq!(SearchTerms::parse(&"a ".repeat(17)).unwrap_err().kind(), Kind::LimitExceeded);
    }

    #[test]
    fn excerpt_surrounds_the_first_match() {
        let text = format!("{}the Invoice is here{}", "x ".repeat(100), " y".repeat(100));
        assert_eq!(wanted("invo").excerpt(&text, 30), "…x x x the Invoice is here y y…");
        assert_eq!(wanted("ab").excerpt("ab cd", 30), "ab cd");
        assert_eq!(wanted("zz").excerpt("äb cd", 30), "äb cd");
    }
}
