//! Sessions as people look for them: newest first, by state, key and what was said first.
use outlast_ports::store::{LastEnd, SessionState, SessionView, Store};
use outlast_vocab::message::text_of;
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::{Error, SessionId};

/// Sessions that are read at once.
const READ: usize = 200;

/// Which sessions are looked for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those that stand so.
    pub state: Option<SessionState>,
    /// Only those whose last turn ended so.
    pub last_end: Option<LastEnd>,
    /// Only those whose key, or whose first input, holds this text, whatever its case.
    pub text: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The session.
    pub session: SessionView,
    /// What was said first in it.
    pub title: String,
}

/// Some sessions.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Those that were found, newest first.
    pub sessions: Vec<Listed>,
    /// Where the next page begins; none if everything was looked at.
    pub before: Option<SessionId>,
}

/// Up to `limit` sessions before one of them. At most `look` are looked at, so that a search that finds little comes back with
/// where to go on.
pub async fn page(
    store: &dyn Store,
    filter: &Filter,
    before: Option<SessionId>,
    (limit, look): (usize, usize),
) -> Result<Page, Error> {
    let text = filter.text.as_ref().map(|text| text.to_lowercase());
    let (mut found, mut before, mut looked) = (Vec::new(), before, 0);
    loop {
        let takes_all = filter.state.is_none() && filter.last_end.is_none() && text.is_none();
        let read = if takes_all { limit - found.len() } else { READ };
        let rows = store.sessions(before, read).await?;
        let last = rows.len() < read;
        looked += rows.len();
        for session in rows {
            before = Some(session.id);
            let last_end = session.last_turn.map(|last| last.end);
            if filter.state.is_some_and(|state| state != session.state)
                || filter.last_end.is_some() && filter.last_end != last_end
            {
                continue;
            }
            let title = title(store, &session).await?;
            let holds = |text: &String| {
                let key = session.key.as_ref().is_some_and(|key| key.to_lowercase().contains(text));
                key || title.to_lowercase().contains(text)
            };
            if text.as_ref().is_none_or(holds) {
                found.push(Listed { session, title });
            }
            if found.len() == limit {
                return Ok(Page { sessions: found, before });
            }
        }
        if last {
            return Ok(Page { sessions: found, before: None });
        }
        if looked >= look {
            return Ok(Page { sessions: found, before });
        }
    }
}

/// A session's title is its first input.
pub async fn title(store: &dyn Store, session: &SessionView) -> Result<String, Error> {
    let Some(first) = store.turns(session.id, 0, 1).await?.into_iter().next() else {
        let title = session.forked_from.map(|node| format!("fork of #{} of {}", node.seq, node.session));
        return Ok(title.unwrap_or_default());
    };
    let before = Seq(first.span.0.0.saturating_sub(1));
    let accepted = store.records(session.id, before, 1).await?.into_iter().next();
    Ok(match accepted.map(|record| record.fact) {
        Some(Fact::Accepted(accepted)) => text_of(&accepted.parts).into_owned(),
        _ => String::new(),
    })
}
