//! Detects changes at the beginning of prompts. A provider's cache serves the part that a prompt shares with an earlier
//! one; this finds the first part that differs.
use crate::api_parts::{PromptItem, PromptPosition};
use outlast_vocab::SessionId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The number of sessions whose last prompt is remembered.
const SESSIONS: usize = 1_024;

/// The number of parts of a prompt to remember. Later parts are not compared.
const ITEMS: usize = 4_096;

/// The last prompt of each session.
#[derive(Debug, Default)]
pub(crate) struct PromptPrefixes(Mutex<PromptHistory>);

#[derive(Debug, Default)]
struct PromptHistory {
    sessions: HashMap<SessionId, LastPrompt>,
    calls: u64,
}

#[derive(Debug)]
struct LastPrompt {
    items: Vec<PromptItem>,
    at: u64,
}

/// How a prompt compares with the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefixComparison {
    /// No previous prompt is remembered.
    First,
    /// It starts with the whole previous prompt.
    Extended,
    /// It first differs from the previous prompt here.
    Diverged(PromptPosition),
}

impl fmt::Display for PromptPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tools => f.write_str("the tools"),
            Self::System => f.write_str("the system prompt"),
            Self::Message(number) => write!(f, "message {number}"),
        }
    }
}

impl PromptPrefixes {
    /// Remembers a prompt and compares it with the previous one.
    pub(crate) fn compare_and_remember(
        &self,
        session: SessionId,
        mut items: Vec<PromptItem>,
    ) -> PrefixComparison {
        items.truncate(ITEMS);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.calls += 1;
        let at = known.calls;
        let beginning = match known.sessions.get(&session) {
            None => PrefixComparison::First,
            Some(before) => compare(&before.items, &items),
        };
        known.sessions.insert(session, LastPrompt { items, at });
        if known.sessions.len() > SESSIONS {
            let oldest =
                known.sessions.iter().min_by_key(|(_, prompt)| prompt.at).map(|(session, _)| *session);
            oldest.map(|session| known.sessions.remove(&session));
        }
        beginning
    }
}

fn compare(before: &[PromptItem], now: &[PromptItem]) -> PrefixComparison {
    let differs = before.iter().zip(now).find(|(before, now)| before != now);
    match (differs, before.get(now.len())) {
        (Some((before, _)), _) | (None, Some(before)) => PrefixComparison::Diverged(before.position),
        (None, None) => PrefixComparison::Extended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Hash;

    fn prompt(parts: &str) -> Vec<PromptItem> {
        let place =
            |number| if number == 0 { PromptPosition::System } else { PromptPosition::Message(number) };
        let item = |(number, part): (usize, &str)| PromptItem {
            position: place(number),
            hash: Hash::of(part.as_bytes()),
        };
        parts.split(' ').enumerate().map(item).collect()
    }

    #[test]
    fn changed_prompt_prefix_names_what_changed() {
        let prefixes = PromptPrefixes::default();
        let note = |parts| prefixes.compare_and_remember(SessionId::from_u128(1), prompt(parts));
        assert_eq!(note("sys a b"), PrefixComparison::First);
        assert_eq!(note("sys a b c d"), PrefixComparison::Extended);
        assert_eq!(note("sys a X c d e"), PrefixComparison::Diverged(PromptPosition::Message(2)));
        assert_eq!(note("sys a X"), PrefixComparison::Diverged(PromptPosition::Message(3)));
        assert_eq!(note("SYS a X"), PrefixComparison::Diverged(PromptPosition::System));
        assert_eq!(
            prefixes.compare_and_remember(SessionId::from_u128(2), prompt("sys")),
            PrefixComparison::First
        );
    }

    #[test]
    fn only_recent_sessions_are_remembered() {
        let prefixes = PromptPrefixes::default();
        for session in 0..=SESSIONS as u128 {
            prefixes.compare_and_remember(SessionId::from_u128(session), prompt("sys a"));
        }
        assert_eq!(prefixes.0.lock().unwrap().sessions.len(), SESSIONS);
        assert_eq!(
            prefixes.compare_and_remember(SessionId::from_u128(0), prompt("sys a")),
            PrefixComparison::First
        );
        assert_eq!(
            prefixes.compare_and_remember(SessionId::from_u128(9), prompt("sys a")),
            PrefixComparison::Extended
        );
    }
}
