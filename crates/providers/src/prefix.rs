//! Detects changes at the beginning of prompts. A provider's cache serves the part that a prompt shares with an earlier
//! one; this finds the first part that differs.
use crate::wire::{Item, ItemPlace};
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
pub(crate) struct Prefixes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    sessions: HashMap<SessionId, Prompt>,
    calls: u64,
}

#[derive(Debug)]
struct Prompt {
    items: Vec<Item>,
    at: u64,
}

/// How a prompt compares with the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// No previous prompt is remembered.
    First,
    /// It starts with the whole previous prompt.
    Kept,
    /// It first differs from the previous prompt here.
    Broken(ItemPlace),
}

impl fmt::Display for ItemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tools => f.write_str("the tools"),
            Self::System => f.write_str("the system prompt"),
            Self::Message(number) => write!(f, "message {number}"),
        }
    }
}

impl Prefixes {
    /// Remembers a prompt and compares it with the previous one.
    pub(crate) fn note(&self, session: SessionId, mut items: Vec<Item>) -> Beginning {
        items.truncate(ITEMS);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.calls += 1;
        let at = known.calls;
        let beginning = match known.sessions.get(&session) {
            None => Beginning::First,
            Some(before) => compare(&before.items, &items),
        };
        known.sessions.insert(session, Prompt { items, at });
        if known.sessions.len() > SESSIONS {
            let oldest =
                known.sessions.iter().min_by_key(|(_, prompt)| prompt.at).map(|(session, _)| *session);
            oldest.map(|session| known.sessions.remove(&session));
        }
        beginning
    }
}

fn compare(before: &[Item], now: &[Item]) -> Beginning {
    let differs = before.iter().zip(now).find(|(before, now)| before != now);
    match (differs, before.get(now.len())) {
        (Some((before, _)), _) | (None, Some(before)) => Beginning::Broken(before.place),
        (None, None) => Beginning::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Hash;

    fn prompt(parts: &str) -> Vec<Item> {
        let place = |number| if number == 0 { ItemPlace::System } else { ItemPlace::Message(number) };
        let item =
            |(number, part): (usize, &str)| Item { place: place(number), hash: Hash::of(part.as_bytes()) };
        parts.split(' ').enumerate().map(item).collect()
    }

    #[test]
    fn a_prompt_that_does_not_begin_as_the_one_before_names_what_changed() {
        let prefixes = Prefixes::default();
        let note = |parts| prefixes.note(SessionId::from_u128(1), prompt(parts));
        assert_eq!(note("sys a b"), Beginning::First);
        assert_eq!(note("sys a b c d"), Beginning::Kept);
        assert_eq!(note("sys a X c d e"), Beginning::Broken(ItemPlace::Message(2)));
        assert_eq!(note("sys a X"), Beginning::Broken(ItemPlace::Message(3)));
        assert_eq!(note("SYS a X"), Beginning::Broken(ItemPlace::System));
        assert_eq!(prefixes.note(SessionId::from_u128(2), prompt("sys")), Beginning::First);
    }

    #[test]
    fn only_the_sessions_of_late_are_remembered() {
        let prefixes = Prefixes::default();
        for session in 0..=SESSIONS as u128 {
            prefixes.note(SessionId::from_u128(session), prompt("sys a"));
        }
        assert_eq!(prefixes.0.lock().unwrap().sessions.len(), SESSIONS);
        assert_eq!(prefixes.note(SessionId::from_u128(0), prompt("sys a")), Beginning::First);
        assert_eq!(prefixes.note(SessionId::from_u128(9), prompt("sys a")), Beginning::Kept);
    }
}
