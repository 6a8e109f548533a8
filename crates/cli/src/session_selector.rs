//! Parses the name of a session: its id or its key.
use outlast::{Error, Outlast, Session, SessionId};

/// The name of a session.
#[derive(Clone)]
pub(crate) enum SessionSelector {
    Id(SessionId),
    /// The key that its creator chose.
    Key(String),
}

impl SessionSelector {
    /// Parses an id or a key. Text that looks like an id must parse as a session id. All other text is a key.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if looks_like_an_id(text) { Ok(Self::Id(text.parse()?)) } else { Ok(Self::Key(text.to_owned())) }
    }

    /// Returns the named session, or a new one.
    pub(crate) fn session(named: Option<Self>, outlast: &Outlast) -> Session {
        match named {
            Some(Self::Id(id)) => outlast.session_by_id(id),
            Some(Self::Key(key)) => outlast.session(key),
            None => outlast.new_session(),
        }
    }
}

/// Returns whether the text is three letters, an underscore and 32 hex digits, or has the prefix of session
/// ids.
fn looks_like_an_id(text: &str) -> bool {
    let Some((prefix, rest)) = text.split_once('_') else { return false };
    let hex = rest.len() == 32 && rest.bytes().all(|b| b.is_ascii_hexdigit());
    prefix == SessionId::NOUN.prefix || (hex && prefix.len() == 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast::Kind;

    #[test]
    fn other_kinds_of_id_are_not_session_keys() {
        let turn = outlast::TurnId::from_u128(7).to_string();
        assert!(matches!(SessionSelector::parse("ann"), Ok(SessionSelector::Key(key)) if key == "ann"));
        assert!(matches!(SessionSelector::parse("trn_x"), Ok(SessionSelector::Key(_))));
        assert!(matches!(
            SessionSelector::parse(&SessionId::from_u128(7).to_string()),
            Ok(SessionSelector::Id(_))
        ));
        for wrong in [turn.as_str(), "ses_7", "ses_"] {
            assert_eq!(SessionSelector::parse(wrong).err().map(|error| error.kind()), Some(Kind::IdInvalid));
        }
    }
}
