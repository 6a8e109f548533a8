//! Finds what a person names: a session by its id or key, a turn by its id.
use outlast::{Error, Outlast, Session, SessionId};

/// A session as a person names it.
#[derive(Clone)]
pub(crate) enum Named {
    /// By its id.
    Id(SessionId),
    /// By the key its caller gave it.
    Key(String),
}

impl Named {
    /// What looks like an id is one, and an error if it is of another kind; everything else is a key.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if looks_like_an_id(text) { Ok(Self::Id(text.parse()?)) } else { Ok(Self::Key(text.to_owned())) }
    }

    /// The session for inputs; a new one if none is named.
    pub(crate) fn session(named: Option<Self>, outlast: &Outlast) -> Session {
        match named {
            Some(Self::Id(id)) => outlast.session_by_id(id),
            Some(Self::Key(key)) => outlast.session(key),
            None => outlast.new_session(),
        }
    }
}

/// Three letters, an underscore and 32 hex digits; or whatever begins like a session's id.
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
    fn an_id_of_another_kind_is_not_taken_for_a_key() {
        let turn = outlast::TurnId::from_u128(7).to_string();
        assert!(matches!(Named::parse("ann"), Ok(Named::Key(key)) if key == "ann"));
        assert!(matches!(Named::parse("trn_x"), Ok(Named::Key(_))));
        assert!(matches!(Named::parse(&SessionId::from_u128(7).to_string()), Ok(Named::Id(_))));
        for wrong in [turn.as_str(), "ses_7", "ses_"] {
            assert_eq!(Named::parse(wrong).err().map(|error| error.kind()), Some(Kind::IdInvalid));
        }
    }
}
